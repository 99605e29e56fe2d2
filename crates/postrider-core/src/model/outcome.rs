//! What a provider's answer means: one closed vocabulary for all channels. Failure is data; a
//! channel returns an [`Outcome`], never an error.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::address::Target;
use crate::model::delivery::names;
use crate::model::id::KeyId;
use crate::policy::strikes::StrikeKind;

/// How far a provider's wish to be left alone reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// This one address.
    Target,
    /// Everything sent with this credential.
    Credential,
    /// The provider's whole origin.
    Host,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The provider took responsibility. Never means "displayed".
    Accepted,
    /// Transient; nothing said when to come back. A provider's own minimum wait may apply.
    RetryBackoff { at_least: Duration },
    /// Transient; the provider said (or its default says) when to come back.
    RetryAfter { after: Duration, scope: Scope },
    /// This address will never work again.
    Gone,
    /// This message can never be accepted; the address is fine.
    DropMessage,
    /// Our credential or configuration is wrong: park, alert, burn no attempt.
    Config,
    /// Our token is stale: once more, at once, with a new one.
    ResignOnce,
    /// The provider says that it did not process the request: again at once, free.
    Reconnect,
    /// This account cannot send it and another one can: again at once through that one, free.
    SwitchAccount,
    /// The request left, no answer came.
    Ambiguous,
    /// Our own deadline passed before the provider accepted.
    Expired,
    /// No account can be used before then: no call was made. Counts as nothing.
    Hold { after: Duration, scope: Scope },
    /// We ran out of something ourselves, e.g. of connections: nobody was called, and nobody is to blame.
    Local,
}

names! {
    /// An outcome without its details, as records and metrics name it. `withheld` is that nobody was called, because
    /// the recipient does not want it, or not now.
    OutcomeKind {
        Accepted = "accepted",
        RetryBackoff = "retry_backoff",
        RetryAfter = "retry_after",
        Gone = "gone",
        DropMessage = "drop_message",
        Config = "config",
        ResignOnce = "resign_once",
        Reconnect = "reconnect",
        Ambiguous = "ambiguous",
        Expired = "expired",
        Hold = "hold",
        SwitchAccount = "switch_account",
        Local = "local",
        Withheld = "withheld",
    }
}

impl Outcome {
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Accepted => OutcomeKind::Accepted,
            Self::RetryBackoff { .. } => OutcomeKind::RetryBackoff,
            Self::RetryAfter { .. } => OutcomeKind::RetryAfter,
            Self::Gone => OutcomeKind::Gone,
            Self::DropMessage => OutcomeKind::DropMessage,
            Self::Config => OutcomeKind::Config,
            Self::ResignOnce => OutcomeKind::ResignOnce,
            Self::Reconnect => OutcomeKind::Reconnect,
            Self::SwitchAccount => OutcomeKind::SwitchAccount,
            Self::Ambiguous => OutcomeKind::Ambiguous,
            Self::Expired => OutcomeKind::Expired,
            Self::Hold { .. } => OutcomeKind::Hold,
            Self::Local => OutcomeKind::Local,
        }
    }

    /// Whether the attempt may be made again at once, free.
    pub fn may_repeat_at_once(&self) -> bool {
        matches!(self, Self::ResignOnce | Self::Reconnect | Self::SwitchAccount)
    }

    pub fn name(&self) -> &'static str {
        self.kind().name()
    }
}

/// What a row of the table of answers says besides the outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerTerms {
    /// The answer is a final refusal that is retried at most so often.
    pub retries_max: Option<u32>,
    /// Which strike it is against the address.
    pub strike: Option<StrikeKind>,
}

/// An outcome with its evidence: all that is kept of one call to a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub outcome: Outcome,
    pub status: Option<u16>,
    /// The provider's machine-readable code, or our own (`connect`, `tls`, `timeout`, …).
    pub code: Option<String>,
    /// At most 1 KiB of what the provider said. Never contains an endpoint or payload of ours.
    pub detail: Option<String>,
    /// `Retry-After` as it came.
    pub retry_after: Option<String>,
    /// What the provider calls the message (`Location`, `x-message-id`), if it says so.
    pub provider_id: Option<String>,
    /// The key of ours that the call was signed with, where it has an id.
    pub key: Option<KeyId>,
    pub terms: AnswerTerms,
    /// No provider was asked: the address itself says so, and there is nothing to doubt.
    pub is_certain: bool,
    /// No connection to the provider could be opened: it refused, no address or certificate was good, or nothing
    /// answered. A shortage of our own is [`Outcome::Local`] instead.
    pub is_unopened: bool,
    /// Another account was used than the attempt named: the call says nothing about that one.
    pub is_of_other_account: bool,
    /// The target with what the call taught about it, where it taught something.
    pub target: Option<Arc<Target>>,
}

impl Report {
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            status: None,
            code: None,
            detail: None,
            retry_after: None,
            provider_id: None,
            key: None,
            terms: AnswerTerms::default(),
            is_certain: false,
            is_unopened: false,
            is_of_other_account: false,
            target: None,
        }
    }

    /// No connection could be opened, so that nothing was sent.
    pub fn unopened() -> Self {
        let outcome = Outcome::RetryBackoff { at_least: Duration::ZERO };
        Self { is_unopened: true, ..Self::new(outcome) }
    }

    /// Of an answer as the table judges it.
    pub fn judged((outcome, terms): (Outcome, AnswerTerms)) -> Self {
        Self { terms, ..Self::new(outcome) }
    }

    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

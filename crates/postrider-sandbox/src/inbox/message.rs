//! One message of the inbox: its receiver, its content and its attempts.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::view::InboxView;
use super::{InboxKey, MESSAGE_BYTES};
use crate::correlation::CorrelationId;
use crate::fakes::FakeKind;
use crate::fault::Fault;
use crate::received::AttemptEnding;
use crate::receiver::{LastRequest, Receiver};

/// Attempts that a message keeps; the count goes on.
const ATTEMPTS_MAX: usize = 50;
/// How much of a reason is kept.
const WHY_MAX: usize = 300;

#[derive(Debug, Clone)]
pub(crate) struct InboxMessage {
    pub(crate) number: u64,
    /// The version of the inbox when it last changed.
    pub(crate) version: u64,
    pub(crate) kind: FakeKind,
    /// The receiver's name; empty if the request did not get that far.
    pub(crate) receiver: Arc<str>,
    /// As in `/sandbox/received/<id>`.
    pub(crate) id: Arc<str>,
    /// Absent while only its arrival is known.
    pub(crate) content: Option<Arc<InboxContent>>,
    pub(crate) attempts: VecDeque<InboxAttempt>,
    pub(crate) attempts_total: u32,
    /// Why the provider's checks refused it.
    pub(crate) rejected: Option<Arc<str>>,
    pub(super) key: Option<InboxKey>,
}

#[derive(Debug)]
pub(crate) struct InboxContent {
    pub(crate) request: Arc<LastRequest>,
    /// Milliseconds since 1970.
    pub(crate) at_ms: i64,
    view: OnceLock<InboxView>,
    /// Everything that a search looks at, in lower case.
    searched: OnceLock<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct InboxAttempt {
    at_ms: i64,
    /// The answer that a person ordered for it.
    pub(super) ordered: Option<Fault>,
    /// Absent while it is under way.
    pub(super) ending: Option<AttemptEnding>,
}

impl InboxMessage {
    pub(super) fn new(
        number: u64,
        receiver: &Receiver,
        id: &CorrelationId,
        key: Option<InboxKey>,
    ) -> Self {
        Self {
            number,
            version: 0,
            kind: receiver.kind,
            receiver: Arc::from(&*receiver.name),
            id: id.to_string().into(),
            content: None,
            attempts: VecDeque::new(),
            attempts_total: 0,
            rejected: None,
            key,
        }
    }

    pub(super) fn rejected(
        number: u64,
        kind: FakeKind,
        attempt: InboxAttempt,
        content: InboxContent,
        why: &str,
    ) -> Self {
        Self {
            number,
            version: 0,
            kind,
            receiver: "".into(),
            id: "".into(),
            content: Some(Arc::new(content)),
            attempts: VecDeque::from([attempt]),
            attempts_total: 1,
            rejected: Some(why.trim().chars().take(WHY_MAX).collect::<String>().into()),
            key: None,
        }
    }

    /// Its number among the attempts of this message, from 1.
    pub(super) fn add_attempt(&mut self, attempt: InboxAttempt) -> u32 {
        self.attempts_total = self.attempts_total.saturating_add(1);
        self.attempts.push_back(attempt);
        if self.attempts.len() > ATTEMPTS_MAX {
            self.attempts.pop_front();
        }
        self.attempts_total
    }

    pub(super) fn attempt_mut(&mut self, number: u32) -> Option<&mut InboxAttempt> {
        let from_end = self.attempts_total.checked_sub(number)? as usize;
        let index = self.attempts.len().checked_sub(from_end + 1)?;
        self.attempts.get_mut(index)
    }

    /// Whether the provider has it.
    pub(crate) fn is_accepted(&self) -> bool {
        self.attempts.iter().any(|a| a.ending.is_some_and(AttemptEnding::is_taken))
    }

    /// `accepted`, `refused`, `no answer` or `under way`: the last attempt decides, unless one was accepted.
    pub(crate) fn state(&self) -> &'static str {
        match self.attempts.back().and_then(|attempt| attempt.ending) {
            _ if self.is_accepted() => "accepted",
            None => "under way",
            Some(AttemptEnding::Unprocessed) => "no answer",
            Some(_) => "refused",
        }
    }

    pub(crate) fn attempts_as_json(&self) -> Vec<Value> {
        self.attempts.iter().map(InboxAttempt::as_json).collect()
    }

    /// The first time, as far as it is still kept.
    pub(crate) fn at(&self) -> String {
        time(self.attempts.front().map_or(0, |attempt| attempt.at_ms))
    }

    pub(super) fn bytes(&self) -> usize {
        let content = self.content.as_ref().map_or(0, |content| content.request.len());
        MESSAGE_BYTES + self.receiver.len() + content + self.attempts.len() * 32
    }
}

impl InboxContent {
    pub(super) fn new(request: Arc<LastRequest>, at_ms: i64) -> Self {
        Self { request, at_ms, view: OnceLock::new(), searched: OnceLock::new() }
    }

    /// Made when somebody looks for the first time.
    pub(crate) fn view(&self, make: impl FnOnce(&Self) -> InboxView) -> &InboxView {
        self.view.get_or_init(|| make(self))
    }

    pub(crate) fn searched(&self, make: impl FnOnce() -> String) -> &str {
        self.searched.get_or_init(make)
    }
}

impl InboxAttempt {
    pub(super) fn new(at_ms: i64) -> Self {
        Self { at_ms, ordered: None, ending: None }
    }

    fn as_json(&self) -> Value {
        let (result, status) = match self.ending {
            None => ("under way", None),
            Some(AttemptEnding::Accepted { status }) => ("accepted", Some(status)),
            Some(AttemptEnding::AcceptedUnanswered) => ("accepted, no answer", None),
            Some(AttemptEnding::Refused { status, .. }) => ("refused", Some(status)),
            Some(AttemptEnding::Unprocessed) => ("no answer", None),
        };
        let ordered = self.ordered.map(|fault| fault.to_string());
        json!({ "at": time(self.at_ms), "result": result, "status": status, "ordered": ordered })
    }
}

/// RFC 3339 in UTC.
fn time(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms).unwrap_or_default().to_string()
}

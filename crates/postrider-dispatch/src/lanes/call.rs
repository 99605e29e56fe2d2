//! What the end of a call says about its provider, and what that changes for the lanes.

use std::time::Duration;

use postrider_core::policy::tenant_health::HealthCall;
use postrider_core::{Scope, Signal, Timestamp};

/// How a call ended, as far as its provider is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallResult {
    pub(crate) signal: Signal,
    /// The address was called gone.
    pub(crate) gone: bool,
    /// How long, and how far around, the provider wants to be left alone.
    pub(crate) wait: Option<(Scope, Duration)>,
    pub(crate) latency_ms: u32,
    pub(crate) is_retry: bool,
    /// No connection could be opened.
    pub(crate) unopened: bool,
    /// A number that stands for the address.
    pub(crate) target: u64,
    /// Whether the credential is the tenant's, not the address' own.
    pub(crate) tenant_credential: bool,
    /// Whether the call went through the account that it was permitted for.
    pub(crate) counts_for_breaker: bool,
}

impl CallResult {
    /// What the call says about the provider as a whole.
    pub(super) fn signal_of_provider(&self) -> Signal {
        if self.counts_for_breaker { self.signal } else { Signal::Nothing }
    }

    pub(super) fn began(&self, now: Timestamp) -> Timestamp {
        now - Duration::from_millis(self.latency_ms.into())
    }

    /// What the call says about tenant and address.
    pub(super) fn of_health(&self, now: Timestamp) -> HealthCall {
        HealthCall {
            signal: self.signal_of_provider(),
            target: self.target,
            is_retry: self.is_retry,
            unopened: self.unopened,
            began: self.began(now),
        }
    }
}

/// What the end of a call changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallEffect {
    pub(crate) event: Option<LaneEvent>,
    /// A change of the tenant's own breaker.
    pub(crate) tenant_event: Option<LaneEvent>,
    /// Lanes may go that could not before.
    pub(super) eased: bool,
    /// The lane's retry budget was empty and is not any more.
    pub(super) refills_budget: bool,
    /// The address asks for less as a rule, and others do not.
    pub(super) is_own_wish: bool,
    /// A complaint is about one address only.
    pub(super) is_of_one_address: bool,
    /// The call failed because its provider fails as a whole.
    pub(crate) excused: bool,
    /// That the address is gone is not believed.
    pub(crate) doubted: bool,
}

impl CallEffect {
    /// Whether lanes may go or must wait that could not or did not before.
    pub(super) fn changes_gates(&self) -> bool {
        self.eased || self.event.is_some() || self.tenant_event.is_some()
    }
}

/// Whom a breaker concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerScope {
    /// One tenant's calls to the provider.
    Tenant,
    /// All calls to the provider.
    Provider,
}

impl BreakerScope {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Provider => "provider",
        }
    }
}

/// A change of a lane's gates that observers are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneEvent {
    BreakerOpened {
        scope: BreakerScope,
        until: Timestamp,
    },
    /// Retries without success: the breaker opened before they make it worse.
    RetryStorm {
        until: Timestamp,
    },
    BreakerClosed {
        scope: BreakerScope,
    },
    CredentialRefused {
        until: Timestamp,
    },
    /// Too many of a credential's addresses at once are called gone: none is erased.
    MassGone {
        until: Timestamp,
    },
    CredentialAccepted,
    /// The provider asked to be left alone, for all lanes of the scope.
    LeftAlone {
        scope: Scope,
        until: Timestamp,
    },
}

//! One provider (origin) as all its lanes share it: the slots for calls, and what was learned about it.
//! Keeps state only; the [checks](super::checks) decide by it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use postrider_core::policy::breaker::{Breaker, BreakerPolicy, BreakerState};
use postrider_core::policy::concurrency::Concurrency;
use postrider_core::policy::credential::CredentialBreaker;
use postrider_core::policy::pace::Pace;
use postrider_core::policy::storm::Storm;
use postrider_core::policy::throttle::{Pause, ThrottleSpread};
use postrider_core::{TenantId, Timestamp};

use super::slots::CallSlots;

/// Tenants of one provider that something is remembered about, at most.
const TENANTS_MAX: usize = 4_096;

pub(crate) struct LaneProvider {
    pub(super) slots: CallSlots,
    gates: Mutex<ProviderGates>,
}

/// What the checks know about one provider.
pub(super) struct ProviderGates {
    policy: BreakerPolicy,
    pub(super) pause: Pause,
    pub(super) spread: ThrottleSpread,
    pub(super) breaker: Breaker,
    pub(super) storm: Storm,
    pub(super) concurrency: Concurrency,
    pub(super) pace: Pace,
    /// Tenants about which something is known that does not hold for all.
    pub(super) tenants: HashMap<TenantId, CredentialGates>,
}

/// What the checks know about one tenant's credential at the provider.
pub(super) struct CredentialGates {
    pub(super) pause: Pause,
    pub(super) credential: CredentialBreaker,
}

/// Under which openings of the breakers a call was permitted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BreakerEpochs {
    pub(super) breaker: u32,
    pub(super) credential: Option<u32>,
}

impl LaneProvider {
    pub(super) fn new(ceiling: usize, policy: BreakerPolicy) -> Self {
        let concurrency = Concurrency::new(ceiling);
        Self {
            slots: CallSlots::new(concurrency.limit()),
            gates: Mutex::new(ProviderGates {
                policy,
                pause: Pause::default(),
                spread: ThrottleSpread::default(),
                breaker: Breaker::new(policy),
                storm: Storm::new(&policy),
                concurrency,
                pace: Pace::default(),
                tenants: HashMap::new(),
            }),
        }
    }

    /// Applies other limits from now on.
    pub(super) fn adopt(&self, ceiling: usize, policy: BreakerPolicy) {
        let mut gates = self.gates();
        gates.policy = policy;
        gates.breaker.adopt(policy);
        gates.storm.adopt(&policy);
        gates.tenants.values_mut().for_each(|own| own.credential.adopt(policy));
        gates.concurrency.adopt(ceiling);
        self.slots.set_limit(gates.concurrency.limit());
    }

    pub(super) fn gates(&self) -> MutexGuard<'_, ProviderGates> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is under way to it, and nothing worth remembering is known.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        let gates = self.gates();
        let knows = gates.pace.per_s().is_some() || gates.holds_every_lane(now);
        self.slots.in_flight() == 0 && !knows
    }
}

impl ProviderGates {
    /// Whether no lane of the provider may go, whosever it is.
    pub(super) fn holds_every_lane(&self, now: Timestamp) -> bool {
        self.pause.until(now).is_some() || self.breaker.may_pass(now).is_err()
    }

    pub(super) fn tenant(&mut self, tenant: &TenantId, now: Timestamp) -> &mut CredentialGates {
        if self.tenants.len() >= TENANTS_MAX && !self.tenants.contains_key(tenant) {
            self.tenants.retain(|_, own| !own.is_forgettable(now));
            if self.tenants.len() >= TENANTS_MAX {
                // Forgetting costs a few calls that are refused again; no bound would cost memory.
                self.tenants.clear();
            }
        }
        let (policy, breaker) = (self.policy, self.breaker.state());
        self.tenants.entry(tenant.clone()).or_insert_with(|| {
            let mut credential = CredentialBreaker::new(policy);
            credential.believe_gone(breaker == BreakerState::ForcedClosed);
            CredentialGates { pause: Pause::default(), credential }
        })
    }
}

impl CredentialGates {
    fn is_forgettable(&mut self, now: Timestamp) -> bool {
        self.pause.until(now).is_none() && self.credential.is_forgettable(now)
    }
}

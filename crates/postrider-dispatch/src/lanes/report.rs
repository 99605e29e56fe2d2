//! A lane as people are shown it: every gate's verdict at this moment, in words. Changes nothing.

use std::sync::Arc;

use postrider_core::policy::breaker::BreakerState;
use postrider_core::{AddressHash, ChannelKind, Gate, LaneKey, LaneState, Timestamp};

use super::checks::LaneContext;
use super::{LaneProvider, Lanes, ProviderKey, provider_key};

/// What one gate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateVerdict {
    pub gate: Gate,
    pub open: bool,
    pub until: Option<Timestamp>,
    pub detail: String,
}

/// The state of a lane and of its gates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneReport {
    pub state: LaneState,
    /// In the order in which they are asked.
    pub gates: Vec<GateVerdict>,
    pub breaker: BreakerState,
    /// Calls under way to the lane's provider, of all its lanes.
    pub provider_in_flight: usize,
    pub provider_limit: usize,
}

/// Why calls to one address are put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressRest {
    /// It failed so often in a row while so many others of the tenant there work.
    Sick { failures: u32, others_well: usize },
    /// It asked to be left alone.
    AskedToWait,
    /// Its answers take long, and so many of the places for long calls are in use.
    Slow { used: usize, of: usize },
}

impl GateVerdict {
    /// Closed until that time, or open if there is none.
    pub(super) fn until(gate: Gate, until: Option<Timestamp>, detail: String) -> Self {
        Self { gate, open: until.is_none(), until, detail }
    }

    /// Closed if it holds the lane.
    pub(super) fn of(gate: Gate, held: Option<LaneState>, detail: String) -> Self {
        let until = match held {
            Some(LaneState::Waiting { until, .. }) => Some(until),
            _ => None,
        };
        Self { gate, open: held.is_none(), until, detail }
    }

    fn state(&self) -> LaneState {
        match (self.open, self.until) {
            (true, _) => LaneState::Ready,
            (false, Some(until)) => LaneState::Waiting { on: self.gate, until },
            (false, None) => LaneState::Blocked { on: self.gate },
        }
    }
}

impl LaneReport {
    /// The first gate that does not let the lane pass.
    pub fn held_by(&self) -> Option<&GateVerdict> {
        self.gates.iter().find(|verdict| !verdict.open)
    }
}

impl Lanes {
    pub fn report(&self, lane: &LaneKey) -> LaneReport {
        let known = self.providers().get(&provider_key(lane)).cloned();
        // A provider that nobody has called yet is reported as a new one.
        let provider = known.unwrap_or_else(|| self.new_provider(lane));
        let priority = self.policies.now().class_or_default(&lane.class).priority;
        let mut context = LaneContext::new(self, lane, &provider, self.clock.now());
        context.count_free_places(priority, 0);
        let gates = context.verdicts();
        let (provider_in_flight, provider_limit) = context.in_flight_and_limit();
        drop(context);
        let held = gates.iter().find(|verdict| !verdict.open);
        let breaker = breaker_state(&provider, lane);
        LaneReport {
            state: held.map_or(LaneState::Ready, GateVerdict::state),
            gates,
            breaker,
            provider_in_flight,
            provider_limit,
        }
    }

    /// Why calls to this address are put off at this moment, if they are.
    pub fn address_rest(&self, lane: &LaneKey, address: AddressHash) -> Option<AddressRest> {
        let (now, target) = (self.clock.now(), address.number());
        let provider = self.providers().get(&provider_key(lane)).cloned()?;
        let gates = provider.gates();
        let health = &gates.known_trouble(&lane.tenant)?.health;
        let known = health.addresses.condition(target)?;
        let of = gates.limit.long_places(now);
        if known.is_sick {
            let others = health.votes_of_others(target, now);
            let others_well = others.voters - others.bad;
            return Some(AddressRest::Sick { failures: known.failures, others_well });
        }
        if known.until > now {
            return Some(AddressRest::AskedToWait);
        }
        let is_full = of > 0 && gates.places.free_long(of) == 0;
        (known.is_slow && is_full).then(|| AddressRest::Slow { used: gates.places.long(), of })
    }

    /// What providers seem to take per second of one tenant, where they ever complained: the slowest.
    pub fn paces(&self) -> Vec<(ChannelKind, Arc<str>, f64)> {
        let learned = |(key, provider): (&ProviderKey, &Arc<LaneProvider>)| {
            let gates = provider.gates();
            let troubles = gates.tenants.values().filter_map(|own| own.trouble.as_deref());
            let slowest = troubles.filter_map(|own| own.pace.per_s()).min_by(f64::total_cmp)?;
            Some((key.0, key.1.clone(), slowest))
        };
        self.providers().iter().filter_map(learned).collect()
    }
}

/// The breaker of the provider, or of the lane's tenant there.
fn breaker_state(provider: &LaneProvider, lane: &LaneKey) -> BreakerState {
    let gates = provider.gates();
    let own = gates.known_trouble(&lane.tenant).map(|own| own.breaker.state());
    match gates.breaker.state() {
        BreakerState::Closed => own.unwrap_or(BreakerState::Closed),
        state => state,
    }
}

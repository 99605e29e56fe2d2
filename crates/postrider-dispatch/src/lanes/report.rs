//! A lane as people are shown it: every gate's verdict at this moment, in words. Changes nothing.

use std::sync::Arc;

use postrider_core::policy::breaker::BreakerState;
use postrider_core::{ChannelKind, Gate, LaneKey, LaneState, Timestamp};

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
        context.free_slots = provider.slots.free(priority);
        let gates = context.verdicts();
        drop(context);
        let held = gates.iter().find(|verdict| !verdict.open);
        let breaker = provider.gates().breaker.state();
        LaneReport {
            state: held.map_or(LaneState::Ready, GateVerdict::state),
            gates,
            breaker,
            provider_in_flight: provider.slots.in_flight(),
            provider_limit: provider.slots.limit(),
        }
    }

    /// What providers seem to take per second, where they ever complained.
    pub fn paces(&self) -> Vec<(ChannelKind, Arc<str>, f64)> {
        let learned = |(key, provider): (&ProviderKey, &Arc<LaneProvider>)| {
            Some((key.0, key.1.clone(), provider.gates().pace.per_s()?))
        };
        self.providers().iter().filter_map(learned).collect()
    }
}

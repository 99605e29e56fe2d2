//! Counts per tenant, maintained with every change and never counted. What is in flight is known
//! here only: a lease is not stored.

use std::collections::BTreeMap;

use postrider_core::delivery::DeadReason;
use postrider_core::store::Counts;
use postrider_core::{State, TenantId};
use serde::{Deserialize, Serialize};

const STATES: usize = State::ALL.len();
const REASONS: usize = DeadReason::ALL.len();

/// Absolute numbers, or differences.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Numbers {
    messages: i64,
    states: BTreeMap<State, i64>,
    dead: BTreeMap<DeadReason, i64>,
}

/// Differences made by one transaction, in arrays because they are made per delivery.
#[derive(Debug, Clone, Default)]
pub(super) struct Delta {
    pub(super) messages: i64,
    states: [i64; STATES],
    dead: [i64; REASONS],
}

impl Delta {
    pub(super) fn add(&mut self, state: State, by: i64) {
        self.states[usize::from(state.code())] += by;
    }

    pub(super) fn add_dead(&mut self, reason: DeadReason, by: i64) {
        self.dead[usize::from(reason.code())] += by;
    }
}

impl Numbers {
    pub(super) fn plus(&self, delta: &Delta) -> Self {
        let mut sum = self.clone();
        sum.messages += delta.messages;
        for (&state, by) in State::ALL.iter().zip(delta.states).filter(|(_, by)| *by != 0) {
            *sum.states.entry(state).or_default() += by;
        }
        for (&reason, by) in DeadReason::ALL.iter().zip(delta.dead).filter(|(_, by)| *by != 0) {
            *sum.dead.entry(reason).or_default() += by;
        }
        sum
    }
}

/// One tenant's numbers.
#[derive(Debug, Clone)]
pub(super) struct Tenant {
    pub(super) name: TenantId,
    pub(super) numbers: Numbers,
    /// Leased now, by the state that is stored.
    flying: [i64; STATES],
}

impl Tenant {
    pub(super) fn new(name: TenantId, numbers: Numbers) -> Self {
        Self { name, numbers, flying: [0; STATES] }
    }

    pub(super) fn fly(&mut self, stored: State, by: i64) {
        self.flying[usize::from(stored.code())] += by;
    }

    pub(super) fn add_to(&self, counts: &mut Counts) {
        let mut sending = 0;
        for (&state, &flying) in State::ALL.iter().zip(&self.flying) {
            let stored = self.numbers.states.get(&state).copied().unwrap_or(0);
            add(&mut counts.states, state, stored - flying);
            sending += flying;
        }
        add(&mut counts.states, State::Sending, sending);
        for (&reason, &number) in &self.numbers.dead {
            add(&mut counts.dead, reason, number);
        }
        counts.messages += u64::try_from(self.numbers.messages).unwrap_or(0);
    }
}

fn add<K: Ord>(map: &mut BTreeMap<K, u64>, key: K, by: i64) {
    match u64::try_from(by) {
        Ok(0) | Err(_) => {}
        Ok(by) => *map.entry(key).or_default() += by,
    }
}

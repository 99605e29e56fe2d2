//! Counts per tenant, kept up to date with every change. Only this module knows what is in flight: leases
//! are not stored.

use std::collections::{BTreeMap, HashMap};

use postrider_core::ports::store::{Counts, Load};
use postrider_core::{DeadReason, State, TenantId};
use serde::{Deserialize, Serialize};

const STATES: usize = State::ALL.len();
const REASONS: usize = DeadReason::ALL.len();

/// The counts of one tenant, as they are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TenantTotals {
    messages: i64,
    /// Bytes of pending bodies and addresses.
    #[serde(default)]
    bytes: i64,
    states: BTreeMap<State, i64>,
    dead: BTreeMap<DeadReason, i64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    held: i64,
}

/// What one transaction adds and takes away. Arrays, because every delivery changes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountChange {
    #[serde(rename = "m", default, skip_serializing_if = "is_zero")]
    pub(crate) messages: i64,
    #[serde(rename = "b", default, skip_serializing_if = "is_zero")]
    pub(crate) bytes: i64,
    #[serde(rename = "h", default, skip_serializing_if = "is_zero")]
    pub(crate) held: i64,
    /// By the code of the state.
    #[serde(rename = "s")]
    states: [i64; STATES],
    /// By the code of the reason.
    #[serde(rename = "d", default, skip_serializing_if = "are_zero")]
    dead: [i64; REASONS],
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn are_zero(numbers: &[i64; REASONS]) -> bool {
    numbers.iter().all(is_zero)
}

impl CountChange {
    pub(crate) fn add(&mut self, state: State, by: i64) {
        self.states[usize::from(state.code())] += by;
    }

    pub(crate) fn add_dead(&mut self, reason: DeadReason, by: i64) {
        self.dead[usize::from(reason.code())] += by;
    }
}

impl TenantTotals {
    pub(crate) fn plus(&self, delta: &CountChange) -> Self {
        let mut sum = self.clone();
        sum.messages += delta.messages;
        sum.bytes += delta.bytes;
        sum.held += delta.held;
        for (&state, by) in State::ALL.iter().zip(delta.states).filter(|(_, by)| *by != 0) {
            *sum.states.entry(state).or_default() += by;
        }
        for (&reason, by) in DeadReason::ALL.iter().zip(delta.dead).filter(|(_, by)| *by != 0) {
            *sum.dead.entry(reason).or_default() += by;
        }
        sum
    }
}

/// A tenant with its counts.
#[derive(Debug, Clone)]
pub(crate) struct TenantCounts {
    pub(crate) name: TenantId,
    pub(crate) totals: TenantTotals,
    /// Deliveries in flight, by their stored state.
    in_flight: [i64; STATES],
}

impl TenantCounts {
    fn load(&self) -> Load {
        let count = |state: &State| self.totals.states.get(state).copied().unwrap_or(0);
        let pending: i64 = State::ALL.iter().filter(|s| s.is_pending()).map(count).sum();
        Load {
            deliveries: u64::try_from(pending).unwrap_or(0),
            bytes: u64::try_from(self.totals.bytes).unwrap_or(0),
        }
    }

    pub(crate) fn add_in_flight(&mut self, stored: State, by: i64) {
        self.in_flight[usize::from(stored.code())] += by;
    }

    pub(crate) fn add_to(&self, counts: &mut Counts) {
        let mut sending = 0;
        for (&state, &in_flight) in State::ALL.iter().zip(&self.in_flight) {
            let stored = self.totals.states.get(&state).copied().unwrap_or(0);
            add(&mut counts.states, state, stored - in_flight);
            sending += in_flight;
        }
        add(&mut counts.states, State::Sending, sending);
        for (&reason, &number) in &self.totals.dead {
            add(&mut counts.dead, reason, number);
        }
        counts.messages += u64::try_from(self.totals.messages).unwrap_or(0);
        counts.held += u64::try_from(self.totals.held).unwrap_or(0);
    }
}

/// All tenants, by number.
#[derive(Default)]
pub(crate) struct TenantTable {
    all: Vec<TenantCounts>,
    numbers: HashMap<TenantId, usize>,
    load: Load,
    held: i64,
}

impl TenantTable {
    pub(crate) fn push(&mut self, name: TenantId, totals: TenantTotals) {
        self.numbers.insert(name.clone(), self.all.len());
        let none = TenantTotals::default();
        self.all.push(TenantCounts { name, totals: none, in_flight: [0; STATES] });
        self.set(self.all.len() - 1, totals);
    }

    pub(crate) fn number(&self, name: &TenantId) -> Option<u32> {
        self.numbers.get(name).and_then(|number| u32::try_from(*number).ok())
    }

    pub(crate) fn get(&self, tenant: u32) -> Option<&TenantCounts> {
        self.all.get(tenant as usize)
    }

    pub(crate) fn get_mut(&mut self, tenant: u32) -> Option<&mut TenantCounts> {
        self.all.get_mut(tenant as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &TenantCounts> {
        self.all.iter()
    }

    pub(crate) fn set(&mut self, tenant: usize, totals: TenantTotals) {
        let Some(tenant) = self.all.get_mut(tenant) else { return };
        let before = tenant.load();
        self.held += totals.held - tenant.totals.held;
        tenant.totals = totals;
        let after = tenant.load();
        self.load.deliveries = self.load.deliveries + after.deliveries - before.deliveries;
        self.load.bytes = self.load.bytes + after.bytes - before.bytes;
    }

    /// Held deliveries of all tenants.
    pub(crate) fn held(&self) -> u64 {
        u64::try_from(self.held).unwrap_or(0)
    }

    pub(crate) fn load(&self, tenant: Option<&TenantId>) -> Load {
        let Some(name) = tenant else { return self.load };
        let found = self.numbers.get(name).and_then(|number| self.all.get(*number));
        found.map_or_else(Load::default, TenantCounts::load)
    }
}

fn add<K: Ord>(map: &mut BTreeMap<K, u64>, key: K, by: i64) {
    match u64::try_from(by) {
        Ok(0) | Err(_) => {}
        Ok(by) => *map.entry(key).or_default() += by,
    }
}

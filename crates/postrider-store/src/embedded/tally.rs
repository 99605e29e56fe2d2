//! Counts per tenant, maintained with every change and never counted. What is in flight is known
//! here only: a lease is not stored.

use std::collections::{BTreeMap, HashMap};

use postrider_core::model::delivery::DeadReason;
use postrider_core::ports::store::{Counts, Load};
use postrider_core::{State, TenantId};
use serde::{Deserialize, Serialize};

const STATES: usize = State::ALL.len();
const REASONS: usize = DeadReason::ALL.len();

/// Absolute numbers, or differences.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Numbers {
    messages: i64,
    /// Of what is pending: bodies and addresses.
    #[serde(default)]
    bytes: i64,
    states: BTreeMap<State, i64>,
    dead: BTreeMap<DeadReason, i64>,
}

/// Differences made by one transaction, in arrays because they are made per delivery.
#[derive(Debug, Clone, Default)]
pub(super) struct Delta {
    pub(super) messages: i64,
    pub(super) bytes: i64,
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
        sum.bytes += delta.bytes;
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
    fn new(name: TenantId, numbers: Numbers) -> Self {
        Self { name, numbers, flying: [0; STATES] }
    }

    fn load(&self) -> Load {
        let count = |state: &State| self.numbers.states.get(state).copied().unwrap_or(0);
        let pending: i64 = State::ALL.iter().filter(|s| s.is_pending()).map(count).sum();
        Load {
            deliveries: u64::try_from(pending).unwrap_or(0),
            bytes: u64::try_from(self.numbers.bytes).unwrap_or(0),
        }
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

/// All tenants by number.
#[derive(Default)]
pub(super) struct Tenants {
    all: Vec<Tenant>,
    numbers: HashMap<TenantId, usize>,
    load: Load,
}

impl Tenants {
    pub(super) fn push(&mut self, name: TenantId, numbers: Numbers) {
        self.numbers.insert(name.clone(), self.all.len());
        self.all.push(Tenant::new(name, Numbers::default()));
        self.set(self.all.len() - 1, numbers);
    }

    pub(super) fn get(&self, tenant: u32) -> Option<&Tenant> {
        self.all.get(tenant as usize)
    }

    pub(super) fn get_mut(&mut self, tenant: u32) -> Option<&mut Tenant> {
        self.all.get_mut(tenant as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tenant> {
        self.all.iter()
    }

    pub(super) fn set(&mut self, tenant: usize, numbers: Numbers) {
        let Some(tenant) = self.all.get_mut(tenant) else { return };
        let before = tenant.load();
        tenant.numbers = numbers;
        let after = tenant.load();
        self.load.deliveries = self.load.deliveries + after.deliveries - before.deliveries;
        self.load.bytes = self.load.bytes + after.bytes - before.bytes;
    }

    pub(super) fn load(&self, tenant: Option<&TenantId>) -> Load {
        let Some(name) = tenant else { return self.load };
        let found = self.numbers.get(name).and_then(|number| self.all.get(*number));
        found.map_or_else(Load::default, Tenant::load)
    }
}

fn add<K: Ord>(map: &mut BTreeMap<K, u64>, key: K, by: i64) {
    match u64::try_from(by) {
        Ok(0) | Err(_) => {}
        Ok(by) => *map.entry(key).or_default() += by,
    }
}

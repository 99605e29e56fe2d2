//! Room for more work, of the server and of each tenant. Messages on their way to the disk count as
//! pending, so that concurrent callers cannot exceed the capacity together.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::policy::backpressure::{
    ALARM_AT, Alarm, Capacity, Crossing, Drain, retry_after,
};
use postrider_core::ports::store::{Load, Store};
use postrider_core::{TenantId, Timestamp};

use super::refusal::{CapacityOwner, IntakeRefusal};
use crate::jitter_rng::JitterRng;
use crate::policies::Capacities;

/// Beyond this many, tenants without messages on their way to the disk are forgotten.
const TENANTS_MAX: usize = 10_000;
/// How long the store's count is used while it is far from full.
const BELIEVED: Duration = Duration::from_secs(1);

pub(super) struct IntakeRoom {
    accounts: Mutex<RoomAccounts>,
    random: JitterRng,
}

#[derive(Default)]
struct RoomAccounts {
    server: LoadAccount,
    tenants: HashMap<TenantId, LoadAccount>,
}

#[derive(Default)]
struct LoadAccount {
    /// Pending by the store's count ...
    known: Load,
    asked_at: Option<Timestamp>,
    /// ... and accepted since that count.
    since: Load,
    /// On its way to the disk.
    under_way: Load,
    accepted: Load,
    drain: Drain,
    alarm: Alarm,
}

/// Room that was taken for one batch. Dropping it gives back what was not [used](Self::used).
pub(super) struct RoomReservation<'a> {
    room: &'a IntakeRoom,
    tenant: &'a TenantId,
    load: Load,
    accepted: Load,
}

impl IntakeRoom {
    pub(super) fn new(seed: u64) -> Self {
        Self { accounts: Mutex::default(), random: JitterRng::new(seed) }
    }

    /// Takes room for as many of the messages as there is room for, each on its own.
    pub(super) fn take<'a>(
        &'a self,
        store: &dyn Store,
        capacities: &Capacities,
        tenant: &'a TenantId,
        messages: &[Load],
        now: Timestamp,
    ) -> (Vec<Result<(), IntakeRefusal>>, RoomReservation<'a>) {
        let mut accounts = self.accounts();
        let RoomAccounts { server, tenants } = &mut *accounts;
        if tenants.len() >= TENANTS_MAX && !tenants.contains_key(tenant) {
            tenants.retain(|_, account| account.under_way != Load::default());
        }
        let own = tenants.entry(tenant.clone()).or_default();
        let (whole, share) = (capacities.server, capacities.of(tenant));
        let asked = messages.iter().fold(Load::default(), |sum, load| plus(sum, *load));
        server.refresh(&whole, asked, now, || store.load(None));
        own.refresh(&share, asked, now, || store.load(Some(tenant)));
        let usable = capacities.server_for(tenant);
        let mut taken = Load::default();
        let verdicts = messages
            .iter()
            .map(|more| {
                own.room_for(&share, *more, CapacityOwner::Tenant, &self.random)?;
                server.room_for(&usable, *more, CapacityOwner::Server, &self.random)?;
                for account in [&mut *own, &mut *server] {
                    account.under_way = plus(account.under_way, *more);
                }
                taken = plus(taken, *more);
                Ok(())
            })
            .collect();
        own.alarm(&share, Some(tenant));
        server.alarm(&whole, None);
        (verdicts, RoomReservation { room: self, tenant, load: taken, accepted: Load::default() })
    }

    fn accounts(&self) -> MutexGuard<'_, RoomAccounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RoomReservation<'_> {
    /// Ends it: this part of it was accepted.
    pub(super) fn used(mut self, accepted: Load) {
        self.accepted = accepted;
    }
}

impl Drop for RoomReservation<'_> {
    fn drop(&mut self) {
        let mut accounts = self.room.accounts();
        let RoomAccounts { server, tenants } = &mut *accounts;
        for account in tenants.get_mut(self.tenant).into_iter().chain([server]) {
            account.since = plus(account.since, self.accepted);
            account.accepted = plus(account.accepted, self.accepted);
            account.under_way = minus(account.under_way, self.load);
        }
    }
}

impl LoadAccount {
    fn pending(&self) -> Load {
        plus(plus(self.known, self.since), self.under_way)
    }

    /// Asks the store again where that can matter.
    fn refresh(
        &mut self,
        capacity: &Capacity,
        more: Load,
        now: Timestamp,
        load: impl FnOnce() -> Load,
    ) {
        let fresh = |at: Timestamp| now >= at && now.since(at) < BELIEVED;
        let near = capacity.fill(plus(self.pending(), more)) >= ALARM_AT;
        if self.asked_at.is_some_and(fresh) && !near {
            return;
        }
        (self.known, self.since, self.asked_at) = (load(), Load::default(), Some(now));
        self.drain.observe(self.accepted, self.known, now);
    }

    fn room_for(
        &self,
        capacity: &Capacity,
        more: Load,
        owner: CapacityOwner,
        random: &JitterRng,
    ) -> Result<(), IntakeRefusal> {
        let Some(excess) = capacity.excess(self.pending(), more) else { return Ok(()) };
        if capacity.excess(Load::default(), more).is_some() {
            return Err(IntakeRefusal::never_fits(capacity, more, owner));
        }
        let wait = retry_after(excess, self.drain.speed(), random.next());
        Err(IntakeRefusal::full(owner, wait))
    }

    fn alarm(&mut self, capacity: &Capacity, tenant: Option<&TenantId>) {
        let fill = capacity.fill(self.pending());
        let (percent, of) = ((fill * 100.0) as u64, tenant.map_or("server", TenantId::as_str));
        match self.alarm.look(fill) {
            Some(Crossing::NearlyFull) => {
                tracing::warn!(
                    of,
                    percent,
                    "capacity is nearly used up; beyond it new work gets 429"
                );
            }
            Some(Crossing::Eased) => tracing::info!(of, percent, "capacity is there again"),
            None => {}
        }
    }
}

fn plus(a: Load, b: Load) -> Load {
    Load {
        deliveries: a.deliveries.saturating_add(b.deliveries),
        bytes: a.bytes.saturating_add(b.bytes),
    }
}

fn minus(a: Load, b: Load) -> Load {
    Load {
        deliveries: a.deliveries.saturating_sub(b.deliveries),
        bytes: a.bytes.saturating_sub(b.bytes),
    }
}

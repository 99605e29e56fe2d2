//! What every lane may do at this moment and what it waits for: shared by the dispatcher, which asks
//! before it leases and tells how calls ended, and by whoever shows it to people or acts for them.
//! Leases nothing and sends nothing itself.

mod budgets;
mod orders;
mod origin;
mod pass;
mod rates;
mod resting;
mod standing;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::breaker::Forced;
use postrider_core::fairness::places;
use postrider_core::message::Priority;
use postrider_core::throttle::Pause;
use postrider_core::{
    ChannelKind, Clock, Hold, LaneId, LaneKey, LaneState, Signal, TenantId, Timestamp,
};
use tokio::sync::Notify;

use crate::dispatcher::Limits;
use crate::policies::{Policies, Policy};
use crate::roll::Roll;
use budgets::{Allowance, Budgets};
use orders::Orders;
pub use orders::{ForcedBreaker, Order, PausedLane};
pub use origin::LaneEvent;
pub(crate) use origin::{Aftermath, Lesson, Origin};
pub(crate) use pass::{Pass, Ticket};
use rates::Rates;
pub(crate) use resting::Resting;
pub use standing::{Standing, Verdict};

/// Idle origins are forgotten beyond this many.
const ORIGINS_MAX: usize = 10_000;
const PER_ORIGIN_DEFAULT: usize = 64;

/// How long a call that ended may wait for others to end before its place is given away.
const GATHER: Duration = Duration::from_millis(5);

type OriginKey = (ChannelKind, Arc<str>);

pub struct Lanes {
    clock: Arc<dyn Clock>,
    policies: Arc<Policies>,
    roll: Roll,
    origins: Mutex<HashMap<OriginKey, Arc<Origin>>>,
    budgets: Budgets,
    rates: Arc<Rates>,
    orders: Orders,
    /// Grows whenever waiting lanes may go earlier than was thought.
    acts: AtomicU64,
    wake: Arc<Notify>,
    ended: Notify,
}

impl Lanes {
    pub fn new(policies: Arc<Policies>, clock: Arc<dyn Clock>, seed: u64) -> Arc<Self> {
        let policy = policies.now();
        let wake = Arc::new(Notify::new());
        let weak = Arc::downgrade(&wake);
        clock.on_move(Arc::new(move || {
            if let Some(wake) = weak.upgrade() {
                wake.notify_one();
            }
        }));
        Arc::new(Self {
            clock,
            budgets: Budgets::new(policy.limits.retry_budget),
            rates: Rates::new(policies.clone()),
            policies,
            roll: Roll::new(seed),
            origins: Mutex::default(),
            orders: Orders::default(),
            acts: AtomicU64::new(0),
            wake,
            ended: Notify::new(),
        })
    }

    pub fn policies(&self) -> &Arc<Policies> {
        &self.policies
    }

    /// Lets another policy hold from now on, for everyone who shares these [`Policies`]. What was
    /// learned about providers stays as far as it allows; calls under way end as they would have.
    pub fn adopt(&self, policy: Policy) {
        let policy = Arc::new(policy);
        self.policies.replace(policy.clone());
        self.budgets.adopt(policy.limits.retry_budget);
        self.rates.adopt(&policy.limits, self.clock.now());
        for ((channel, _), origin) in self.origins().iter() {
            origin.adopt(per_origin(&policy.limits, *channel), policy.limits.breaker);
        }
        self.acted();
    }

    /// Asks every gate of the lane for up to `want` calls.
    pub(crate) fn admit(
        &self,
        lane: &Arc<LaneKey>,
        priority: Priority,
        want: usize,
    ) -> Result<Pass, LaneState> {
        let now = self.clock.now();
        if let Some(on) = self.orders.hold(lane) {
            return Err(LaneState::Blocked { on });
        }
        let origin = self.origin(lane, now);
        let places = || places(origin.free(), origin.limit(), priority);
        let mut free = places();
        if free < want {
            origin.want_more();
            // Looked at again: a call may have ended between the look and the note.
            free = places();
        }
        if free == 0 {
            let held = origin.gates().state(Some(&lane.tenant), now);
            return Err(match held {
                LaneState::Ready => LaneState::Blocked { on: Hold::Concurrency },
                held => held,
            });
        }
        let (calls, epochs) = origin.gates().admit(&lane.tenant, want.min(free), now)?;
        match self.rates.take(lane, calls, now) {
            Ok(paced) => {
                let pass = Pass::new(origin, lane.clone(), calls, epochs);
                Ok(pass.paced(paced, self.rates.clone(), now))
            }
            Err(held) => {
                origin.gates().hand_back(&lane.tenant, calls, epochs);
                Err(held)
            }
        }
    }

    /// Counts what is about to be attempted; says how many of the retries the lane may afford.
    pub(crate) fn spend(&self, lane: &Arc<LaneKey>, firsts: usize, retries: usize) -> Allowance {
        self.budgets.spend(lane, firsts, retries, self.clock.now())
    }

    /// The end of a call, with what it taught if there was an answer.
    pub(crate) fn ended(&self, ticket: &Ticket, lesson: Option<Lesson>) -> Aftermath {
        let now = self.clock.now();
        let (origin, tenant) = (&ticket.origin, &ticket.lane.tenant);
        let after = match &lesson {
            Some(lesson) => origin.learn(tenant, lesson, ticket.epochs, now, self.roll.next()),
            None => {
                origin.gates().hand_back(tenant, 1, ticket.epochs);
                Aftermath::default()
            }
        };
        let earns = lesson.is_some_and(|l| l.is_retry && l.signal == Signal::Well);
        if earns && self.budgets.earn(&ticket.lane, now) {
            self.acted();
        }
        if origin.call_ended() || after.eased {
            self.wake.notify_one();
        } else {
            self.ended.notify_one();
        }
        after
    }

    /// Something changed that may let a lane go.
    pub(crate) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Waits until a few places are free. Where the other calls hang, a quarter never will be.
    pub(crate) async fn trickled(&self) {
        self.ended.notified().await;
        tokio::time::sleep(GATHER).await;
    }

    pub(crate) fn acts(&self) -> u64 {
        self.acts.load(Ordering::Acquire)
    }

    /// Leases nothing more from the lane until it is resumed. The first word stands.
    pub fn pause(&self, id: LaneId, key: Arc<LaneKey>, order: Order) -> PausedLane {
        let paused = self.orders.pause_lane(PausedLane { id, key, order });
        self.acted();
        paused
    }

    /// False if it was not paused.
    pub fn resume(&self, key: &LaneKey) -> bool {
        let was_paused = self.orders.resume_lane(key);
        self.acted();
        was_paused
    }

    /// By lane.
    pub fn paused_lanes(&self) -> Vec<PausedLane> {
        self.orders.lanes()
    }

    /// Leases nothing more of the tenant until it is resumed. The first word stands.
    pub fn pause_tenant(&self, tenant: TenantId, order: Order) -> Order {
        let order = self.orders.pause_tenant(tenant, order);
        self.acted();
        order
    }

    /// False if it was not paused.
    pub fn resume_tenant(&self, tenant: &TenantId) -> bool {
        let was_paused = self.orders.resume_tenant(tenant);
        self.acted();
        was_paused
    }

    /// By name.
    pub fn paused_tenants(&self) -> Vec<(TenantId, Order)> {
        self.orders.tenants()
    }

    /// An operator's word about the breaker of a lane's provider; `None` takes it back. `Closed` also
    /// overrules a wish of the provider to be left alone, and the doubt that so many addresses are
    /// gone.
    pub fn force_breaker(&self, lane: &LaneKey, forced: Option<(Forced, Order)>) {
        let now = self.clock.now();
        self.orders.force((lane.channel, lane.provider.clone()), forced.clone());
        let forced = forced.map(|(forced, _)| forced);
        let origin = self.origin(lane, now);
        {
            let mut gates = origin.gates();
            gates.breaker.force(forced);
            if forced == Some(Forced::Closed) {
                gates.pause.lift();
                gates.tenants.values_mut().for_each(|own| own.pause = Pause::default());
            }
            let believe = forced == Some(Forced::Closed);
            gates.tenants.values_mut().for_each(|own| own.credential.believe_gone(believe));
        }
        self.acted();
    }

    /// By channel and provider.
    pub fn forced_breakers(&self) -> Vec<ForcedBreaker> {
        self.orders.breakers_forced()
    }

    /// The tenant has a new credential: what providers refused before is tried again at once.
    pub fn credential_renewed(&self, tenant: &TenantId) {
        for origin in self.origins().values() {
            if let Some(own) = origin.gates().tenants.get_mut(tenant) {
                own.credential.renewed();
            }
        }
        self.acted();
    }

    fn acted(&self) {
        self.acts.fetch_add(1, Ordering::AcqRel);
        self.wake.notify_one();
    }

    fn origins(&self) -> MutexGuard<'_, HashMap<OriginKey, Arc<Origin>>> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn origin(&self, lane: &LaneKey, now: Timestamp) -> Arc<Origin> {
        let mut origins = self.origins();
        let key = (lane.channel, lane.provider.clone());
        if let Some(origin) = origins.get(&key) {
            return origin.clone();
        }
        if origins.len() >= ORIGINS_MAX {
            origins.retain(|_, origin| !origin.is_idle(now));
        }
        let origin = self.new_origin(lane);
        origins.insert(key, origin.clone());
        origin
    }

    fn new_origin(&self, lane: &LaneKey) -> Arc<Origin> {
        let limits = &self.policies.now().limits;
        let origin = Origin::new(per_origin(limits, lane.channel), limits.breaker);
        if let Some((forced, _)) = self.orders.forced(&(lane.channel, lane.provider.clone())) {
            origin.gates().breaker.force(Some(forced));
        }
        Arc::new(origin)
    }
}

fn per_origin(limits: &Limits, channel: ChannelKind) -> usize {
    limits.per_origin.get(&channel).copied().unwrap_or(PER_ORIGIN_DEFAULT)
}

#[cfg(test)]
mod tests;

//! What every lane may do at this moment and what it waits for: shared by the dispatcher, which asks
//! before it leases and tells how calls ended, and by whoever shows it to people or acts for them.
//! Leases nothing and sends nothing itself.

mod budgets;
mod notices;
mod orders;
mod origin;
mod pass;
mod rates;
mod standing;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::model::message::Priority;
use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::policy::throttle::Pause;
use postrider_core::{
    ChannelKind, Clock, Gate, LaneId, LaneKey, LaneState, Signal, TenantId, Timestamp,
};

use crate::dispatcher::DispatchLimits;
use crate::jitter_rng::JitterRng;
use crate::policies::{Policies, Policy};
use budgets::{Allowance, Budgets};
pub(crate) use notices::Notice;
use notices::Notices;
use orders::Orders;
pub use orders::{ForcedBreaker, OperatorOrder, PausedLane};
use origin::Freed;
pub use origin::LaneEvent;
pub(crate) use origin::{Aftermath, Lesson, Origin};
pub(crate) use pass::{Pass, Ticket};
use rates::Rates;
pub use standing::{GateVerdict, LaneReport};

/// Idle origins are forgotten beyond this many.
const ORIGINS_MAX: usize = 10_000;
const PER_ORIGIN_DEFAULT: usize = 64;

/// Names an [`Origin`].
pub(crate) type OriginKey = (ChannelKind, Arc<str>);

/// Why nothing can be sent at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) state: LaneState,
    /// Every lane of the provider would be told the same (of this priority, where it is for want of
    /// a place).
    pub(crate) of_provider: bool,
}

pub struct Lanes {
    clock: Arc<dyn Clock>,
    policies: Arc<Policies>,
    random: JitterRng,
    origins: Mutex<HashMap<OriginKey, Arc<Origin>>>,
    budgets: Budgets,
    rates: Arc<Rates>,
    orders: Orders,
    notices: Notices,
}

impl Lanes {
    pub fn new(policies: Arc<Policies>, clock: Arc<dyn Clock>, seed: u64) -> Arc<Self> {
        let policy = policies.now();
        let notices = Notices::default();
        let weak = Arc::downgrade(notices.waker());
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
            random: JitterRng::new(seed),
            origins: Mutex::default(),
            orders: Orders::default(),
            notices,
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
    ) -> Result<Pass, Refusal> {
        let now = self.clock.now();
        if let Some(on) = self.orders.hold(lane) {
            return Err(Refusal { state: LaneState::Blocked { on }, of_provider: false });
        }
        let origin = self.origin(lane, now);
        let mut free = origin.places(priority);
        if free < want {
            origin.want_more();
            // Looked at again: a call may have ended between the look and the note.
            free = origin.places(priority);
        }
        if free == 0 {
            return Err(origin.full(&lane.tenant, now));
        }
        let (calls, epochs) = origin.admit(&lane.tenant, want.min(free), now)?;
        match self.rates.take(lane, calls, now) {
            Ok(paced) => {
                let pass = Pass::new(origin, lane.clone(), calls, epochs, priority, now);
                Ok(pass.paced(paced, self.rates.clone()))
            }
            Err(state) => {
                origin.gates().hand_back(&lane.tenant, calls, epochs, now);
                let on = Gate::RateLimit;
                let of_provider = matches!(state, LaneState::Waiting { on: at, .. } if at == on);
                Err(Refusal { state, of_provider })
            }
        }
    }

    /// Counts what is about to be attempted; says how many of the retries the lane may afford.
    pub(crate) fn spend(&self, lane: &Arc<LaneKey>, firsts: usize, retries: usize) -> Allowance {
        self.budgets.spend(lane, firsts, retries, self.clock.now())
    }

    /// Whether a call to one address may be made now, or when it may.
    pub(crate) fn address_in_turn(&self, lane: &LaneKey, target: u64) -> Result<(), Timestamp> {
        self.rates.address(lane.channel, target, self.clock.now())
    }

    /// The end of a call, with what it taught if there was an answer.
    pub(crate) fn ended(&self, ticket: &Ticket, lesson: Option<Lesson>) -> Aftermath {
        let now = self.clock.now_rounded_up();
        let (origin, tenant) = (&ticket.origin, &ticket.lane.tenant);
        let after = match &lesson {
            Some(lesson) => origin.learn(tenant, lesson, ticket.epochs, now, self.random.next()),
            None => {
                origin.gates().hand_back(tenant, 1, ticket.epochs, now);
                Aftermath::default()
            }
        };
        let earns = lesson.is_some_and(|l| l.is_retry && l.signal == Signal::Well);
        if earns && self.budgets.earn(&ticket.lane, now) {
            self.notices.post(Notice::Lane(ticket.lane.clone()));
        }
        let provider = || (ticket.lane.channel, ticket.lane.provider.clone());
        match origin.call_ended(ticket.priority) {
            // Also for the worse: whoever waited for a try to end now waits for another time.
            _ if after.eased || after.event.is_some() || lesson.is_none() => {
                self.notices.post(Notice::Eased(provider()));
            }
            Freed::Enough => self.notices.post(Notice::Room(provider())),
            Freed::Few => self.notices.gather(provider(), origin.clone()),
            Freed::Unwanted => {}
        }
        after
    }

    /// What may let lanes go that could not, since this was asked last.
    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.notices.take()
    }

    /// Returns when there are notices, or time was moved by hand.
    pub(crate) async fn changed(&self) {
        self.notices.posted().await;
    }

    /// Returns when a few places have become free, after a moment for others to join them.
    pub(crate) async fn gathered(&self) {
        self.notices.gathered().await;
    }

    /// Leases nothing more from the lane until it is resumed. The first word stands.
    pub fn pause(&self, id: LaneId, key: Arc<LaneKey>, order: OperatorOrder) -> PausedLane {
        self.orders.pause_lane(PausedLane { id, key, order })
    }

    /// False if it was not paused.
    pub fn resume(&self, key: &LaneKey) -> bool {
        let was_paused = self.orders.resume_lane(key);
        self.notices.post(Notice::Lane(Arc::new(key.clone())));
        was_paused
    }

    /// By lane.
    pub fn paused_lanes(&self) -> Vec<PausedLane> {
        self.orders.lanes()
    }

    /// Leases nothing more of the tenant until it is resumed. The first word stands.
    pub fn pause_tenant(&self, tenant: TenantId, order: OperatorOrder) -> OperatorOrder {
        self.orders.pause_tenant(tenant, order)
    }

    /// False if it was not paused.
    pub fn resume_tenant(&self, tenant: &TenantId) -> bool {
        let was_paused = self.orders.resume_tenant(tenant);
        self.acted();
        was_paused
    }

    /// By name.
    pub fn paused_tenants(&self) -> Vec<(TenantId, OperatorOrder)> {
        self.orders.tenants()
    }

    /// An operator's word about the breaker of a lane's provider; `None` takes it back. `Closed` also
    /// overrules a wish of the provider to be left alone, and the doubt that so many addresses are
    /// gone.
    pub fn force_breaker(&self, lane: &LaneKey, forced: Option<(BreakerOverride, OperatorOrder)>) {
        let now = self.clock.now();
        self.orders.force((lane.channel, lane.provider.clone()), forced.clone());
        let forced = forced.map(|(forced, _)| forced);
        let origin = self.origin(lane, now);
        {
            let mut gates = origin.gates();
            gates.breaker.force(forced);
            if forced == Some(BreakerOverride::Closed) {
                gates.pause.lift();
                gates.tenants.values_mut().for_each(|own| own.pause = Pause::default());
            }
            let believe = forced == Some(BreakerOverride::Closed);
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
        self.notices.post(Notice::All);
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

fn per_origin(limits: &DispatchLimits, channel: ChannelKind) -> usize {
    limits.per_origin.get(&channel).copied().unwrap_or(PER_ORIGIN_DEFAULT)
}

#[cfg(test)]
mod tests;

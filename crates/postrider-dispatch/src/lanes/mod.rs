//! What every lane may do at this moment and what it waits for. The dispatcher asks before it leases and
//! tells how calls ended; the API shows it and passes on what operators order. Leases and sends nothing.

mod accounts;
mod address_rest;
mod call;
mod checks;
mod global;
mod health_news;
mod operator;
mod own_places;
mod permit;
mod provider;
mod rate_level;
mod rate_limits;
mod report;
mod retry_budgets;
mod wakeups;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::model::message::Priority;
use postrider_core::policy::address_room::AddressRoom;
use postrider_core::policy::address_turns::{AddressTurns, SlowRoom};
use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::policy::fairness::WeightPart;
use postrider_core::policy::throttle::Pause;
use postrider_core::policy::work_share::WorkShare;
use postrider_core::{ChannelKind, Clock, Gate, LaneKey, LaneState, TenantId, Timestamp};

use crate::jitter_rng::JitterRng;
use crate::limits::DispatchLimits;
use crate::policies::{Policies, Policy};
use accounts::LaneChannels;
pub(crate) use accounts::LaneRoute;
pub use address_rest::{AddressRest, SlowPlaces};
pub use call::{BreakerScope, LaneEvent};
pub(crate) use call::{CallEffect, CallResult};
use checks::LaneContext;
pub use checks::gates;
use global::GlobalCalls;
use health_news::HealthNews;
pub use health_news::OriginNews;
use operator::OperatorOrders;
pub use operator::{OperatorOrder, PausedLane, PausedProvider};
pub use own_places::{LongPlaceUse, OwnPlaceWait, OwnShortage};
use permit::CallPermit;
pub(crate) use permit::{CallTicket, LanePermit};
use provider::{FreedPlaces, LaneProvider};
use rate_limits::RateLimits;
pub use report::{GateVerdict, LaneReport, LongPlaceHolder, ProviderFigures};
pub(crate) use retry_budgets::RetryAllowance;
use retry_budgets::RetryBudgets;
pub(crate) use wakeups::Wakeup;
use wakeups::Wakeups;

/// Beyond this many, idle providers are forgotten.
const PROVIDERS_MAX: usize = 10_000;
/// How long a shortage of ours is shown as the reason of a wait: its deliveries are tried again sooner.
const SHORTAGE_SHOWN: Duration = Duration::from_secs(2);
const PER_ORIGIN_DEFAULT: usize = 256;

/// Names a [`LaneProvider`]: an origin, or an account.
pub(crate) type ProviderKey = (ChannelKind, Arc<str>);

pub(crate) fn provider_key(lane: &LaneKey) -> ProviderKey {
    (lane.channel, lane.provider.clone())
}

/// Why nothing can be sent at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneRefusal {
    pub(crate) state: LaneState,
    /// Every lane of the provider would be told the same (of this priority, where no slot is free).
    pub(crate) of_provider: bool,
    /// The free slots are for other tenants that wait.
    pub(crate) holds_part: bool,
}

pub struct Lanes {
    clock: Arc<dyn Clock>,
    policies: Arc<Policies>,
    random: JitterRng,
    providers: Mutex<HashMap<ProviderKey, Arc<LaneProvider>>>,
    /// So many providers are remembered before some are forgotten.
    providers_max: AtomicUsize,
    budgets: RetryBudgets,
    rates: RateLimits,
    global: GlobalCalls,
    address_room: Arc<AddressRoom>,
    operator: OperatorOrders,
    shortage: Mutex<Option<(Timestamp, OwnShortage)>>,
    channels: Arc<LaneChannels>,
    share: Arc<WorkShare>,
    health: HealthNews,
    /// Events that no call's end caused, until somebody passes them on.
    events: Mutex<Vec<(LaneKey, LaneEvent)>>,
    pub(crate) wakeups: Wakeups,
}

impl Lanes {
    pub fn new(policies: Arc<Policies>, clock: Arc<dyn Clock>, seed: u64) -> Arc<Self> {
        let policy = policies.now();
        let channels = Arc::<LaneChannels>::default();
        let wakeups = Wakeups::default();
        let weak = Arc::downgrade(wakeups.waker());
        clock.on_move(Arc::new(move || {
            if let Some(wake) = weak.upgrade() {
                wake.notify_one();
            }
        }));
        Arc::new(Self {
            clock,
            budgets: RetryBudgets::new(policy.limits.retry_budget),
            rates: RateLimits::new(policies.clone(), channels.clone()),
            global: GlobalCalls::default(),
            address_room: Arc::default(),
            policies,
            random: JitterRng::new(seed),
            providers: Mutex::default(),
            providers_max: AtomicUsize::new(PROVIDERS_MAX),
            operator: OperatorOrders::default(),
            shortage: Mutex::default(),
            channels,
            share: Arc::default(),
            health: HealthNews::default(),
            events: Mutex::default(),
            wakeups,
        })
    }

    pub fn policies(&self) -> &Arc<Policies> {
        &self.policies
    }

    /// Applies another policy from now on, for everyone who shares these [`Policies`]. What was learned
    /// about providers stays where the new policy allows; calls under way end as they would have.
    pub fn adopt(&self, policy: Policy) {
        let policy = Arc::new(policy);
        self.policies.replace(policy.clone());
        self.budgets.adopt(policy.limits.retry_budget);
        self.rates.adopt(&policy.limits, self.clock.now());
        self.adopt_ceilings(&policy.limits);
        self.acted();
    }

    fn adopt_ceilings(&self, limits: &DispatchLimits) {
        for (key, provider) in self.providers().iter() {
            provider.adopt(self.ceiling(limits, key), limits.breaker);
        }
    }

    /// Calls under way to one origin; this worker's part of them, if all workers send there.
    fn ceiling(&self, limits: &DispatchLimits, (channel, origin): &ProviderKey) -> usize {
        let ceiling = limits.per_origin.get(channel).copied().unwrap_or(PER_ORIGIN_DEFAULT);
        let is_wide = self.channels.is_wide(*channel, origin);
        if is_wide { self.share.of_count(ceiling) } else { ceiling }
    }

    /// Asks every check of the lane for up to `want` calls by this route. `part` is that of its tenant among those that
    /// wait for the provider.
    pub(crate) fn admit(
        self: &Arc<Self>,
        lane: &Arc<LaneKey>,
        route: &LaneRoute,
        priority: Priority,
        want: usize,
        part: WeightPart,
    ) -> Result<LanePermit, LaneRefusal> {
        if let Some(refusal) = route.refusal {
            return Err(refusal);
        }
        let now = self.clock.now();
        let provider = self.provider(&route.provider, now);
        let mut context = LaneContext::new(self, lane, &provider, now);
        context.random = self.random.next();
        context.advance();
        context.count_free_places(priority, want, part);
        let admitted = context.admit(want);
        let own_wait = context.own_wait.filter(|_| want > 0);
        drop(context);
        if let (Err(LaneRefusal { state, .. }), Some(places)) = (&admitted, own_wait)
            && state.gate() == Some(Gate::Concurrency)
        {
            let weight = self.policies.now().limits.weights.get(&lane.tenant).copied();
            let (tenant, weight) = (provider::number(&lane.tenant), weight.unwrap_or(1.0));
            self.global.wait(places, tenant, weight, lane.clone(), priority);
        }
        let (calls, epochs) = admitted?;
        self.global.found(lane);
        let (lanes, lane, account) = (self.clone(), lane.clone(), route.account.clone());
        let call = CallPermit { lanes, provider, account, lane, epochs, priority };
        Ok(LanePermit { call: Arc::new(call), calls, at: now })
    }

    /// Counts what is about to be attempted; says how many of the retries fit the lane's budget.
    pub(crate) fn spend(
        &self,
        lane: &Arc<LaneKey>,
        firsts: usize,
        retries: usize,
    ) -> RetryAllowance {
        self.budgets.spend(lane, firsts, retries, self.clock.now())
    }

    /// Until when each of these addresses is left alone, where that is so.
    fn rests(
        &self,
        tenant: &TenantId,
        provider: &LaneProvider,
        targets: impl Iterator<Item = u64>,
    ) -> Vec<Option<Timestamp>> {
        let now = self.clock.now();
        let mut gates = provider.gates();
        let number = provider::number(tenant);
        if gates.known_trouble(tenant).is_none() && gates.places.overdue_of(number) == 0 {
            return Vec::new();
        }
        let sick = gates.sick_calls.room(number, now);
        let own = gates.known_trouble(tenant);
        let long_places = gates.long_places(now);
        let all = self.policies.now().limits.concurrency;
        let room = (long_places > 0).then(|| SlowRoom {
            long: gates.places.free_long(long_places),
            apart: self.global.room_apart(all, number, provider.number(), true),
        });
        let mut turns = AddressTurns::new(own.map(|own| &own.health.addresses), room, sick, now);
        let overdue = |target| gates.places.overdue_at(number, target);
        let rests =
            targets.map(|target| turns.rest(target, overdue(target), self.random.next())).collect();
        let sick = turns.sick;
        gates.sick_calls.take(number, sick, now);
        rests
    }

    /// Takes one call to an address from its rate, or says when there may be one.
    pub(crate) fn take_address(&self, lane: &LaneKey, target: u64) -> Result<(), Timestamp> {
        self.rates.take_address(lane.channel, target, self.clock.now())
    }

    /// The end of a call, with its result if there was an answer.
    fn ended(
        &self,
        call: &CallPermit,
        ticket: &CallTicket,
        result: Option<CallResult>,
    ) -> CallEffect {
        let now = self.clock.now_rounded_up();
        let mut context = LaneContext::new(self, &call.lane, &call.provider, now);
        (context.epochs, context.begun) = (call.epochs, true);
        let effect = match &result {
            Some(result) => {
                context.random = self.random.next();
                let (channel, origin) = call.provider.key();
                let is_wide = self.channels.is_wide(*channel, origin);
                let was_well = is_wide && !context.is_held_for_all();
                let effect = context.learn(result, ticket.token);
                if was_well {
                    self.health.note(call.provider.key(), &effect);
                }
                effect
            }
            None => {
                context.give_back(1);
                CallEffect::default()
            }
        };
        // Also for the worse: a lane that waited for a probe to end now waits for another time.
        let changes_gates = effect.changes_gates() || result.is_none();
        let (freed, was_long) = context.free_place(ticket.place, ticket.target, changes_gates);
        ticket.note_freed();
        drop(context);
        let is_apart = ticket.is_apart || was_long;
        self.global.end(provider::number(&call.lane.tenant), call.provider.number(), is_apart);
        self.global.told(is_apart).for_each(|lane| self.wakeups.post(Wakeup::Lane(lane)));
        if effect.refills_budget {
            self.wakeups.post(Wakeup::Lane(call.lane.clone()));
        }
        let provider = || call.provider.key().clone();
        match freed {
            _ if changes_gates => self.wakeups.post(Wakeup::GatesChanged(provider())),
            FreedPlaces::Enough => self.wakeups.post(Wakeup::SlotsFree(provider())),
            FreedPlaces::Few => self.wakeups.gather(provider(), call.provider.clone()),
            FreedPlaces::Unwanted => {}
        }
        effect
    }

    fn note_event(&self, lane: &LaneKey, event: LaneEvent) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push((lane.clone(), event));
    }

    /// Events that no call's end caused, since the last call.
    pub(crate) fn take_events(&self) -> Vec<(LaneKey, LaneEvent)> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// We ran out of something ourselves.
    pub(crate) fn note_shortage(&self, shortage: OwnShortage, now: Timestamp) {
        let mut noted = self.shortage.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = Some((now, shortage));
    }

    /// What we ran out of ourselves within the last moments.
    pub fn shortage(&self) -> Option<OwnShortage> {
        let noted = self.shortage.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, shortage) = noted.as_ref()?;
        (self.clock.now().since(*at) < SHORTAGE_SHOWN).then(|| shortage.clone())
    }

    /// Leases nothing more from the lane until it is resumed, or its order ends by itself. The first order stands.
    pub fn pause(&self, key: Arc<LaneKey>, order: OperatorOrder) -> PausedLane {
        self.operator.pause_lane(PausedLane { key, order }, self.clock.now())
    }

    /// False if it was not paused.
    pub fn resume(&self, key: &LaneKey) -> bool {
        let was_paused = self.operator.resume_lane(key, self.clock.now());
        self.wakeups.post(Wakeup::Lane(Arc::new(key.clone())));
        was_paused
    }

    /// By lane.
    pub fn paused_lanes(&self) -> Vec<PausedLane> {
        self.operator.lanes(self.clock.now())
    }

    /// Leases nothing more of the tenant until it is resumed. The first order stands.
    pub fn pause_tenant(&self, tenant: TenantId, order: OperatorOrder) -> OperatorOrder {
        self.operator.pause_tenant(tenant, order)
    }

    /// False if it was not paused.
    pub fn resume_tenant(&self, tenant: &TenantId) -> bool {
        let was_paused = self.operator.resume_tenant(tenant);
        self.acted();
        was_paused
    }

    /// By name.
    pub fn paused_tenants(&self) -> Vec<(TenantId, OperatorOrder)> {
        self.operator.tenants()
    }

    /// Leases nothing more that goes to a provider, or through an account, until it is resumed or its order ends. The
    /// first order stands.
    pub fn pause_provider(
        &self,
        channel: ChannelKind,
        provider: Arc<str>,
        order: OperatorOrder,
    ) -> OperatorOrder {
        let order = self.operator.pause_provider((channel, provider), order, self.clock.now());
        self.acted();
        order
    }

    /// False if it was not paused.
    pub fn resume_provider(&self, channel: ChannelKind, provider: &Arc<str>) -> bool {
        let key = (channel, provider.clone());
        let was_paused = self.operator.resume_provider(&key, self.clock.now());
        self.acted();
        was_paused
    }

    /// Providers and accounts, by channel and name.
    pub fn paused_providers(&self) -> Vec<PausedProvider> {
        self.operator.providers(self.clock.now())
    }

    /// Forces the breaker of a lane's provider, or of all its accounts, by an operator's order; `None` takes
    /// it back. `Closed` also ends the provider's `Retry-After` and the doubt that so many addresses are gone.
    pub fn force_breaker(&self, lane: &LaneKey, forced: Option<(BreakerOverride, OperatorOrder)>) {
        for (channel, origin) in self.origins(lane) {
            self.force_breaker_of(channel, origin, forced.clone());
        }
    }

    /// The same for one provider or account.
    pub fn force_breaker_of(
        &self,
        channel: ChannelKind,
        origin: Arc<str>,
        forced: Option<(BreakerOverride, OperatorOrder)>,
    ) {
        let key = (channel, origin);
        let provider = self.provider(&key, self.clock.now());
        force(&provider, forced.as_ref().map(|(forced, _)| *forced));
        self.operator.force(key, forced);
        self.acted();
    }

    /// The tenant has a new credential: it is tried at once where the old one was refused.
    pub fn credential_renewed(&self, tenant: &TenantId) {
        for provider in self.providers().values() {
            if let Some(own) = provider.gates().tenants.get_mut(tenant) {
                own.credential.iter_mut().for_each(|credential| credential.renewed());
            }
        }
        self.acted();
    }

    fn acted(&self) {
        self.wakeups.post(Wakeup::All);
    }

    fn providers(&self) -> MutexGuard<'_, HashMap<ProviderKey, Arc<LaneProvider>>> {
        self.providers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn provider(&self, key: &ProviderKey, now: Timestamp) -> Arc<LaneProvider> {
        let mut providers = self.providers();
        if let Some(provider) = providers.get(key) {
            return provider.clone();
        }
        if providers.len() >= self.providers_max.load(Ordering::Relaxed) {
            providers.retain(|_, provider| !provider.is_idle(now));
            // Not for every newcomer if nearly all of them stay.
            let next = PROVIDERS_MAX.max(2 * providers.len());
            self.providers_max.store(next, Ordering::Relaxed);
        }
        let provider = self.new_provider(key);
        providers.insert(key.clone(), provider.clone());
        provider
    }

    fn new_provider(&self, key: &ProviderKey) -> Arc<LaneProvider> {
        let limits = &self.policies.now().limits;
        let ceiling = self.ceiling(limits, key);
        let provider =
            LaneProvider::new(key.clone(), ceiling, limits.breaker, self.address_room.clone());
        if let Some((forced, _)) = self.operator.forced(key) {
            provider.gates().breaker.force(Some(forced));
        }
        Arc::new(provider)
    }
}

fn force(provider: &LaneProvider, forced: Option<BreakerOverride>) {
    let mut gates = provider.gates();
    gates.breaker.force(forced);
    let closed = forced == Some(BreakerOverride::Closed);
    if closed {
        gates.pause = Pause::default();
    }
    for own in gates.tenants.values_mut() {
        own.credential.iter_mut().for_each(|credential| credential.believe_gone(closed));
        if let Some(trouble) = own.trouble.as_mut().filter(|_| closed) {
            trouble.pause = Pause::default();
        }
    }
}

#[cfg(test)]
mod tests;

//! One run of a world: the real lanes and dispatcher over virtual time, with a store in memory.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use postrider_core::policy::ttl::DISPATCH_WINDOW;
use postrider_core::ports::store::{
    Admission, Intake as _, LeasedDelivery, NewDelivery, NewMessage, Store as _,
};
use postrider_core::{
    AddressHash, AttemptRecord, Class, Clock, DeadReason, DeliveryId, LaneKey, Message,
    OutcomeKind, State, Target, TenantId,
};
use postrider_dispatch::lanes::LaneEvent;
use postrider_dispatch::{
    DispatchLimits, Dispatcher, DispatcherConfig, Lanes, Observer, Policies, Policy,
};
use postrider_store::MemoryStore;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::bounds::BrokenBound;
use super::channel::HarmChannel;
use super::draw::draw;
use super::invariants::{CountedFailures, InvariantWatch};
use super::network::{SimNetwork, WireCall};
use super::plan::{CLASSES, HarmPlan, HarmRunKind, RELAY, WEB};
use super::traffic::Arrival;
use crate::clock::SimClock;

/// How long a run goes on after the last arrival, at the most.
const TAIL_MS: i64 = 120_000;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What happened to one delivery.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeliveryFate {
    /// When its first request was written.
    pub written: Option<i64>,
    /// How long it took before to open a connection for it.
    pub opening_ms: i64,
    /// When the provider accepted it.
    pub accepted: Option<i64>,
    /// Attempts that counted.
    pub counted: u32,
    pub dead: bool,
    pub ended: bool,
}

pub(crate) struct HarmRun {
    /// By the number of the arrival; those that took no part are untouched.
    pub fates: Vec<DeliveryFate>,
    pub calls: Vec<WireCall>,
    /// Invariants that did not hold; looked at only in the run with sickness.
    pub broken: Vec<BrokenBound>,
    /// What held healthy deliveries there, and how often they were found so.
    pub held_by: Vec<(String, usize)>,
}

pub(crate) fn run_world(plan: &Arc<HarmPlan>, kind: HarmRunKind) -> Result<HarmRun> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let clock = Arc::new(SimClock::new());
    let run = runtime.block_on(async {
        clock.process_started();
        drive(plan, kind, &clock).await
    });
    drop(runtime);
    run
}

async fn drive(plan: &Arc<HarmPlan>, kind: HarmRunKind, clock: &Arc<SimClock>) -> Result<HarmRun> {
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let per_origin = plan.size.per_origin.map(|calls| (WEB, calls)).into_iter().collect();
    let tenants: HashSet<_> = plan.arrivals.iter().map(|arrival| arrival.tenant).collect();
    let weight = |tenant: u32| (TenantId::new(&plan.tenant_name(tenant)), plan.weight(tenant));
    let limits = DispatchLimits {
        concurrency: plan.places(),
        per_origin,
        weights: tenants.into_iter().map(weight).collect(),
        ..DispatchLimits::default()
    };
    let policies = Policies::new(Policy::new(Class::built_in(), limits));
    let lanes = Lanes::new(policies, clock.clone(), plan.seed_of_rules());
    let network = SimNetwork::new(plan.clone(), kind, clock.clone());
    let invariants = (kind == HarmRunKind::SomeSick)
        .then(|| InvariantWatch::new(plan.clone(), lanes.clone(), network.clone()));
    let watch = Arc::new(FateWatch::new(plan, clock.clone(), invariants.clone()));
    let channel = |kind| Arc::new(HarmChannel { kind, network: network.clone() }) as _;
    let _dispatcher = Dispatcher::start(DispatcherConfig {
        consumer: store.consumer("node").await?,
        channels: vec![channel(WEB), channel(RELAY)],
        lanes,
        clock: clock.clone() as Arc<dyn Clock>,
        observer: watch.clone(),
        log: None,
        seed: plan.seed_of_rules(),
    });
    let looking = invariants.clone().map(|invariants| tokio::spawn(invariants.run()));
    let mut senders = MessageMaker::new(plan);
    let arrivals: Vec<_> = plan.arrivals_of(kind).collect();
    for due in arrivals.chunk_by(|a, b| a.at_ms == b.at_ms) {
        let wait = due[0].at_ms - clock.elapsed();
        sleep(Duration::from_millis(wait.max(0) as u64)).await;
        let messages = due.iter().map(|arrival| senders.message(arrival)).collect();
        for (arrival, admission) in due.iter().zip(store.accept(messages).await) {
            if let Admission::Accepted { deliveries, .. } = admission? {
                let mut state = watch.state();
                state.ids.extend(deliveries.into_iter().map(|id| (id, arrival.id)));
            }
        }
    }
    let end = clock.elapsed() + TAIL_MS;
    let needed = invariants.as_ref().map_or(0, |invariants| invariants.ends_at());
    while clock.elapsed() < end && (watch.state().healthy_left > 0 || clock.elapsed() < needed) {
        sleep(LOOK_EVERY).await;
    }
    looking.iter().for_each(JoinHandle::abort);
    let calls = network.calls();
    let mut fates = std::mem::take(&mut watch.state().fates);
    for call in &calls {
        let fate = &mut fates[call.arrival as usize];
        if fate.written.is_none_or(|first| call.written < first) {
            (fate.written, fate.opening_ms) = (Some(call.written), call.opening_ms);
        }
    }
    let held_by = invariants.as_ref().map_or_else(Vec::new, |invariants| invariants.held_by());
    let broken = invariants.map_or_else(Vec::new, |invariants| {
        invariants.broken(&calls, &watch.state().counted_failures)
    });
    Ok(HarmRun { fates, calls, broken, held_by })
}

/// Makes the messages of arrivals; what they share is made once.
struct MessageMaker<'a> {
    plan: &'a HarmPlan,
    classes: [Class; 3],
    lanes: HashMap<(u32, u32, usize), Arc<LaneKey>>,
    targets: [Arc<Target>; 2],
}

impl<'a> MessageMaker<'a> {
    fn new(plan: &'a HarmPlan) -> Self {
        let built_in = Class::built_in();
        let class =
            |name: &str| built_in.iter().find(|c| *c.name == *name).cloned().unwrap_or_default();
        let url: HashMap<_, _> = [("url", "sim")].into_iter().collect();
        let targets = [WEB, RELAY].map(|kind| Arc::new(Target::new(kind, &url)));
        Self { plan, classes: CLASSES.map(class), lanes: HashMap::new(), targets }
    }

    fn message(&mut self, arrival: &Arrival) -> NewMessage {
        let Arrival { tenant, origin, address, class, .. } = *arrival;
        let lane = self.lanes.entry((tenant, origin, class));
        let lane = lane.or_insert_with(|| Arc::new(lane_of(self.plan, arrival))).clone();
        let mut hash = [0; 16];
        let of_tenant = draw(self.plan.naming ^ u64::from(tenant), "address", origin.into()).next();
        let mut of_address = draw(of_tenant, "address", address.into());
        hash[..8].copy_from_slice(&of_address.next().to_le_bytes());
        hash[8..].copy_from_slice(&of_address.next().to_le_bytes());
        NewMessage {
            tenant: lane.tenant.clone(),
            class: lane.class.clone(),
            ttl_s: self.classes[class].ttl_s,
            now_or_never: DISPATCH_WINDOW,
            member_keys: Vec::new(),
            send_at: None,
            envelope: Default::default(),
            content: arrival.id.to_string().into(),
            dedup: None,
            deliveries: vec![NewDelivery {
                target: self.targets[usize::from(lane.channel == RELAY)].clone(),
                lane,
                hash: AddressHash(hash),
                recipient: None,
                address: None,
                address_since: None,
                alternatives: Vec::new(),
                is_wide: false,
                region: None,
            }],
        }
    }
}

pub(crate) fn lane_of(plan: &HarmPlan, arrival: &Arrival) -> LaneKey {
    let (channel, provider) = plan.origin_name(arrival.origin);
    LaneKey {
        tenant: TenantId::new(&plan.tenant_name(arrival.tenant)),
        channel,
        provider: provider.into(),
        class: CLASSES[arrival.class].into(),
    }
}

/// Notes what becomes of each delivery.
struct FateWatch {
    clock: Arc<SimClock>,
    state: Mutex<WatchState>,
    healthy: Vec<bool>,
    invariants: Option<Arc<InvariantWatch>>,
}

struct WatchState {
    ids: HashMap<DeliveryId, u32>,
    fates: Vec<DeliveryFate>,
    /// Healthy deliveries that have not ended.
    healthy_left: usize,
    counted_failures: CountedFailures,
}

impl FateWatch {
    fn new(plan: &HarmPlan, clock: Arc<SimClock>, invariants: Option<Arc<InvariantWatch>>) -> Self {
        let healthy: Vec<_> = plan.arrivals.iter().map(|arrival| !arrival.sick).collect();
        let state = WatchState {
            ids: HashMap::new(),
            fates: vec![DeliveryFate::default(); healthy.len()],
            healthy_left: healthy.iter().filter(|healthy| **healthy).count(),
            counted_failures: CountedFailures::new(),
        };
        Self { clock, state: Mutex::new(state), healthy, invariants }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, delivery: DeliveryId, note: impl FnOnce(&mut DeliveryFate)) {
        let mut state = self.state();
        let Some(id) = state.ids.get(&delivery).copied() else { return };
        let fate = &mut state.fates[id as usize];
        let had_ended = fate.ended;
        note(fate);
        if fate.ended && !had_ended && self.healthy[id as usize] {
            state.healthy_left -= 1;
        }
    }
}

impl Observer for FateWatch {
    fn attempted(&self, _: &LaneKey, leased: &LeasedDelivery, attempt: &AttemptRecord) {
        let delivery = leased.delivery;
        self.note(delivery, |fate| fate.counted += u32::from(attempt.counted));
        if attempt.counted && attempt.outcome != OutcomeKind::Accepted {
            let (now, mut state) = (self.clock.elapsed(), self.state());
            let Some(id) = state.ids.get(&delivery).copied() else { return };
            state.counted_failures.entry(id).or_default().push(now);
        }
    }

    fn finished(
        &self,
        _: &LaneKey,
        delivery: DeliveryId,
        _: &Message,
        state: State,
        _: Option<DeadReason>,
        _: Duration,
    ) {
        let now = self.clock.elapsed();
        self.note(delivery, |fate| {
            fate.ended = true;
            fate.accepted = (state == State::Sent).then_some(now);
            fate.dead = state != State::Sent;
        });
    }

    fn lane_event(&self, lane: &LaneKey, event: LaneEvent) {
        if let Some(invariants) = &self.invariants {
            invariants.lane_event(lane, event);
        }
    }
}

//! One run of a world: the real lanes and dispatcher over virtual time, with a store in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use postrider_core::ports::store::{Admission, NewDelivery, NewMessage, Queue as _, Store};
use postrider_core::{
    AddressHash, AttemptRecord, Channel, Class, Clock, DeadReason, DeliveryId, LaneKey, State,
    Target, TenantId,
};
use postrider_dispatch::{
    DispatchLimits, Dispatcher, DispatcherConfig, Lanes, Observer, Policies, Policy,
};
use postrider_store::MemoryStore;
use tokio::runtime::Builder;
use tokio::time::sleep;

use super::network::{HarmChannel, KIND, SimNetwork, WireCall};
use super::plan::{CLASSES, HarmPlan, HarmRunKind};
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
    let limits = DispatchLimits::default();
    let policies = Policies::new(Policy::new(Class::built_in(), limits));
    let lanes = Lanes::new(policies, clock.clone(), plan.seed);
    let network = SimNetwork::new(plan.clone(), kind, clock.clone());
    let watch = Arc::new(FateWatch {
        clock: clock.clone(),
        state: Mutex::new(WatchState {
            ids: HashMap::new(),
            fates: vec![DeliveryFate::default(); plan.arrivals.len()],
        }),
    });
    let _dispatcher = Dispatcher::start(DispatcherConfig {
        store: store.clone() as Arc<dyn Store>,
        channels: vec![Arc::new(HarmChannel(network.clone())) as Arc<dyn Channel>],
        lanes,
        clock: clock.clone() as Arc<dyn Clock>,
        observer: watch.clone(),
        seed: plan.seed,
    });
    let arrivals: Vec<_> = plan.arrivals_of(kind).collect();
    for due in arrivals.chunk_by(|a, b| a.at_ms == b.at_ms) {
        let wait = due[0].at_ms - clock.elapsed();
        sleep(Duration::from_millis(wait.max(0) as u64)).await;
        let messages = due.iter().map(|arrival| new_message(arrival)).collect();
        for (arrival, admission) in due.iter().zip(store.accept(messages).await?) {
            if let Admission::Accepted { deliveries, .. } = admission {
                let mut state = watch.state();
                state.ids.extend(deliveries.into_iter().map(|id| (id, arrival.id)));
            }
        }
    }
    let end = clock.elapsed() + TAIL_MS;
    while clock.elapsed() < end && !watch.all_healthy_ended(plan) {
        sleep(LOOK_EVERY).await;
    }
    let calls = network.calls();
    let mut fates = std::mem::take(&mut watch.state().fates);
    for call in &calls {
        let written = &mut fates[call.arrival as usize].written;
        *written = Some(written.map_or(call.written, |first| first.min(call.written)));
    }
    Ok(HarmRun { fates, calls })
}

fn new_message(arrival: &Arrival) -> NewMessage {
    let Arrival { tenant, origin, address, .. } = arrival;
    let lane = Arc::new(LaneKey {
        tenant: TenantId::new(&format!("t{tenant}")),
        channel: KIND,
        provider: format!("https://o{origin}.sim").into(),
        class: CLASSES[arrival.class].into(),
    });
    let mut hash = [0; 16];
    hash[..4].copy_from_slice(&address.to_le_bytes());
    hash[4..8].copy_from_slice(&tenant.to_le_bytes());
    hash[8..12].copy_from_slice(&origin.to_le_bytes());
    let class = Class::built_in().into_iter().find(|c| *c.name == *lane.class).unwrap_or_default();
    NewMessage {
        tenant: lane.tenant.clone(),
        class: lane.class.clone(),
        ttl_s: class.ttl_s,
        send_at: None,
        envelope: Default::default(),
        content: arrival.id.to_string().into(),
        dedup: None,
        deliveries: vec![NewDelivery {
            lane,
            target: Arc::new(Target::new(
                KIND,
                &[("url", "sim")].into_iter().collect::<HashMap<_, _>>(),
            )),
            hash: AddressHash(hash),
            recipient: None,
            address: None,
            address_since: None,
            alternatives: Vec::new(),
        }],
    }
}

/// Notes what becomes of each delivery.
struct FateWatch {
    clock: Arc<SimClock>,
    state: Mutex<WatchState>,
}

struct WatchState {
    ids: HashMap<DeliveryId, u32>,
    fates: Vec<DeliveryFate>,
}

impl FateWatch {
    fn state(&self) -> std::sync::MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_healthy_ended(&self, plan: &HarmPlan) -> bool {
        let state = self.state();
        plan.arrivals.iter().filter(|a| !a.sick).all(|a| state.fates[a.id as usize].ended)
    }

    fn note(&self, delivery: DeliveryId, note: impl FnOnce(&mut DeliveryFate)) {
        let mut state = self.state();
        if let Some(id) = state.ids.get(&delivery).copied() {
            note(&mut state.fates[id as usize]);
        }
    }
}

impl Observer for FateWatch {
    fn attempted(
        &self,
        _: &LaneKey,
        delivery: DeliveryId,
        _: AddressHash,
        attempt: &AttemptRecord,
    ) {
        self.note(delivery, |fate| fate.counted += u32::from(attempt.counted));
    }

    fn finished(
        &self,
        _: &LaneKey,
        delivery: DeliveryId,
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
}

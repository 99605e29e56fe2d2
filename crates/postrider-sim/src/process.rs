//! One run of the simulated process: the real intake, lanes and dispatcher on their own runtime, until
//! the driver ends it. Tasks that still run are dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use postrider_core::ports::store::{Store, StoreError};
use postrider_core::{Channel, ChannelIntake, DeadReason, DeliveryId, LaneKey, Message, State};
use postrider_dispatch::{
    Dispatcher, DispatcherConfig, LaneEvent, Lanes, MessageIntake, Observer, Policies, Policy,
};
use tokio::runtime::Builder;

use crate::blocking::StoreWaiters;
use crate::driver::{PlanDriver, ProcessEnd};
use crate::faulty_disk::FaultyDisk;
use crate::faulty_store::FaultyStore;
use crate::intake::{KINDS, SimIntake};
use crate::provider::SimChannel;
use crate::storage::SimStorage;
use crate::world::World;

/// The parts of a running process that the driver works with.
pub(crate) struct SimProcess {
    pub intake: Arc<MessageIntake>,
    pub store: Arc<dyn Store>,
    /// The first one has the work; the others wait for its end.
    pub workers: VecDeque<SimWorker>,
    workers_started: u64,
}

/// A worker of the process, which dies or leaves alone.
pub(crate) struct SimWorker {
    pub lanes: Arc<Lanes>,
    pub dispatcher: Dispatcher,
}

/// Runs the process until the driver ends it.
pub(crate) fn run_process(
    world: &Arc<World>,
    storage: &Arc<SimStorage>,
    next_action: &mut usize,
) -> Result<ProcessEnd> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let end = runtime.block_on(async {
        world.clock.process_started();
        let end = match start(world, storage).await {
            Ok(process) => PlanDriver::new(world, process, next_action).drive().await,
            Err(error) => Err(error),
        };
        world.state().dead = true;
        world.clock.process_ended();
        end
    });
    drop(runtime);
    end
}

async fn start(world: &Arc<World>, storage: &Arc<SimStorage>) -> Result<SimProcess> {
    let inner = storage.open().context("the store at the start of a process")?;
    let (world, storage) = (world.clone(), storage.clone());
    let waiters = StoreWaiters::default();
    let disk = Arc::new(FaultyDisk { world: world.clone(), storage, waiters });
    let store: Arc<dyn Store> = Arc::new(FaultyStore { inner, disk });
    world.state().dead = false;
    let plan = &world.plan;
    let policies = Policies::new(Policy::new(plan.classes.clone(), plan.limits.clone()));
    let intakes = KINDS.map(|kind| Arc::new(SimIntake(kind)) as Arc<dyn ChannelIntake>).to_vec();
    let intake =
        Arc::new(MessageIntake::new(store.clone(), intakes, policies, &[b"hash key".to_vec()]));
    let workers = VecDeque::new();
    let mut process = SimProcess { intake, store, workers, workers_started: 0 };
    for _ in 0..plan.workers {
        process.add_worker(&world).await?;
    }
    Ok(process)
}

impl SimProcess {
    /// The worker that has the work.
    pub(crate) fn lanes(&self) -> &Arc<Lanes> {
        // A process always has one.
        &self.workers[0].lanes
    }

    pub(crate) async fn add_worker(&mut self, world: &Arc<World>) -> Result<()> {
        let number = self.workers_started;
        self.workers_started += 1;
        let plan = &world.plan;
        let starts = u64::from(world.state().oracle.process_starts) ^ (number << 32);
        let policies = Policies::new(Policy::new(plan.classes.clone(), plan.limits.clone()));
        let lanes = Lanes::new(policies, world.clock.clone(), plan.seed ^ starts);
        let channel =
            |kind| Arc::new(SimChannel { kind, world: world.clone() }) as Arc<dyn Channel>;
        let dispatcher = Dispatcher::start(DispatcherConfig {
            consumer: self.store.consumer(&format!("worker {number}")).await?,
            channels: KINDS.map(channel).to_vec(),
            lanes: lanes.clone(),
            clock: self.store.clock(),
            observer: Arc::new(SimObserver(world.clone())),
            log: None,
            seed: plan.seed.wrapping_mul(31) ^ starts,
        });
        self.workers.push_back(SimWorker { lanes, dispatcher });
        Ok(())
    }
}

/// Passes the dispatcher's events to the oracle and the trace.
struct SimObserver(Arc<World>);

impl Observer for SimObserver {
    fn finished(
        &self,
        _: &LaneKey,
        delivery: DeliveryId,
        _: &Message,
        state: State,
        reason: Option<DeadReason>,
        _: Duration,
    ) {
        self.0.with(|world| {
            let Some(which) = world.oracle.find(delivery).filter(|_| !world.dead) else { return };
            world.note("finished", which, reason.map_or(state.name(), DeadReason::name), 0);
        });
    }

    fn lane_event(&self, lane: &LaneKey, event: LaneEvent) {
        self.0.with(|world| {
            if world.dead {
                return;
            }
            let (tenant, provider) = (number(lane.tenant.as_str()), number(&lane.provider));
            let now = world.now();
            let (how, until) = match event {
                LaneEvent::BreakerOpened { until, .. } => ("breaker opened", Some(until)),
                LaneEvent::RetryStorm { until } => ("retry storm", Some(until)),
                LaneEvent::MassGone { until } => ("mass gone", Some(until)),
                LaneEvent::BreakerClosed { .. } => ("breaker closed", None),
                LaneEvent::CredentialRefused { until } => ("credential refused", Some(until)),
                LaneEvent::CredentialAccepted => ("credential fine", None),
                LaneEvent::LeftAlone { until, .. } => ("left alone", Some(until)),
            };
            let for_ms = until.map_or(0, |until| until.since(now).as_millis() as i64);
            world.note("lane", provider, how, for_ms);
            world.oracle.lane_reported(tenant, provider, event, now);
        });
    }

    fn store_trouble(&self, doing: &'static str, _: &StoreError) {
        self.0.with(|world| world.note("trouble", 0, doing, 0));
    }
}

/// The number in a name of the simulated world: `t17`, `https://p3.sim`.
pub(crate) fn number(name: &str) -> usize {
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(usize::MAX)
}

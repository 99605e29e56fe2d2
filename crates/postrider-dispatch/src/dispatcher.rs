//! Leases due work lane by lane and sends it, bounded per origin and in all. Sleeps until there is
//! something to do: woken by arrival, by exact time or by a call that ended; never polls.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::breaker::BreakerPolicy;
use postrider_core::budget::BudgetPolicy;
use postrider_core::fairness::Fairness;
use postrider_core::limiter::Rate;
use postrider_core::store::{Leased, ReadyLane, Store, StoreError};
use postrider_core::{Channel, ChannelKind, Class, Clock, Hold, LaneState, TenantId};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::flow::Flow;
use crate::lanes::{Lanes, Resting};
use crate::launch::{Batch, Bench, Job, give_back, may_be_sent};
use crate::observer::Observer;
use crate::policies::{Policies, Policy};
use crate::roll::Roll;
use crate::settler::{Settlements, Settler};
use crate::turn_away::{leaves, turn_away};

/// How much at once, and for how long.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Calls under way per origin.
    pub per_origin: HashMap<ChannelKind, usize>,
    /// Calls under way in all. Together with one settle batch, this is what a crash can send twice.
    pub concurrency: usize,
    /// At least twice as long as an attempt can last: one that is to go again at once may do so
    /// during the first half.
    pub lease: Duration,
    pub settle_batch: usize,
    /// How long a settlement may wait for others to share its fsync.
    pub settle_linger: Duration,
    /// When a provider counts as failing.
    pub breaker: BreakerPolicy,
    /// Calls per second to one origin, by channel; none is no limit.
    pub rates: HashMap<ChannelKind, Rate>,
    /// Calls per second of one tenant.
    pub tenant_rates: HashMap<TenantId, Rate>,
    /// Shares of tenants where they compete; whoever is not named weighs 1.
    pub weights: HashMap<TenantId, f64>,
    /// How much of a lane's traffic may be retries.
    pub retry_budget: BudgetPolicy,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_origin: HashMap::new(),
            concurrency: 512,
            lease: Duration::from_secs(90),
            settle_batch: 512,
            settle_linger: Duration::from_millis(2),
            breaker: BreakerPolicy::default(),
            rates: HashMap::new(),
            tenant_rates: HashMap::new(),
            weights: HashMap::new(),
            retry_budget: BudgetPolicy::default(),
        }
    }
}

/// What one turn of the round robin takes from a lane.
const QUANTUM: usize = 64;
/// What one task sends: large enough to encrypt in one go, small enough to spread over cores.
const TASK_JOBS: usize = 16;
const LANES_FIRST: usize = 256;
const LANES_MAX: usize = 65_536;
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a store that fails may hold up the end.
const SETTLE_AT_END: Duration = Duration::from_secs(5);
const STORE_PAUSE: Duration = Duration::from_millis(250);

pub struct DispatcherConfig {
    pub store: Arc<dyn Store>,
    pub channels: Vec<Arc<dyn Channel>>,
    /// Also carries the classes and limits.
    pub lanes: Arc<Lanes>,
    pub clock: Arc<dyn Clock>,
    pub observer: Arc<dyn Observer>,
    /// For jitter.
    pub seed: u64,
}

/// A running dispatcher. Dropping it stops leasing; [`Dispatcher::drain`] ends it in order.
pub struct Dispatcher {
    stop: watch::Sender<bool>,
    leaser: JoinHandle<JoinSet<()>>,
    settler: JoinHandle<()>,
}

impl Dispatcher {
    pub fn start(config: DispatcherConfig) -> Self {
        let (stop, stopped) = watch::channel(false);
        let policies = config.lanes.policies().clone();
        let policy = policies.now();
        let flow = Arc::new(Flow::new(unsettled_max(&policy.limits)));
        let (sender, receiver) = mpsc::unbounded_channel();
        let settler = Settler {
            store: config.store.clone(),
            flow: flow.clone(),
            observer: config.observer.clone(),
            policies: policies.clone(),
        };
        let leaser = Leaser {
            store: config.store.clone(),
            channels: config.channels.into_iter().map(|c| (c.kind(), c)).collect(),
            fairness: Fairness::new(policy.limits.weights.clone()),
            policies,
            policy,
            bench: Arc::new(Bench {
                store: config.store,
                clock: config.clock,
                flow,
                lanes: config.lanes,
                observer: config.observer,
                settlements: Settlements(sender),
                roll: Roll::new(config.seed),
            }),
            tasks: JoinSet::new(),
            resting: Resting::default(),
            lanes_asked: LANES_FIRST,
            blocked: false,
        };
        Self {
            stop,
            leaser: tokio::spawn(leaser.run(stopped)),
            settler: tokio::spawn(settler.run(receiver)),
        }
    }

    /// Leases nothing more, lets calls under way end until the deadline, gives back what did not end,
    /// and writes everything down. True if every call ended by itself.
    pub async fn drain(self, deadline: Duration) -> bool {
        let _ = self.stop.send(true);
        let Ok(mut tasks) = self.leaser.await else { return false };
        let all_ended = async { while tasks.join_next().await.is_some() {} };
        let in_time = tokio::time::timeout(deadline, all_ended).await.is_ok();
        tasks.shutdown().await;
        // The last sender went with the tasks: the settler ends when all is written.
        let written = tokio::time::timeout(SETTLE_AT_END, self.settler).await;
        in_time && written.is_ok()
    }
}

struct Leaser {
    store: Arc<dyn Store>,
    channels: HashMap<ChannelKind, Arc<dyn Channel>>,
    policies: Arc<Policies>,
    /// As it was at the beginning of the round.
    policy: Arc<Policy>,
    bench: Arc<Bench>,
    tasks: JoinSet<()>,
    resting: Resting,
    fairness: Fairness,
    lanes_asked: usize,
    /// A lane of the last round waits for its origin.
    blocked: bool,
}

fn unsettled_max(limits: &Limits) -> usize {
    limits.concurrency.max(1) + limits.settle_batch
}

/// Told to stop, or nobody is left who could tell.
fn ended(stopped: &watch::Receiver<bool>) -> bool {
    *stopped.borrow() || stopped.has_changed().is_err()
}

impl Leaser {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) -> JoinSet<()> {
        while !ended(&stopped) {
            while self.tasks.try_join_next().is_some() {}
            let launched = match self.round().await {
                Ok(launched) => launched,
                Err(StoreError::Closed) => break,
                Err(error) => {
                    self.bench.observer.store_trouble("lease", &error);
                    tokio::select! {
                        () = tokio::time::sleep(STORE_PAUSE) => {}
                        _ = stopped.changed() => {}
                    }
                    continue;
                }
            };
            if launched == 0 {
                self.wait(&mut stopped).await;
            }
        }
        self.tasks
    }

    /// Sleeps until a round is worth its while. With no room, new work is no reason to wake.
    async fn wait(&self, stopped: &mut watch::Receiver<bool>) {
        let (flow, lanes) = (&self.bench.flow, &self.bench.lanes);
        let has_room = flow.room() > 0;
        let waking = self.resting.next(self.bench.clock.now()).unwrap_or(WAIT_MAX);
        tokio::select! {
            () = self.store.wait_for_work(waking.min(WAIT_MAX)), if has_room => {}
            () = lanes.trickled(), if has_room && self.blocked => {}
            () = lanes.changed(), if has_room => {}
            () = flow.freed() => {}
            _ = stopped.changed() => {}
        }
    }

    /// Takes over what was changed since the last round.
    fn adopt(&mut self) {
        let policy = self.policies.now();
        if !Arc::ptr_eq(&policy, &self.policy) {
            self.fairness.adopt(policy.limits.weights.clone());
            self.bench.flow.resize(unsettled_max(&policy.limits));
            self.policy = policy;
        }
    }

    /// One turn over the ready lanes, a quantum each. Says how many deliveries were leased.
    async fn round(&mut self) -> Result<usize, StoreError> {
        if self.bench.flow.room() == 0 {
            return Ok(0);
        }
        self.adopt();
        self.resting.wake(self.bench.clock.now(), self.bench.lanes.acts());
        // Lanes that wait must not hide those behind them.
        let asked = self.lanes_asked + self.resting.len();
        let mut lanes = self.store.ready_lanes(asked).await?;
        let urgency = |lane: &ReadyLane| self.policy.class_or_default(&lane.key.class).priority;
        self.fairness.order(&mut lanes, |lane| (&lane.key.tenant, urgency(lane)));
        self.blocked = false;
        let mut launched = 0;
        for lane in &lanes {
            if self.resting.holds(lane.id) {
                continue;
            }
            let served = self.serve(lane).await?;
            self.fairness.served(&lane.key.tenant, served);
            launched += served;
        }
        let look_further = launched == 0 && lanes.len() >= asked && asked < LANES_MAX;
        self.lanes_asked = if look_further { self.lanes_asked * 4 } else { LANES_FIRST };
        Ok(if look_further { 1 } else { launched })
    }

    /// Asks the lane's gates, leases what they let through and sends it.
    async fn serve(&mut self, lane: &ReadyLane) -> Result<usize, StoreError> {
        let Some(channel) = self.channels.get(&lane.key.channel).cloned() else { return Ok(0) };
        let want = self.bench.flow.room().min(QUANTUM);
        if want == 0 {
            return Ok(0);
        }
        let class = self.policy.class_or_default(&lane.key.class).clone();
        let pass = match self.bench.lanes.admit(&lane.key, class.priority, want) {
            Ok(pass) => pass,
            Err(held) if leaves(&class, held) => {
                let leased = self.store.lease(lane.id, want, self.policy.limits.lease).await?;
                let count = leased.len();
                self.bench.flow.leased(count);
                turn_away(&self.bench, &lane.key, leased, &class);
                return Ok(count);
            }
            Err(held) => {
                self.blocked |= held == LaneState::Blocked { on: Hold::Concurrency };
                if let LaneState::Waiting { until, .. } = held {
                    self.resting.rest(lane.id, until);
                }
                return Ok(0);
            }
        };
        let leased = self.store.lease(lane.id, pass.calls(), self.policy.limits.lease).await?;
        let count = leased.len();
        self.bench.flow.leased(count);
        let sendable = self.sendable(lane, leased, &class);
        let mut jobs = self.affordable(lane, sendable);
        let ticket = pass.begin(jobs.len());
        self.bench.observer.in_flight(self.bench.flow.unsettled());
        while !jobs.is_empty() {
            let rest = jobs.split_off(jobs.len().min(TASK_JOBS));
            let batch = Batch {
                lane: lane.key.clone(),
                class: class.clone(),
                channel: channel.clone(),
                ticket: ticket.clone(),
                jobs: std::mem::replace(&mut jobs, rest),
            };
            self.tasks.spawn(batch.run(self.bench.clone()));
        }
        Ok(count)
    }

    /// Gives back the retries that the lane's budget has no room for; the lane then rests.
    fn affordable(&mut self, lane: &ReadyLane, jobs: Vec<Job>) -> Vec<Job> {
        let retries = jobs.iter().filter(|job| job.is_retry()).count();
        let allowance = self.bench.lanes.spend(&lane.key, jobs.len() - retries, retries);
        if allowance.retries == retries {
            return jobs;
        }
        self.resting.rest(lane.id, allowance.more_at);
        let (mut kept, mut left) = (Vec::with_capacity(jobs.len()), allowance.retries);
        for mut job in jobs {
            if job.is_retry() && left == 0 {
                give_back(&self.bench, &lane.key, &mut job);
            } else {
                left -= usize::from(job.is_retry());
                kept.push(job);
            }
        }
        kept
    }

    fn sendable(&self, lane: &ReadyLane, leased: Vec<Leased>, class: &Class) -> Vec<Job> {
        let now = self.bench.clock.now();
        let may = |l: &Leased| may_be_sent(&self.bench, &lane.key, l, class, now);
        let again_until = now + self.policy.limits.lease / 2;
        leased.into_iter().filter(may).map(|l| Job::new(l, again_until)).collect()
    }
}

//! Leases due work lane by lane and sends it, bounded per origin and in all. Sleeps until there is
//! something to do: woken by arrival, by exact time or by a call that ended; never polls.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::class::WhenOpen;
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::policy::budget::BudgetPolicy;
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::strikes::StrikeRules;
use postrider_core::ports::store::{Leased, ReadyLane, Store, StoreError};
use postrider_core::{
    Channel, ChannelKind, Class, Clock, Gate, LaneId, LaneKey, LaneState, TenantId, Timestamp,
};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::expiry::sweep;
use crate::flow::Flow;
use crate::jitter_rng::JitterRng;
use crate::lanes::{Lanes, Notice, OriginKey, Pass, Refusal};
use crate::launch::{Batch, Bench, Job, give_back, is_in_turn, may_be_sent};
use crate::observer::Observer;
use crate::policies::{Policies, Policy};
use crate::roster::{Entry, LANES_MAX, Pick, Rest, Roster, Terms};
use crate::settler::{Settlements, Settler};
use crate::turn_away::{leaves, turn_away};

/// How much at once, and for how long.
#[derive(Debug, Clone)]
pub struct DispatchLimits {
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
    /// Calls per second to one origin with one tenant's credential, by channel.
    pub credential_rates: HashMap<ChannelKind, Rate>,
    /// Calls per second to one address, by channel.
    pub address_rates: HashMap<ChannelKind, Rate>,
    /// Calls per second of one tenant.
    pub tenant_rates: HashMap<TenantId, Rate>,
    /// Shares of tenants where they compete; whoever is not named weighs 1.
    pub weights: HashMap<TenantId, f64>,
    /// How much of a lane's traffic may be retries.
    pub retry_budget: BudgetPolicy,
    /// What comes of answers that blame an address.
    pub strikes: StrikeRules,
}

impl Default for DispatchLimits {
    fn default() -> Self {
        Self {
            per_origin: HashMap::new(),
            concurrency: 512,
            lease: Duration::from_secs(90),
            settle_batch: 512,
            settle_linger: Duration::from_millis(2),
            breaker: BreakerPolicy::default(),
            rates: HashMap::new(),
            credential_rates: HashMap::new(),
            address_rates: HashMap::new(),
            tenant_rates: HashMap::new(),
            weights: HashMap::new(),
            retry_budget: BudgetPolicy::default(),
            strikes: StrikeRules::default(),
        }
    }
}

/// What is leased from a lane at once.
const LEASE_MAX: usize = 64;
/// Turns between two looks at what else happened.
const TURNS: usize = 256;
/// What one task sends: large enough to encrypt in one go, small enough to spread over cores.
const TASK_JOBS: usize = 16;
/// Lanes that the store is asked for at once, and how often before something is sent.
const LANES_ASKED: usize = 256;
const ASKED_MAX: usize = 16;
/// Lanes that wait by themselves and are remembered; beyond that many they are looked at every now and then.
const ASIDE_MAX: usize = 100_000;
const LOOK_AGAIN: Duration = Duration::from_secs(1);
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
            policies,
            policy,
            bench: Arc::new(Bench {
                store: config.store,
                clock: config.clock,
                flow,
                lanes: config.lanes,
                observer: config.observer,
                settlements: Settlements(sender),
                random: JitterRng::new(config.seed),
            }),
            tasks: JoinSet::new(),
            roster: Roster::default(),
            aside: HashMap::new(),
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
    roster: Roster,
    /// Lanes that wait by themselves.
    aside: HashMap<Arc<LaneKey>, LaneId>,
}

fn unsettled_max(limits: &DispatchLimits) -> usize {
    limits.concurrency.max(1) + limits.settle_batch
}

/// Told to stop, or nobody is left who could tell.
fn ended(stopped: &watch::Receiver<bool>) -> bool {
    *stopped.borrow() || stopped.has_changed().is_err()
}

/// What came of a turn.
struct Served {
    leased: usize,
    rest: Rest,
    /// The lane itself has to wait: until a time, or until something happens.
    waits: Option<Timestamp>,
}

impl Served {
    fn refused(refusal: Refusal) -> Self {
        let (on, until) = match refusal.state {
            LaneState::Waiting { on, until } => (Some(on), Some(until)),
            LaneState::Blocked { on } => (Some(on), None),
            LaneState::Ready => (None, None),
        };
        if refusal.of_provider {
            let rest = Rest::Full { until, shut: on == Some(Gate::Breaker) };
            return Self { leased: 0, rest, waits: None };
        }
        Self { leased: 0, rest: Rest::Left, waits: until.or(Some(Timestamp::MAX)) }
    }
}

impl Leaser {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) -> JoinSet<()> {
        self.store.resume(None);
        while !ended(&stopped) {
            while self.tasks.try_join_next().is_some() {}
            let again = match self.round().await {
                Ok(again) => again,
                Err(StoreError::Closed) => break,
                Err(error) => {
                    self.bench.observer.store_trouble("lease", &error);
                    tokio::select! {
                        biased;
                        () = tokio::time::sleep(STORE_PAUSE) => {}
                        _ = stopped.changed() => {}
                    }
                    continue;
                }
            };
            if !again {
                self.wait(&mut stopped).await;
            }
        }
        self.tasks
    }

    /// Sleeps until a round is worth its while. With no room, new work is no reason to wake.
    async fn wait(&self, stopped: &mut watch::Receiver<bool>) {
        let (flow, lanes) = (&self.bench.flow, &self.bench.lanes);
        let has_room = flow.room() > 0;
        let now = self.bench.clock.now();
        let waking = self.roster.next_wake().map_or(WAIT_MAX, |at| at.since(now).min(WAIT_MAX));
        tokio::select! {
            biased;
            () = self.store.wait_for_work(waking), if has_room => {}
            () = lanes.gathered(), if has_room => {}
            () = lanes.changed(), if has_room => {}
            () = flow.freed() => {}
            _ = stopped.changed() => {}
        }
    }

    /// Takes over what was changed since the last round.
    fn adopt(&mut self) {
        let policy = self.policies.now();
        if !Arc::ptr_eq(&policy, &self.policy) {
            self.bench.flow.resize(unsettled_max(&policy.limits));
            self.policy = policy;
        }
    }

    /// Gives turns to those that may go. True if there is more to do at once.
    async fn round(&mut self) -> Result<bool, StoreError> {
        if self.bench.flow.room() == 0 {
            return Ok(false);
        }
        self.adopt();
        self.heed();
        let swept = sweep(&self.bench, self.policy.limits.lease).await?;
        let (mut newcomers, all_listed) = self.list().await?;
        let policy = self.policy.clone();
        let mut turns = 0;
        while turns < TURNS && self.bench.flow.room() > 0 {
            let terms = self.terms(&policy);
            let Some(pick) = self.roster.next(terms) else { break };
            self.serve(pick).await?;
            turns += 1;
        }
        newcomers.retain(|lane| self.roster.hide(*lane));
        newcomers.into_iter().for_each(|lane| self.store.suspend(lane, Timestamp::MAX));
        Ok(turns > 0 || swept > 0 || !all_listed)
    }

    fn terms<'a>(&self, policy: &'a Policy) -> Terms<'a> {
        Terms { weights: &policy.limits.weights, now: self.bench.clock.now() }
    }

    /// Acts upon what happened since the last round.
    fn heed(&mut self) {
        let policy = self.policy.clone();
        let terms = self.terms(&policy);
        for notice in self.bench.lanes.notices() {
            match notice {
                Notice::Room(provider) => self.roster.reopen(&provider, terms),
                Notice::Eased(provider) => {
                    self.roster.reopen(&provider, terms);
                    self.resume(|lane| is_of(lane, &provider));
                }
                Notice::Lane(lane) => {
                    let lane = self.aside.remove(&lane);
                    lane.into_iter().for_each(|lane| self.store.resume(Some(lane)));
                }
                Notice::All => {
                    self.roster.reopen_all(terms);
                    self.resume(|_| true);
                }
            }
        }
        self.roster.wake(terms);
    }

    fn resume(&mut self, which: impl Fn(&LaneKey) -> bool) {
        for (_, lane) in self.aside.extract_if(|key, _| which(key)) {
            self.store.resume(Some(lane));
        }
    }

    /// Takes in the lanes that newly have something due. Says which, and whether these are all.
    async fn list(&mut self) -> Result<(Vec<LaneId>, bool), StoreError> {
        let mut newcomers = Vec::new();
        for _ in 0..ASKED_MAX {
            if self.roster.len() >= LANES_MAX {
                break;
            }
            let listed = self.store.ready_lanes(LANES_ASKED).await?;
            let all = listed.len() < LANES_ASKED;
            let policy = self.policy.clone();
            let terms = self.terms(&policy);
            for ReadyLane { id, key, .. } in listed {
                self.aside.remove(&key);
                let class = policy.class_or_default(&key.class);
                let (priority, impatient) = (class.priority, class.when_open != WhenOpen::Wait);
                self.roster.join(Entry { id, key, priority, impatient }, terms);
                newcomers.push(id);
            }
            if all {
                return Ok((newcomers, true));
            }
            // So that they do not hide those behind them.
            newcomers.retain(|lane| self.roster.hide(*lane));
            newcomers.drain(..).for_each(|lane| self.store.suspend(lane, Timestamp::MAX));
        }
        Ok((newcomers, false))
    }

    /// Asks the lane's gates, leases what they let through and sends it.
    async fn serve(&mut self, pick: Pick) -> Result<(), StoreError> {
        let want = pick.allowance().min(self.bench.flow.room()).min(LEASE_MAX);
        let served = match self.try_to_send(&pick.entry, want).await {
            Ok(served) => served,
            Err(error) => {
                self.roster.put_back(pick);
                return Err(error);
            }
        };
        let Entry { id, key, .. } = pick.entry.clone();
        let policy = self.policy.clone();
        let terms = self.terms(&policy);
        let hidden = self.roster.end(pick, served.leased, served.rest, terms);
        match served.waits {
            Some(until) => self.put_aside(id, key, until),
            None if hidden => self.store.resume(Some(id)),
            None => {}
        }
        Ok(())
    }

    fn put_aside(&mut self, id: LaneId, key: Arc<LaneKey>, until: Timestamp) {
        let forgotten = self.aside.len() >= ASIDE_MAX && !self.aside.contains_key(&key);
        if forgotten {
            let soon = self.bench.clock.now() + LOOK_AGAIN;
            return self.store.suspend(id, until.min(soon));
        }
        self.aside.insert(key, id);
        self.store.suspend(id, until);
    }

    async fn try_to_send(&mut self, lane: &Entry, want: usize) -> Result<Served, StoreError> {
        let class = self.policy.class_or_default(&lane.key.class).clone();
        match self.bench.lanes.admit(&lane.key, lane.priority, want) {
            Ok(pass) => self.send(lane, class, pass).await,
            Err(refusal) if leaves(&class, refusal.state) => {
                let leased = self.store.lease(lane.id, want, self.policy.limits.lease).await?;
                let count = leased.len();
                self.bench.flow.leased(count);
                turn_away(&self.bench, &lane.key, leased, &class, refusal.state);
                let rest = if count == want { Rest::More } else { Rest::Left };
                Ok(Served { leased: count, rest, waits: None })
            }
            Err(refusal) => Ok(Served::refused(refusal)),
        }
    }

    async fn send(
        &mut self,
        lane: &Entry,
        class: Arc<Class>,
        pass: Pass,
    ) -> Result<Served, StoreError> {
        let Some(channel) = self.channels.get(&lane.key.channel).cloned() else {
            let waits = Some(self.bench.clock.now() + WAIT_MAX);
            return Ok(Served { leased: 0, rest: Rest::Left, waits });
        };
        let asked = pass.calls();
        let leased = self.store.lease(lane.id, asked, self.policy.limits.lease).await?;
        let count = leased.len();
        self.bench.flow.leased(count);
        let sendable = self.sendable(&lane.key, leased, &class);
        let (mut jobs, waits) = self.affordable(&lane.key, sendable);
        jobs.retain_mut(|job| is_in_turn(&self.bench, &lane.key, job));
        let weight = jobs.iter().map(|job| job.weight(&*channel)).sum::<usize>();
        pass.charge(weight.saturating_sub(jobs.len()));
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
        let stays = count == asked && waits.is_none();
        Ok(Served { leased: count, rest: if stays { Rest::More } else { Rest::Left }, waits })
    }

    /// Gives back the retries that the lane's budget has no room for; the lane then waits.
    fn affordable(&mut self, lane: &Arc<LaneKey>, jobs: Vec<Job>) -> (Vec<Job>, Option<Timestamp>) {
        let retries = jobs.iter().filter(|job| job.is_retry()).count();
        let allowance = self.bench.lanes.spend(lane, jobs.len() - retries, retries);
        if allowance.retries == retries {
            return (jobs, None);
        }
        let (mut kept, mut left) = (Vec::with_capacity(jobs.len()), allowance.retries);
        for mut job in jobs {
            if job.is_retry() && left == 0 {
                give_back(&self.bench, lane, &mut job);
            } else {
                left -= usize::from(job.is_retry());
                kept.push(job);
            }
        }
        (kept, Some(allowance.more_at))
    }

    fn sendable(&self, lane: &Arc<LaneKey>, leased: Vec<Leased>, class: &Class) -> Vec<Job> {
        let now = self.bench.clock.now();
        let may = |l: &Leased| may_be_sent(&self.bench, lane, l, class, now);
        let again_until = now + self.policy.limits.lease / 2;
        leased.into_iter().filter(may).map(|l| Job::new(l, again_until)).collect()
    }
}

fn is_of(lane: &LaneKey, (channel, provider): &OriginKey) -> bool {
    lane.channel == *channel && lane.provider == *provider
}

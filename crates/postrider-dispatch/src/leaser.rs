//! Leases due work lane by lane and sends it, bounded per provider and in all. Sleeps until there is
//! something to do: woken by arrival, by exact time or by a call that ended; never polls.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::class::WhenOpen;
use postrider_core::model::decision::Decision;
use postrider_core::policy::probe_choice::{ProbeTraits, keep_best};
use postrider_core::ports::store::{Consumer, ReadyLane, StoreError};
use postrider_core::{Channel, ChannelKind, Gate, LaneId, LaneKey, LaneState, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::attempt::{DeliveryJob, LaneWork};
use crate::context::DispatchContext;
use crate::expiry::sweep;
use crate::lanes::{LanePermit, LaneRefusal, LaneRoute, Wakeup};
use crate::open_breaker::{leaves, settle_as_class_says};
use crate::policies::Policy;
use crate::scheduler::{LANES_MAX, LaneEntry, LaneScheduler, LaneTurn, TurnEnd, TurnTerms};
use crate::suspended::LanesByOrigin;

/// How many deliveries are leased from a lane at once.
const LEASE_MAX: usize = 64;
/// Deliveries among which probes are chosen.
const PROBES_FROM: usize = 16;
/// Turns in a round, before wakeups and new lanes are looked at again.
const TURNS: usize = 256;
/// Lanes that the store is asked for at once, and how often before something is sent.
const LANES_ASKED: usize = 256;
const ASKED_MAX: usize = 16;
/// Suspended lanes that are remembered; any more are looked at every now and then.
const SUSPENDED_MAX: usize = 100_000;
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
const STORE_PAUSE: Duration = Duration::from_millis(250);

pub(crate) struct Leaser {
    consumer: Arc<dyn Consumer>,
    channels: HashMap<ChannelKind, Arc<dyn Channel>>,
    /// As it was at the beginning of the round.
    policy: Arc<Policy>,
    context: Arc<DispatchContext>,
    tasks: JoinSet<()>,
    scheduler: LaneScheduler,
    /// Lanes that wait by themselves.
    suspended: LanesByOrigin,
    /// Lanes whose wait was ended since the store last listed all that are ready.
    resumed: HashSet<LaneId>,
}

/// The result of a lane's turn.
struct TurnResult {
    leased: usize,
    end: TurnEnd,
    /// The lane itself has to wait: until a time, or until something happens.
    waits_until: Option<Timestamp>,
}

impl TurnResult {
    fn refused(refusal: LaneRefusal) -> Self {
        let until = match refusal.state {
            LaneState::Waiting { until, .. } => Some(until),
            LaneState::Blocked { .. } | LaneState::Ready => None,
        };
        if refusal.holds_part {
            return Self { leased: 0, end: TurnEnd::HoldsPart, waits_until: None };
        }
        if refusal.of_provider {
            let shut = matches!(
                refusal.state.gate(),
                Some(Gate::Breaker | Gate::Credential | Gate::MassGone)
            );
            let full = refusal.state.gate() == Some(Gate::Concurrency);
            let end = TurnEnd::ProviderFull { until, shut, full };
            return Self { leased: 0, end, waits_until: None };
        }
        let waits_until = until.or(Some(Timestamp::MAX));
        Self { leased: 0, end: TurnEnd::LaneDone, waits_until }
    }
}

impl Leaser {
    pub(crate) fn new(context: Arc<DispatchContext>, channels: Vec<Arc<dyn Channel>>) -> Self {
        Self {
            consumer: context.consumer.clone(),
            channels: channels.into_iter().map(|c| (c.kind(), c)).collect(),
            policy: context.lanes.policies().now(),
            context,
            tasks: JoinSet::new(),
            scheduler: LaneScheduler::default(),
            suspended: LanesByOrigin::default(),
            resumed: HashSet::new(),
        }
    }

    /// Runs until it is told to stop. Returns the tasks that are under way.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) -> JoinSet<()> {
        self.consumer.resume(None);
        while !has_ended(&stopped) {
            while self.tasks.try_join_next().is_some() {}
            let again = match self.round().await {
                Ok(again) => again,
                Err(StoreError::Closed) => break,
                Err(error) => {
                    self.context.observer.store_trouble("lease", &error);
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

    /// Sleeps until a round is worthwhile. Without room, new work is no reason to wake.
    async fn wait(&self, stopped: &mut watch::Receiver<bool>) {
        let (unsettled, wakeups) = (&self.context.unsettled, &self.context.lanes.wakeups);
        let has_room = unsettled.room() > 0;
        let takes_lanes = has_room && !self.is_full();
        let now = self.context.clock.now();
        let waking = self.scheduler.next_wake().map_or(WAIT_MAX, |at| at.since(now).min(WAIT_MAX));
        tokio::select! {
            biased;
            () = self.consumer.wait_for_work(waking), if takes_lanes => {}
            () = tokio::time::sleep(waking), if has_room && !takes_lanes => {}
            () = wakeups.gathered(), if has_room => {}
            () = wakeups.posted(), if has_room => {}
            () = unsettled.freed() => {}
            _ = stopped.changed() => {}
        }
    }

    /// Gives turns to those that may go. True if there is more to do at once.
    async fn round(&mut self) -> Result<bool, StoreError> {
        // Before any lease: limits are those of the part that is held now.
        self.context.lanes.set_part(self.consumer.part());
        if self.context.unsettled.room() == 0 {
            return Ok(false);
        }
        self.adopt_policy();
        self.wake_lanes();
        let swept = sweep(&self.context, self.policy.limits.lease).await?;
        let (mut newcomers, all_listed) = self.list_lanes().await?;
        let policy = self.policy.clone();
        let mut turns = 0;
        while turns < TURNS && self.context.unsettled.room() > 0 {
            let terms = self.terms(&policy);
            let Some(turn) = self.scheduler.next(terms) else { break };
            self.serve(turn).await?;
            turns += 1;
        }
        newcomers.retain(|lane| self.scheduler.hide(*lane));
        newcomers.into_iter().for_each(|lane| self.consumer.suspend(lane, Timestamp::MAX));
        Ok(turns > 0 || swept > 0 || !all_listed)
    }

    /// Takes over a policy that was set since the last round.
    fn adopt_policy(&mut self) {
        let policy = self.context.lanes.policies().now();
        if !Arc::ptr_eq(&policy, &self.policy) {
            self.context.unsettled.resize(policy.limits.unsettled_max());
            self.policy = policy;
        }
    }

    fn terms<'a>(&self, policy: &'a Policy) -> TurnTerms<'a> {
        TurnTerms { weights: &policy.limits.weights, now: self.context.clock.now() }
    }

    /// Acts upon the wakeups since the last round.
    fn wake_lanes(&mut self) {
        let policy = self.policy.clone();
        let terms = self.terms(&policy);
        let resumed = &mut self.resumed;
        let mut resume = |lane| {
            self.consumer.resume(Some(lane));
            resumed.insert(lane);
        };
        for wakeup in self.context.lanes.wakeups.take() {
            match wakeup {
                Wakeup::SlotsFree(provider) => self.scheduler.reopen(&provider, terms),
                Wakeup::GatesChanged(provider) => {
                    self.scheduler.reopen(&provider, terms);
                    self.suspended.take_of(&provider).into_iter().for_each(&mut resume);
                }
                Wakeup::Lane(lane) => {
                    self.suspended.remove(&lane).into_iter().for_each(&mut resume);
                }
                Wakeup::All => {
                    self.scheduler.reopen_all(terms);
                    self.suspended.take_all().into_iter().for_each(&mut resume);
                }
            }
        }
        self.scheduler.wake(terms);
    }

    /// Whether the store has to keep further lanes until some of these are done: then they are asked for
    /// again, after their turns.
    fn is_full(&self) -> bool {
        self.scheduler.len() >= LANES_MAX
    }

    /// Takes in the lanes that newly have something due. Says which, and whether these are all that can be
    /// taken in now.
    async fn list_lanes(&mut self) -> Result<(Vec<LaneId>, bool), StoreError> {
        let mut newcomers = Vec::new();
        for _ in 0..ASKED_MAX {
            if self.is_full() {
                return Ok((newcomers, true));
            }
            let listed = self.consumer.ready_lanes(LANES_ASKED).await?;
            let all = listed.len() < LANES_ASKED;
            let policy = self.policy.clone();
            let terms = self.terms(&policy);
            for ReadyLane { id, key, .. } in listed {
                let waited = self.suspended.remove(&key).is_some() | self.resumed.remove(&id);
                let free_since = if waited { terms.now } else { Timestamp(0) };
                let class = policy.class_or_default(&key.class);
                let (priority, impatient) = (class.priority, class.when_open != WhenOpen::Wait);
                let provider = self.context.lanes.route(&key).provider;
                let entry = LaneEntry { id, key, provider, priority, impatient, free_since };
                self.scheduler.join(entry, terms);
                newcomers.push(id);
            }
            if all {
                self.resumed.clear();
                return Ok((newcomers, true));
            }
            // So that they do not hide those behind them.
            newcomers.retain(|lane| self.scheduler.hide(*lane));
            newcomers.drain(..).for_each(|lane| self.consumer.suspend(lane, Timestamp::MAX));
        }
        Ok((newcomers, false))
    }

    /// Gives a lane its turn: asks its checks, leases what they let through and sends it.
    async fn serve(&mut self, turn: LaneTurn) -> Result<(), StoreError> {
        let want = turn.allowance().min(self.context.unsettled.room()).min(LEASE_MAX);
        let route = self.context.lanes.route(&turn.entry.key);
        let result = match self.try_to_send(&turn, &route, want).await {
            Ok(result) => result,
            Err(error) => {
                self.scheduler.put_back(turn);
                return Err(error);
            }
        };
        for (lane, event) in self.context.lanes.take_events() {
            self.context.observer.lane_event(&lane, event);
        }
        let LaneEntry { id, key, .. } = turn.entry.clone();
        let policy = self.policy.clone();
        let terms = self.terms(&policy);
        let hidden = self.scheduler.end(turn, route.provider, result.leased, result.end, terms);
        match result.waits_until {
            Some(until) => self.suspend(id, key, until),
            None if hidden => self.consumer.resume(Some(id)),
            None => {}
        }
        Ok(())
    }

    fn suspend(&mut self, id: LaneId, key: Arc<LaneKey>, until: Timestamp) {
        let is_too_many = self.suspended.len() >= SUSPENDED_MAX && !self.suspended.contains(&key);
        if is_too_many {
            let soon = self.context.clock.now() + LOOK_AGAIN;
            return self.consumer.suspend(id, until.min(soon));
        }
        let origins = self.context.lanes.origins(&key);
        self.suspended.insert(key, id, origins);
        self.consumer.suspend(id, until);
    }

    async fn try_to_send(
        &mut self,
        turn: &LaneTurn,
        route: &LaneRoute,
        want: usize,
    ) -> Result<TurnResult, StoreError> {
        let entry = &turn.entry;
        let class = self.policy.class_or_default(&entry.key.class).clone();
        let work =
            LaneWork::new(self.context.clone(), entry.key.clone(), class, self.policy.limits.times);
        let part = turn.part_at(&route.provider);
        match self.context.lanes.admit(&entry.key, route, entry.priority, want, part) {
            Ok(permit) => self.send(turn, work, permit).await,
            Err(refusal) if leaves(&work.class, refusal.state) => {
                let leased = self.consumer.lease(entry.id, want, self.policy.limits.lease).await?;
                let count = leased.len();
                self.context.unsettled.leased(count);
                settle_as_class_says(&work, leased, refusal.state);
                let end = if count == want { TurnEnd::More } else { TurnEnd::LaneDone };
                Ok(TurnResult { leased: count, end, waits_until: None })
            }
            Err(refusal) => {
                if let Some(gate) = refusal.state.gate() {
                    self.context.observer.lane_waits(&entry.key, gate);
                }
                Ok(TurnResult::refused(refusal))
            }
        }
    }

    async fn send(
        &mut self,
        turn: &LaneTurn,
        work: LaneWork,
        permit: LanePermit,
    ) -> Result<TurnResult, StoreError> {
        let (entry, context) = (&turn.entry, &self.context);
        let Some(channel) = self.channels.get(&entry.key.channel) else {
            let waits_until = Some(context.clock.now() + WAIT_MAX);
            return Ok(TurnResult { leased: 0, end: TurnEnd::LaneDone, waits_until });
        };
        let (asked, lease) = (permit.calls(), self.policy.limits.lease);
        let looked_at = if permit.probes() { asked.max(PROBES_FROM) } else { asked };
        let mut leased = self.consumer.lease(entry.id, looked_at, lease).await?;
        context.unsettled.leased(leased.len());
        let now = context.clock.now();
        if let Some(first) = leased.first() {
            context.observer.taken_up(now.since(first.due_at.max(turn.free_since)));
        }
        if permit.probes() {
            let (served, tried) = permit.probed();
            let others = keep_best(&mut leased, asked, |probe| ProbeTraits {
                address: probe.hash,
                is_served: served.contains(probe.hash.number()),
                is_tried: tried.contains(&probe.hash.number()),
                tries: probe.tries,
            });
            for other in others {
                work.settle_unattempted(other, now, |_| Decision::Release);
            }
        }
        let count = leased.len();
        let again_until = context.clock.now() + lease / 2;
        let jobs = leased.into_iter().map(|leased| DeliveryJob::new(leased, again_until)).collect();
        work.deliver(jobs, permit, channel, &mut self.tasks);
        context.observer.in_flight(context.unsettled.unsettled());
        let end = if count == asked { TurnEnd::More } else { TurnEnd::LaneDone };
        Ok(TurnResult { leased: count, end, waits_until: None })
    }
}

/// Told to stop, or nobody is left who could tell.
fn has_ended(stopped: &watch::Receiver<bool>) -> bool {
    *stopped.borrow() || stopped.has_changed().is_err()
}

//! The life of a leased delivery, top to bottom: halted or expired? attempt, decide, settle.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use postrider_core::model::decision::Decision;
use postrider_core::model::outcome::DEAD_ENDPOINT;
use postrider_core::policy::decide::{
    AttemptProgress, DeliveryRules, LeaseHistory, before_attempt, decide,
};
use postrider_core::ports::store::{Halt, Learned, Leased, Settlement, Store};
use postrider_core::{
    Attempt, AttemptRecord, Channel, ChannelKind, Class, Clock, Finished, LaneKey, Outcome, Report,
    Signal, Timestamp,
};
use tokio::sync::Notify;

use crate::blame::Blame;
use crate::flow::Flow;
use crate::jitter_rng::JitterRng;
use crate::lanes::{Aftermath, Lanes, Lesson, Ticket};
use crate::observer::Observer;
use crate::settler::{Pending, Settlements};

/// What every attempt needs, shared by all.
pub(crate) struct Bench {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) flow: Arc<Flow>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) settlements: Settlements,
    pub(crate) random: JitterRng,
}

impl Bench {
    /// Hands in what was decided about a leased delivery.
    pub(crate) fn settle(
        &self,
        lane: &Arc<LaneKey>,
        leased: &Leased,
        attempts: Vec<AttemptRecord>,
        decision: Decision,
    ) {
        self.settle_learned(lane, leased, attempts, decision, Learned::default());
    }

    fn settle_learned(
        &self,
        lane: &Arc<LaneKey>,
        leased: &Leased,
        attempts: Vec<AttemptRecord>,
        decision: Decision,
        learned: Learned,
    ) {
        let suspected = learned.strike.is_some_and(|struck| struck.makes_suspect(&leased.strikes));
        self.settlements.push(Pending {
            settlement: Settlement {
                delivery: leased.delivery,
                token: leased.token,
                attempts,
                decision,
                learned,
            },
            lane: lane.clone(),
            hash: leased.hash,
            suspected,
            accepted_at: leased.message.created_at,
            decided_at: self.clock.now(),
        });
    }
}

/// Leased deliveries of one lane that go to their channel together.
pub(crate) struct Batch {
    pub(crate) lane: Arc<LaneKey>,
    pub(crate) class: Arc<Class>,
    pub(crate) channel: Arc<dyn Channel>,
    pub(crate) ticket: Ticket,
    pub(crate) jobs: Vec<Job>,
}

pub(crate) struct Job {
    pub(crate) leased: Leased,
    resigned: bool,
    replays: u32,
    /// Attempts made under this lease, while there is none that ends it.
    log: Vec<AttemptRecord>,
    /// From here on another attempt could outlive the lease.
    again_until: Timestamp,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// To be attempted, at once.
    Open,
    /// Its channel has it.
    UnderWay,
    Ended,
}

impl Job {
    pub(crate) fn new(leased: Leased, again_until: Timestamp) -> Self {
        Self {
            leased,
            resigned: false,
            replays: 0,
            log: Vec::new(),
            again_until,
            stage: Stage::Open,
        }
    }

    pub(crate) fn is_retry(&self) -> bool {
        self.leased.tries > 0
    }

    /// What the call counts for in rate limits.
    pub(crate) fn weight(&self, channel: &dyn Channel) -> usize {
        channel.weight(&self.leased.target, &self.leased.message).max(1) as usize
    }

    /// Stands for the address.
    fn target(&self) -> u64 {
        target_of(&self.leased)
    }

    /// 1 for the first attempt of the delivery's life.
    fn next_number(&self) -> u32 {
        let under_lease = u32::try_from(self.log.len()).unwrap_or(u32::MAX);
        self.leased.tries.saturating_add(under_lease).saturating_add(1)
    }
}

/// Settles what must not be sent; says whether the delivery is still to be attempted.
pub(crate) fn may_be_sent(
    bench: &Bench,
    lane: &Arc<LaneKey>,
    leased: &Leased,
    class: &Class,
    now: Timestamp,
) -> bool {
    let (attempts, decision) = match leased.halt {
        Some(Halt::AddressGone) => (Vec::new(), Decision::AddressGone),
        Some(Halt::Cancelled) => (Vec::new(), Decision::Cancel),
        None => {
            let progress =
                AttemptProgress { attempts: leased.attempts + 1, ..AttemptProgress::default() };
            let past = LeaseHistory { crashes: leased.crashes, started: leased.started };
            let rules = rules(leased, class);
            match before_attempt(past, &progress, &rules, now, bench.random.next()) {
                Some(decision) => (unanswered(leased, &decision, now), decision),
                None => return true,
            }
        }
    };
    bench.settle(lane, leased, attempts, decision);
    false
}

/// The attempt that a crash left without an end, as it is remembered.
fn unanswered(leased: &Leased, decision: &Decision, now: Timestamp) -> Vec<AttemptRecord> {
    if !leased.started {
        return Vec::new();
    }
    let report = Report::new(Outcome::Ambiguous).code("crash");
    vec![record(leased.tries.saturating_add(1), report, 0, decision, now)]
}

impl Batch {
    /// Attempts every job until it has an end under this lease. What is to go again at once does not
    /// wait for the rest.
    pub(crate) async fn run(self, bench: Arc<Bench>) {
        let channel = self.channel;
        let running = Running {
            lane: self.lane,
            class: self.class,
            ticket: self.ticket,
            bench,
            jobs: self.jobs.into(),
            reopened: Notify::new(),
        };
        if running.class.sends_at_most_once() {
            running.note_start().await;
        }
        let mut calls = FuturesUnordered::new();
        loop {
            let attempts = running.open_attempts();
            if !attempts.is_empty() {
                calls.push(running.call(&*channel, attempts));
            }
            tokio::select! {
                biased;
                ended = calls.next() => if ended.is_none() { return },
                () = running.reopened.notified() => {}
            }
        }
    }
}

/// A batch under way. Whatever has no end when it is dropped, because the server is stopping, gives
/// its lease and its place back.
struct Running {
    lane: Arc<LaneKey>,
    class: Arc<Class>,
    ticket: Ticket,
    bench: Arc<Bench>,
    jobs: Mutex<Vec<Job>>,
    reopened: Notify,
}

impl Running {
    fn jobs(&self) -> MutexGuard<'_, Vec<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it durable that these attempts start: after a crash they are not simply made again. What
    /// cannot be noted is not attempted, nor is what expired while the disk took its time.
    async fn note_start(&self) {
        let leases = self.jobs().iter().map(|j| (j.leased.delivery, j.leased.token)).collect();
        let noted = self.bench.store.start(leases).await.unwrap_or_else(|error| {
            self.bench.observer.store_trouble("start", &error);
            Vec::new()
        });
        let (bench, now) = (&*self.bench, self.bench.clock.now());
        for (slot, job) in self.jobs().iter_mut().enumerate() {
            let is_noted = noted.get(slot) == Some(&true);
            if is_noted && may_be_sent(bench, &self.lane, &job.leased, &self.class, now) {
                continue;
            }
            job.stage = Stage::Ended;
            bench.lanes.ended(&self.ticket, None);
            if !is_noted {
                give_back(bench, &self.lane, job);
            }
        }
    }

    fn open_attempts(&self) -> Vec<Attempt> {
        let now = self.bench.clock.now();
        let mut jobs = self.jobs();
        let open = jobs.iter_mut().enumerate().filter(|(_, job)| job.stage == Stage::Open);
        open.map(|(slot, job)| {
            job.stage = Stage::UnderWay;
            Attempt {
                delivery: job.leased.delivery,
                message: job.leased.message.clone(),
                class: self.class.clone(),
                target: job.leased.target.clone(),
                number: job.next_number(),
                now,
                expires_at: job.leased.expires_at,
                address_since: job.leased.address_since,
                resign: job.resigned,
                replays: job.replays,
                slot,
            }
        })
        .collect()
    }

    /// One call of the channel. It owes a report for every attempt; without one we cannot know what
    /// happened. A panic is a bug of ours, and must not be met again at once and for ever.
    async fn call(&self, channel: &dyn Channel, attempts: Vec<Attempt>) {
        let slots: Vec<_> = attempts.iter().map(|a| (a.slot, a.number)).collect();
        let report = |finished| self.end(finished);
        let delivered = AssertUnwindSafe(channel.deliver(attempts, &report)).catch_unwind().await;
        let code = if delivered.is_ok() { "no_report" } else { "panic" };
        for (slot, number) in slots {
            self.insist(slot, number, code);
        }
    }

    fn end(&self, mut finished: Finished) {
        let mut jobs = self.jobs();
        let under_way = |job: &&mut Job| job.stage == Stage::UnderWay;
        let Some(job) = jobs.get_mut(finished.slot).filter(under_way) else { return };
        let (policies, now) = (self.bench.lanes.policies(), self.bench.clock.now());
        let blame = Blame::weigh(&mut finished.report, &job.leased, policies, now);
        let lesson = lesson(&self.lane, &job.leased, &finished);
        // What may go again at once teaches only if it does not.
        let may_go_again = matches!(
            finished.report.outcome,
            Outcome::ResignOnce | Outcome::Reconnect | Outcome::SwitchAccount
        );
        let after = if may_go_again { Aftermath::default() } else { self.learn(lesson) };
        if conclude(&self.bench, &self.lane, &self.class, job, finished, (after, blame)) {
            job.stage = Stage::Ended;
            if may_go_again {
                self.learn(lesson);
            }
        } else {
            job.stage = Stage::Open;
            self.reopened.notify_one();
        }
    }

    /// Ends a call with what it taught.
    fn learn(&self, lesson: Lesson) -> Aftermath {
        let after = self.bench.lanes.ended(&self.ticket, Some(lesson));
        if let Some(event) = after.event {
            self.bench.observer.lane_event(&self.lane, event);
        }
        after
    }

    fn insist(&self, slot: usize, number: u32, code: &str) {
        let silent = self
            .jobs()
            .get(slot)
            .is_some_and(|j| j.stage == Stage::UnderWay && j.next_number() == number);
        if silent {
            let report = Report::new(Outcome::Ambiguous).code(code);
            self.end(Finished { slot, report, latency_ms: 0 });
        }
    }

    /// The server stops in the middle of it. Where a duplicate is worse than a loss, an attempt that
    /// may have reached its provider is for a person to judge.
    fn cut_off(&self, job: &mut Job) {
        if job.stage == Stage::UnderWay && self.class.sends_at_most_once() {
            let report = Report::new(Outcome::Ambiguous).code("shutdown");
            let finished = Finished { slot: 0, report, latency_ms: 0 };
            let nothing = (Aftermath::default(), Blame::default());
            conclude(&self.bench, &self.lane, &self.class, job, finished, nothing);
            return;
        }
        give_back(&self.bench, &self.lane, job);
    }
}

/// Puts off what its address takes no more of at this moment; no attempt is made.
pub(crate) fn is_in_turn(bench: &Bench, lane: &Arc<LaneKey>, job: &mut Job) -> bool {
    let Err(until) = bench.lanes.address_in_turn(lane, job.target()) else { return true };
    let after = until.since(bench.clock.now());
    bench.settle(lane, &job.leased, Vec::new(), Decision::Park { after });
    false
}

fn target_of(leased: &Leased) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = leased.hash.0;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Ends the lease as if it had never been, but for the attempts that were made under it.
pub(crate) fn give_back(bench: &Bench, lane: &Arc<LaneKey>, job: &mut Job) {
    let attempts = std::mem::take(&mut job.log);
    bench.settle(lane, &job.leased, attempts, Decision::Release);
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut jobs = std::mem::take(&mut *self.jobs());
        for job in jobs.iter_mut().filter(|job| job.stage != Stage::Ended) {
            self.bench.lanes.ended(&self.ticket, None);
            self.cut_off(job);
        }
    }
}

/// What an answer says about the provider.
fn lesson(lane: &LaneKey, leased: &Leased, finished: &Finished) -> Lesson {
    let report = &finished.report;
    Lesson {
        signal: Signal::of(&report.outcome, report.status),
        gone: report.outcome == Outcome::Gone && report.code.as_deref() != Some(DEAD_ENDPOINT),
        wait: match report.outcome {
            Outcome::RetryAfter { after, scope } | Outcome::Hold { after, scope } => {
                Some((scope, after))
            }
            _ => None,
        },
        latency_ms: finished.latency_ms,
        is_retry: leased.tries > 0,
        target: target_of(leased),
        // A plain HTTP request names a credential of its own.
        tenant_credential: lane.channel != ChannelKind::Http,
        // An account that fails is left out by its channel; others of the lane's tenants may be well.
        counts_for_breaker: !lane.channel.has_accounts(),
    }
}

/// Decides what one answer leads to and hands it to the settler. False if the job goes once more.
fn conclude(
    bench: &Bench,
    lane: &Arc<LaneKey>,
    class: &Class,
    job: &mut Job,
    finished: Finished,
    (after, blame): (Aftermath, Blame),
) -> bool {
    let now = bench.clock.now_rounded_up();
    let leased = &job.leased;
    let progress = AttemptProgress {
        attempts: leased.attempts + 1,
        last_delay: leased.last_delay,
        resigned: job.resigned,
        replays: job.replays,
        address_age: leased.address_since.map(|since| now.since(since)),
        excused: after.excused,
        doubted: after.doubted,
        retries_max: finished.report.terms.retries_max,
    };
    let rules = rules(leased, class);
    let mut decision =
        decide(&finished.report.outcome, &progress, &rules, now, bench.random.next());
    if matches!(decision, Decision::Again { .. }) && now >= job.again_until {
        decision = Decision::Retry { after: Duration::ZERO, counted: false };
    }
    let record = record(job.next_number(), finished.report, finished.latency_ms, &decision, now);
    bench.observer.attempted(lane, leased.delivery, leased.hash, &record);
    if let Decision::Again { resign } = decision {
        job.resigned |= resign;
        job.replays += u32::from(!resign);
        job.log.push(record);
        return false;
    }
    let attempts = match job.log.is_empty() {
        true => vec![record],
        false => {
            job.log.push(record);
            std::mem::take(&mut job.log)
        }
    };
    let learned = blame.learned(leased, &decision, now);
    bench.settle_learned(lane, leased, attempts, decision, learned);
    true
}

fn rules<'a>(leased: &'a Leased, class: &'a Class) -> DeliveryRules<'a> {
    let own = leased.retry.as_ref().or(leased.message.envelope.retry.as_ref());
    DeliveryRules {
        retry: own.unwrap_or(&class.retry),
        on_ambiguous: class.on_ambiguous,
        shows_repeats: leased.target.channel().shows_repeats(),
        on_expiry: class.on_expiry,
        ttl_s: leased.message.ttl_s,
        expires_at: leased.expires_at,
    }
}

fn record(
    number: u32,
    report: Report,
    latency_ms: u32,
    decision: &Decision,
    now: Timestamp,
) -> AttemptRecord {
    let (next_at, counted) = match decision {
        Decision::Retry { after, counted } => (Some(now + *after), *counted),
        Decision::Park { after } => (Some(now + *after), false),
        Decision::Again { .. } => (Some(now), false),
        _ => (None, true),
    };
    AttemptRecord {
        number,
        at: now - Duration::from_millis(u64::from(latency_ms)),
        latency_ms,
        outcome: report.outcome.kind(),
        decision: decision.kind(),
        status: report.status,
        code: report.code,
        detail: report.detail,
        retry_after: report.retry_after,
        provider_id: report.provider_id,
        key: report.key,
        next_at,
        counted,
        strike: report.terms.strike,
    }
}

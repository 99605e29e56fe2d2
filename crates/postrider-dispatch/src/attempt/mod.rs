//! The life of a leased delivery, from top to bottom:
//!
//! leased → still sendable? → permitted? → attempt → classify → decide → settle
//!
//! [`LaneWork::deliver`] takes it from the lease to the calls, [`AttemptBatch`] from the call to the
//! settlement. The channel makes the call and classifies the answer. A step returns the decision that
//! ends the lease, or `None` if the next step follows; only [`LaneWork::settle`] ends a lease.

mod answer;
mod batch;
mod consent;
mod job;
mod misfits;

use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::decision::Decision;
use postrider_core::policy::decide::{
    AttemptProgress, AttemptTimes, DeliveryRules, LeaseHistory, before_attempt,
};
use postrider_core::policy::ttl;
use postrider_core::ports::store::{AddressLearning, Halt, LeasedDelivery};
use postrider_core::{Channel, ChannelTraits, Class, DeadReason, LaneKey, TimeBounds, Timestamp};
use tokio::task::JoinSet;

use crate::context::DispatchContext;
use crate::lanes::{LanePermit, RetryAllowance};
use crate::observer::PutOff;
use answer::UnansweredCause;
pub(crate) use batch::AttemptBatch;
pub(crate) use job::DeliveryJob;

/// What one task sends: large enough to encrypt in one go, small enough to spread over cores.
const TASK_JOBS: usize = 16;

/// How long a delivery waits whose expiry is in doubt, because the system's clock is.
const CLOCK_PAUSE: Duration = Duration::from_secs(30);

/// How far apart retries are put off that do not fit their lane's budget.
const RETRY_SPREAD: Duration = Duration::from_millis(100);

/// The deliveries of one lane that were leased together, and the rules for them.
#[derive(Clone)]
pub(crate) struct LaneWork {
    pub(crate) context: Arc<DispatchContext>,
    pub(crate) lane: Arc<LaneKey>,
    pub(crate) class: Arc<Class>,
    times: AttemptTimes,
    traits: &'static ChannelTraits,
}

impl LaneWork {
    pub(crate) fn new(
        context: Arc<DispatchContext>,
        lane: Arc<LaneKey>,
        class: Arc<Class>,
        times: AttemptTimes,
    ) -> Self {
        let traits = context.traits.get(&lane.channel).copied().unwrap_or(&ChannelTraits::PLAIN);
        Self { context, lane, class, times, traits }
    }

    /// Sends what is leased.
    pub(crate) fn deliver(
        self,
        mut jobs: Vec<DeliveryJob>,
        permit: LanePermit,
        channel: &Arc<dyn Channel>,
        tasks: &mut JoinSet<()>,
    ) {
        let now = self.context.clock.now();
        jobs.retain_mut(|job| {
            !self.settle_if_decided(job, |job| self.reason_not_to_send(job, now))
        });
        let jobs = self.send_misfits(jobs, &permit, channel, tasks);
        self.send_under(jobs, permit, channel, tasks);
    }

    /// Sends what the permit allows, and puts the rest off.
    fn send_under(
        self,
        mut jobs: Vec<DeliveryJob>,
        permit: LanePermit,
        channel: &Arc<dyn Channel>,
        tasks: &mut JoinSet<()>,
    ) {
        let now = self.context.clock.now();
        let rests = permit.rests(jobs.iter().map(DeliveryJob::target));
        let mut rests = rests.into_iter();
        self.put_some_off(&mut jobs, PutOff::AddressRest, |_| {
            rests.next().flatten().map(|until| put_off(until, now))
        });
        let retries = jobs.iter().filter(|job| job.is_retry()).count();
        let mut budget = self.context.lanes.spend(&self.lane, jobs.len() - retries, retries);
        self.put_some_off(&mut jobs, PutOff::RetryBudget, |job| {
            self.over_budget(job, &mut budget, now)
        });
        self.put_some_off(&mut jobs, PutOff::AddressRate, |job| self.over_address_rate(job));

        let weight = jobs.iter().map(|job| job.weight(&**channel)).sum::<usize>();
        permit.charge(weight.saturating_sub(jobs.len()));
        jobs.iter_mut().for_each(|job| job.account = permit.account().cloned());
        let tickets = permit.begin(jobs.iter().map(DeliveryJob::target));
        jobs.iter_mut().zip(tickets).for_each(|(job, ticket)| job.ticket = Some(ticket));
        // Each task attempts, classifies, decides and settles.
        while jobs.len() > TASK_JOBS {
            let rest = jobs.split_off(TASK_JOBS);
            let jobs = std::mem::replace(&mut jobs, rest);
            let batch = AttemptBatch::new(self.clone(), jobs);
            tasks.spawn(batch.run(channel.clone()));
        }
        if !jobs.is_empty() {
            tasks.spawn(AttemptBatch::new(self, jobs).run(channel.clone()));
        }
    }

    /// The decision about a leased delivery that is not to be attempted any more.
    pub(crate) fn reason_not_to_send(
        &self,
        job: &mut DeliveryJob,
        now: Timestamp,
    ) -> Option<Decision> {
        let leased = &job.leased;
        match leased.halt {
            Some(Halt::AddressGone) => return Some(Decision::AddressGone),
            Some(Halt::Cancelled | Halt::AddressDeleted) => return Some(Decision::Cancel),
            Some(Halt::Unreadable) => return Some(Decision::DeadLetter(DeadReason::Poison)),
            None => {}
        }
        // What may have been sent is judged as such, whatever the time is.
        if !leased.started && self.is_expiry_in_doubt(leased) {
            return Some(Decision::Park { after: CLOCK_PAUSE });
        }
        let now = now.min(self.context.clock.bounds().latest);
        let progress =
            AttemptProgress { attempts: leased.attempts + 1, ..AttemptProgress::default() };
        let history = LeaseHistory { crashes: leased.crashes, started: leased.started };
        let (rules, random) = (self.rules(leased), self.context.random.next());
        let decision = before_attempt(history, &progress, &rules, now, random)?;
        if leased.started {
            // The attempt that a crash left without an end.
            job.log_attempt(UnansweredCause::Crash.report(), 0, &decision, now);
        }
        Some(decision)
    }

    /// A delivery that is over by one clock and not by another one is neither sent nor ended until they agree.
    fn is_expiry_in_doubt(&self, leased: &LeasedDelivery) -> bool {
        let TimeBounds { earliest, latest } = self.context.clock.bounds();
        let is_over = |now| ttl::is_over(leased.expires_at, now);
        is_over(latest) && !is_over(earliest)
    }

    /// Takes the call from the address' own rate, or puts the delivery off until there is room.
    fn over_address_rate(&self, job: &DeliveryJob) -> Option<Decision> {
        let until = self.context.lanes.take_address(&self.lane, job.target()).err()?;
        Some(Decision::Park { after: until.since(self.context.clock.now()) })
    }

    /// Retries beyond the lane's budget are put off, so that they do not stand before first attempts.
    fn over_budget(
        &self,
        job: &DeliveryJob,
        budget: &mut RetryAllowance,
        now: Timestamp,
    ) -> Option<Decision> {
        if !job.is_retry() {
            return None;
        }
        if let Some(left) = budget.retries.checked_sub(1) {
            budget.retries = left;
            return None;
        }
        budget.more_at = budget.more_at + RETRY_SPREAD.mul_f64(2.0 * self.context.random.next());
        Some(put_off(budget.more_at, now))
    }

    /// Puts off the deliveries for which the step says so, and tells how many.
    fn put_some_off(
        &self,
        jobs: &mut Vec<DeliveryJob>,
        why: PutOff,
        mut step: impl FnMut(&DeliveryJob) -> Option<Decision>,
    ) {
        let before = jobs.len();
        jobs.retain_mut(|job| !self.settle_if_decided(job, |job| step(job)));
        let count = before - jobs.len();
        if count > 0 {
            self.context.observer.put_off(&self.lane, why, count);
        }
    }

    /// True if the step ended the delivery's lease.
    fn settle_if_decided(
        &self,
        job: &mut DeliveryJob,
        step: impl FnOnce(&mut DeliveryJob) -> Option<Decision>,
    ) -> bool {
        let decision = step(job);
        decision.map(|decision| self.settle(job, decision)).is_some()
    }

    /// Ends the lease of a delivery that is not attempted now, as `otherwise` says if nothing else does.
    pub(crate) fn settle_unattempted(
        &self,
        leased: LeasedDelivery,
        now: Timestamp,
        otherwise: impl FnOnce(&LeasedDelivery) -> Decision,
    ) {
        let mut job = DeliveryJob::new(leased, now);
        let decision = self.reason_not_to_send(&mut job, now);
        let decision = decision.unwrap_or_else(|| otherwise(&job.leased));
        self.settle(&mut job, decision);
    }

    /// Ends the lease of a delivery.
    pub(crate) fn settle(&self, job: &mut DeliveryJob, decision: Decision) {
        self.context.settle(&self.lane, job, decision, AddressLearning::default());
    }

    fn rules<'a>(&'a self, leased: &'a LeasedDelivery) -> DeliveryRules<'a> {
        let own = leased.retry.as_ref().or(leased.message.envelope.retry.as_ref());
        DeliveryRules {
            retry: own.unwrap_or(&self.class.retry),
            on_ambiguous: self.class.on_ambiguous,
            shows_repeats: self.traits.shows_repeats,
            on_expiry: self.class.on_expiry,
            is_one_shot: is_one_shot(leased, self.context.clock.now()),
            expires_at: leased.expires_at,
            times: self.times,
        }
    }
}

/// Whether there is one attempt and no retry.
fn is_one_shot(leased: &LeasedDelivery, now: Timestamp) -> bool {
    let message = &leased.message;
    ttl::is_one_shot(message.ttl_s, message.expires_at, leased.expires_at, now)
}

fn put_off(until: Timestamp, now: Timestamp) -> Decision {
    Decision::Park { after: until.since(now) }
}

//! The life of a leased delivery, from top to bottom:
//!
//! leased → still sendable? → permitted? → attempt → classify → decide → settle
//!
//! [`LaneWork::deliver`] takes it from the lease to the calls, [`AttemptBatch`] from the call to the
//! settlement. The channel makes the call and classifies the answer. A step says what follows; only
//! [`LaneWork::settle`] ends a lease.

mod answer;
mod batch;
mod job;

use std::sync::Arc;

use postrider_core::model::decision::Decision;
use postrider_core::policy::decide::{
    AttemptProgress, DeliveryRules, LeaseHistory, before_attempt,
};
use postrider_core::ports::store::{AddressLearning, Halt, LeasedDelivery};
use postrider_core::{Channel, ChannelTraits, Class, LaneKey, Timestamp};
use tokio::task::JoinSet;

use crate::context::DispatchContext;
use crate::lanes::{LanePermit, RetryAllowance};
use answer::UnansweredCause;
pub(crate) use batch::AttemptBatch;
pub(crate) use job::DeliveryJob;

/// What one task sends: large enough to encrypt in one go, small enough to spread over cores.
const TASK_JOBS: usize = 16;

/// What follows a step of a delivery's life.
pub(crate) enum Step {
    /// The next step.
    Ready,
    /// The end of its lease.
    Settle(Decision),
}

/// The deliveries of one lane that were leased together, and the rules for them.
#[derive(Clone)]
pub(crate) struct LaneWork {
    pub(crate) context: Arc<DispatchContext>,
    pub(crate) lane: Arc<LaneKey>,
    pub(crate) class: Arc<Class>,
    traits: &'static ChannelTraits,
}

impl LaneWork {
    pub(crate) fn new(
        context: Arc<DispatchContext>,
        lane: Arc<LaneKey>,
        class: Arc<Class>,
    ) -> Self {
        let traits = context.traits.get(&lane.channel).copied().unwrap_or(&ChannelTraits::PLAIN);
        Self { context, lane, class, traits }
    }

    /// Sends what is leased. Says until when the lane waits, if its retry budget is spent.
    pub(crate) fn deliver(
        &self,
        mut jobs: Vec<DeliveryJob>,
        permit: LanePermit,
        channel: &Arc<dyn Channel>,
        tasks: &mut JoinSet<()>,
    ) -> Option<Timestamp> {
        let now = self.context.clock.now();
        jobs.retain_mut(|job| self.settle_unless_ready(job, |job| self.still_sendable(job, now)));

        let retries = jobs.iter().filter(|job| job.is_retry()).count();
        let mut budget = self.context.lanes.spend(&self.lane, jobs.len() - retries, retries);
        let waits_until = (budget.retries < retries).then_some(budget.more_at);
        jobs.retain_mut(|job| self.settle_unless_ready(job, |job| within_budget(job, &mut budget)));
        jobs.retain_mut(|job| self.settle_unless_ready(job, |job| self.address_permits(job)));

        let weight = jobs.iter().map(|job| job.weight(&**channel)).sum::<usize>();
        permit.charge(weight.saturating_sub(jobs.len()));
        let permit = permit.begin(jobs.len());
        while !jobs.is_empty() {
            let rest = jobs.split_off(jobs.len().min(TASK_JOBS));
            let jobs = std::mem::replace(&mut jobs, rest);
            let batch = AttemptBatch::new(self.clone(), permit.clone(), jobs);
            // Attempts, classifies, decides and settles.
            tasks.spawn(batch.run(channel.clone()));
        }
        waits_until
    }

    /// Whether a leased delivery is still to be attempted.
    pub(crate) fn still_sendable(&self, job: &mut DeliveryJob, now: Timestamp) -> Step {
        let leased = &job.leased;
        match leased.halt {
            Some(Halt::AddressGone) => return Step::Settle(Decision::AddressGone),
            Some(Halt::Cancelled) => return Step::Settle(Decision::Cancel),
            None => {}
        }
        let progress =
            AttemptProgress { attempts: leased.attempts + 1, ..AttemptProgress::default() };
        let history = LeaseHistory { crashes: leased.crashes, started: leased.started };
        let (rules, random) = (self.rules(leased), self.context.random.next());
        let Some(decision) = before_attempt(history, &progress, &rules, now, random) else {
            return Step::Ready;
        };
        if leased.started {
            // The attempt that a crash left without an end.
            job.log_attempt(UnansweredCause::Crash.report(), 0, &decision, now);
        }
        Step::Settle(decision)
    }

    /// Takes the call from the address' own rate, or puts the delivery off until there is room.
    fn address_permits(&self, job: &DeliveryJob) -> Step {
        match self.context.lanes.take_address(&self.lane, job.target()) {
            Ok(()) => Step::Ready,
            Err(until) => {
                let after = until.since(self.context.clock.now());
                Step::Settle(Decision::Park { after })
            }
        }
    }

    /// True if the delivery goes on after the step.
    fn settle_unless_ready(
        &self,
        job: &mut DeliveryJob,
        step: impl FnOnce(&mut DeliveryJob) -> Step,
    ) -> bool {
        match step(job) {
            Step::Ready => true,
            Step::Settle(decision) => {
                self.settle(job, decision);
                false
            }
        }
    }

    /// Ends the lease of a delivery.
    pub(crate) fn settle(&self, job: &mut DeliveryJob, decision: Decision) {
        self.context.settle(&self.lane, job, decision, AddressLearning::default());
    }
}

/// Retries beyond the lane's budget give their leases back.
fn within_budget(job: &DeliveryJob, budget: &mut RetryAllowance) -> Step {
    if !job.is_retry() {
        return Step::Ready;
    }
    match budget.retries.checked_sub(1) {
        Some(left) => {
            budget.retries = left;
            Step::Ready
        }
        None => Step::Settle(Decision::Release),
    }
}

impl LaneWork {
    fn rules<'a>(&'a self, leased: &'a LeasedDelivery) -> DeliveryRules<'a> {
        let own = leased.retry.as_ref().or(leased.message.envelope.retry.as_ref());
        DeliveryRules {
            retry: own.unwrap_or(&self.class.retry),
            on_ambiguous: self.class.on_ambiguous,
            shows_repeats: self.traits.shows_repeats,
            on_expiry: self.class.on_expiry,
            ttl_s: leased.message.ttl_s,
            expires_at: leased.expires_at,
        }
    }
}

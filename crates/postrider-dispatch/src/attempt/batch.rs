//! Deliveries of one lane that go to their channel together: attempts each until its lease has an end.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use postrider_core::model::decision::Decision;
use postrider_core::{Attempt, Channel, Finished, Outcome, Report};
use tokio::sync::Notify;

use super::answer::UnansweredCause;
use super::job::JobStage;
use super::{DeliveryJob, LaneWork};
use crate::lanes::{CallEffect, CallResult, OwnShortage};
use crate::strike_assessment::StrikeAssessment;

/// Dropped while the server stops, it ends the leases that are left and frees their slots.
pub(crate) struct AttemptBatch {
    pub(super) work: LaneWork,
    jobs: Mutex<Vec<DeliveryJob>>,
    reopened: Notify,
}

impl AttemptBatch {
    pub(super) fn new(work: LaneWork, jobs: Vec<DeliveryJob>) -> Self {
        Self { work, jobs: Mutex::new(jobs), reopened: Notify::new() }
    }

    /// Attempts every job. One that is to go again at once does not wait for the rest.
    pub(super) async fn run(self, channel: Arc<dyn Channel>) {
        self.ask_audience().await;
        if self.work.class.sends_at_most_once() {
            self.note_start().await;
        }
        let mut calls = FuturesUnordered::new();
        loop {
            let attempts = self.open_attempts();
            if !attempts.is_empty() {
                calls.push(self.call(&*channel, attempts));
            }
            tokio::select! {
                biased;
                ended = calls.next() => if ended.is_none() { return },
                () = self.reopened.notified() => {}
            }
        }
    }

    /// Makes it durable that these attempts start: after a crash they are not simply made again. A
    /// job that cannot be noted, or that expired while the disk took its time, is not attempted.
    async fn note_start(&self) {
        let context = &self.work.context;
        let is_open = |job: &&DeliveryJob| job.stage == JobStage::Open;
        let lease = |job: &DeliveryJob| (job.leased.delivery, job.leased.token);
        let leases = self.jobs().iter().filter(is_open).map(lease).collect();
        let noted = context.consumer.start(leases).await.unwrap_or_else(|error| {
            context.observer.store_trouble("start", &error);
            Vec::new()
        });
        let now = context.clock.now();
        let mut jobs = self.jobs();
        let open = jobs.iter_mut().filter(|job| job.stage == JobStage::Open);
        for (slot, job) in open.enumerate() {
            let decision = match noted.get(slot) {
                Some(true) => self.work.reason_not_to_send(job, now),
                _ => Some(Decision::Release),
            };
            if let Some(decision) = decision {
                job.stage = JobStage::Ended;
                job.ticket = None;
                self.work.settle(job, decision);
            }
        }
    }

    fn open_attempts(&self) -> Vec<Attempt> {
        let clock = &self.work.context.clock;
        let (now, offset_ms) = (clock.now(), clock.wall_offset_ms());
        let makes_spans = self.work.context.observer.makes_spans();
        let mut jobs = self.jobs();
        let open = jobs.iter_mut().enumerate().filter(|(_, job)| job.stage == JobStage::Open);
        open.map(|(slot, job)| {
            job.stage = JobStage::UnderWay;
            job.attempt(&self.work.class, slot, now, offset_ms, makes_spans)
        })
        .collect()
    }

    /// One call of the channel. It owes a report for every attempt; without one we cannot know what
    /// happened. A panic is a bug of ours, and must not be met again at once and for ever.
    async fn call(&self, channel: &dyn Channel, attempts: Vec<Attempt>) {
        let slots: Vec<_> = attempts.iter().map(|a| (a.slot, a.number)).collect();
        let report = |finished| self.answered(finished);
        let delivered = AssertUnwindSafe(channel.deliver(attempts, &report)).catch_unwind().await;
        let cause =
            if delivered.is_ok() { UnansweredCause::NoReport } else { UnansweredCause::Panic };
        for (slot, number) in slots {
            self.end_unanswered(slot, number, cause);
        }
    }

    /// One answer: what it means for provider and address, what is decided, and the settlement.
    fn answered(&self, mut finished: Finished) {
        let mut jobs = self.jobs();
        let under_way = |job: &&mut DeliveryJob| job.stage == JobStage::UnderWay;
        let Some(job) = jobs.get_mut(finished.slot).filter(under_way) else { return };
        let (work, context) = (&self.work, &self.work.context);

        let policies = context.lanes.policies();
        let report = &mut finished.report;
        let strikes = StrikeAssessment::of(report, &job.leased, policies, context.clock.now());
        // An answer after which the attempt may go again at once teaches only if it does not.
        let may_repeat = report.outcome.may_repeat_at_once();
        let result = work.call_result(job, &finished);
        let effect = if may_repeat { CallEffect::default() } else { self.learn(job, result) };

        let now = context.clock.now_rounded_up();
        let decision = work.decide(job, &finished.report, effect, now);
        if finished.report.outcome == Outcome::Local {
            let Report { code, detail, .. } = finished.report;
            let text = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
            let (code, detail) = (text(code), text(detail));
            context.observer.shortage(&work.lane, &code);
            context.lanes.note_shortage(OwnShortage { code, detail }, now);
        } else {
            work.record(job, finished, &decision, now);
        }
        if let Decision::Again { resign } = decision {
            job.reopen(resign);
            self.reopened.notify_one();
            return;
        }
        let learned = strikes.learned(&job.leased, &decision, now);
        context.settle(&work.lane, job, decision, learned);
        job.stage = JobStage::Ended;
        if may_repeat {
            self.learn(job, result);
        }
    }

    /// Ends a call with its result.
    fn learn(&self, job: &mut DeliveryJob, result: CallResult) -> CallEffect {
        let context = &self.work.context;
        let ticket = job.ticket.take();
        let effect = ticket.map_or_else(CallEffect::default, |ticket| ticket.end(result));
        for event in effect.event.into_iter().chain(effect.tenant_event) {
            context.observer.lane_event(&self.work.lane, event);
        }
        effect
    }

    fn end_unanswered(&self, slot: usize, number: u32, cause: UnansweredCause) {
        let is_unanswered = self
            .jobs()
            .get(slot)
            .is_some_and(|j| j.stage == JobStage::UnderWay && j.next_number() == number);
        if is_unanswered {
            self.answered(Finished { slot, report: cause.report(), latency_ms: 0, waited_ms: 0 });
        }
    }

    /// The server stops while the job is open or under way. Where a duplicate is worse than a loss, a
    /// person judges an attempt that may have reached its provider.
    fn stop(&self, job: &mut DeliveryJob) {
        if job.stage != JobStage::UnderWay || !self.work.class.sends_at_most_once() {
            return self.work.settle(job, Decision::Release);
        }
        let now = self.work.context.clock.now_rounded_up();
        let report = UnansweredCause::Shutdown.report();
        let decision = self.work.decide(job, &report, CallEffect::default(), now);
        self.work.record(
            job,
            Finished { slot: 0, report, latency_ms: 0, waited_ms: 0 },
            &decision,
            now,
        );
        self.work.settle(job, decision);
    }

    pub(super) fn jobs(&self) -> MutexGuard<'_, Vec<DeliveryJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AttemptBatch {
    fn drop(&mut self) {
        let mut jobs = std::mem::take(&mut *self.jobs());
        for job in jobs.iter_mut().filter(|job| job.stage != JobStage::Ended) {
            job.ticket = None;
            self.stop(job);
        }
    }
}

//! The last question before the call: does the recipient want this, and now? What was true at the intake may have
//! changed since.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::model::decision::Decision;
use postrider_core::policy::audience::{IntendedSend, SendVerdict, WithheldReason};

use super::batch::AttemptBatch;
use super::job::JobStage;
use crate::audience::{PersonRecord, ReachedPerson};
use crate::observer::PutOff;

/// How long deliveries wait if the store cannot be asked.
const STORE_PAUSE: Duration = Duration::from_secs(5);

impl AttemptBatch {
    /// Ends the leases of those who are not to be sent to now. Costs nothing for a tenant without rules.
    pub(super) async fn ask_audience(&self) {
        let (context, lane) = (&self.work.context, &self.work.lane);
        let book = context.lanes.policies().audience();
        let Some(rules) = book.rules(&lane.tenant) else { return };
        let person = |job: &super::DeliveryJob| ReachedPerson {
            recipient: job.leased.recipient.clone(),
            hash: job.leased.hash,
        };
        let people: Vec<_> = self.jobs().iter().map(person).collect();
        let found = match book.look_up(&lane.tenant, &rules, &people).await {
            Ok(found) => found,
            Err(error) => {
                context.observer.store_trouble("look up recipients", &error);
                return self.end_all(Decision::Park { after: STORE_PAUSE });
            }
        };
        let now = context.clock.now();
        let mut waiting = 0;
        for (slot, record) in found.iter().enumerate() {
            let verdict = self.verdict(slot, &rules, record, now);
            let decision = match verdict {
                Some(SendVerdict::Withhold(reason)) => {
                    context.observer.withheld(lane, reason);
                    Decision::Suppress
                }
                Some(SendVerdict::Wait { until }) => {
                    waiting += 1;
                    Decision::Park { after: until.since(now) }
                }
                Some(SendVerdict::Expire) => Decision::Expire,
                Some(SendVerdict::Send(_)) | None => continue,
            };
            let reason = match verdict {
                Some(SendVerdict::Withhold(reason)) => Some(reason),
                Some(SendVerdict::Expire) => Some(WithheldReason::QuietHours),
                _ => None,
            };
            self.end_open(slot, reason, decision, now);
        }
        if waiting > 0 {
            context.observer.put_off(lane, PutOff::QuietHours, waiting);
        }
    }

    fn verdict(
        &self,
        slot: usize,
        rules: &postrider_core::policy::audience::AudienceRules,
        record: &PersonRecord,
        now: Timestamp,
    ) -> Option<SendVerdict> {
        let jobs = self.jobs();
        let leased = &jobs.get(slot)?.leased;
        let send = IntendedSend {
            category: leased.message.envelope.category.as_deref(),
            channel: leased.target.channel(),
            on_quiet: self.work.class.quiet_hours,
            expires_at: leased.expires_at,
            // People look at the clock on the wall.
            now: Timestamp(now.0.saturating_add(self.work.context.clock.wall_offset_ms())),
            random: self.work.context.random.next(),
        };
        Some(record.assess(rules, send))
    }

    /// Ends a lease without a call. A final decision leaves its reason in the log.
    fn end_open(
        &self,
        slot: usize,
        reason: Option<WithheldReason>,
        decision: Decision,
        now: Timestamp,
    ) {
        let mut jobs = self.jobs();
        let Some(job) = jobs.get_mut(slot).filter(|job| job.stage == JobStage::Open) else {
            return;
        };
        if let Some(reason) = reason {
            job.log_withheld(reason, &decision, now);
        }
        job.stage = JobStage::Ended;
        job.ticket = None;
        self.work.settle(job, decision);
    }

    fn end_all(&self, decision: Decision) {
        let (count, now) = (self.jobs().len(), self.work.context.clock.now());
        (0..count).for_each(|slot| self.end_open(slot, None, decision.clone(), now));
    }
}

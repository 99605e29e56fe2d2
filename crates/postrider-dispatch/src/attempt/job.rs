//! One leased delivery on its way. Holds what happened under this lease; decides nothing.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::decision::Decision;
use postrider_core::model::trace::{TraceParent, span_of_attempt};
use postrider_core::policy::audience::WithheldReason;
use postrider_core::ports::store::LeasedDelivery;
use postrider_core::{Attempt, AttemptRecord, Channel, Class, OutcomeKind, Report, Timestamp};

use crate::lanes::CallTicket;

pub(crate) struct DeliveryJob {
    pub(crate) leased: LeasedDelivery,
    pub(super) resigned: bool,
    pub(super) replays: u32,
    /// Attempts made under this lease.
    pub(crate) log: Vec<AttemptRecord>,
    /// From here on another attempt could outlive the lease.
    pub(super) again_until: Timestamp,
    pub(super) stage: JobStage,
    /// The account that its call was permitted for.
    pub(super) account: Option<Arc<str>>,
    /// The call under way, or about to be.
    pub(super) ticket: Option<CallTicket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobStage {
    /// To be attempted at once.
    Open,
    /// Its channel has it.
    UnderWay,
    Ended,
}

impl DeliveryJob {
    pub(crate) fn new(leased: LeasedDelivery, again_until: Timestamp) -> Self {
        Self {
            leased,
            resigned: false,
            replays: 0,
            log: Vec::new(),
            again_until,
            stage: JobStage::Open,
            account: None,
            ticket: None,
        }
    }

    pub(crate) fn is_retry(&self) -> bool {
        self.leased.tries > 0
    }

    /// What the call counts for in rate limits.
    pub(super) fn weight(&self, channel: &dyn Channel) -> usize {
        channel.weight(&self.leased.target, &self.leased.message).max(1) as usize
    }

    /// A number that stands for the address.
    pub(super) fn target(&self) -> u64 {
        self.leased.hash.number()
    }

    /// 1 for the first attempt of the delivery's life.
    pub(super) fn next_number(&self) -> u32 {
        let under_lease = u32::try_from(self.log.len()).unwrap_or(u32::MAX);
        self.leased.tries.saturating_add(under_lease).saturating_add(1)
    }

    /// The next attempt, as its channel gets it. Its times are those of the system's clock, which is ahead of
    /// ours by `offset_ms`: others see them.
    pub(super) fn attempt(
        &self,
        class: &Arc<Class>,
        slot: usize,
        now: Timestamp,
        offset_ms: i64,
        makes_spans: bool,
    ) -> Attempt {
        let envelope = &self.leased.message.envelope;
        let parent = envelope.traceparent.as_deref().filter(|_| makes_spans);
        let span = parent.and_then(TraceParent::sampled);
        let span = span.map(|_| span_of_attempt(self.leased.delivery, self.next_number()));
        let wall = |at: Timestamp| Timestamp(at.0.saturating_add(offset_ms));
        // If it is over by our time, it is sent because our time is wrong: its deadline is one of the system's clock.
        let expires_at = self.leased.expires_at;
        let expires_at = if expires_at <= now { expires_at } else { wall(expires_at) };
        Attempt {
            delivery: self.leased.delivery,
            message: self.leased.message.clone(),
            class: class.clone(),
            target: self.leased.target.clone(),
            number: self.next_number(),
            now: wall(now),
            expires_at,
            is_one_shot: super::is_one_shot(&self.leased, now),
            address_since: self.leased.address_since,
            resign: self.resigned,
            replays: self.replays,
            account: self.account.clone(),
            span,
            slot,
        }
    }

    /// Opens the job for another attempt at once.
    pub(super) fn reopen(&mut self, resign: bool) {
        self.resigned |= resign;
        self.replays += u32::from(!resign);
        self.stage = JobStage::Open;
    }

    /// Remembers why nobody was called.
    pub(super) fn log_withheld(
        &mut self,
        reason: WithheldReason,
        decision: &Decision,
        now: Timestamp,
    ) {
        self.log.push(AttemptRecord {
            number: self.next_number(),
            at: now,
            latency_ms: 0,
            outcome: OutcomeKind::Withheld,
            decision: decision.kind(),
            status: None,
            code: Some(reason.name().to_owned()),
            detail: None,
            retry_after: None,
            provider_id: None,
            key: None,
            account: None,
            next_at: None,
            counted: false,
            strike: None,
        });
    }

    /// Remembers an attempt and what was decided after it.
    pub(super) fn log_attempt(
        &mut self,
        report: Report,
        latency_ms: u32,
        decision: &Decision,
        now: Timestamp,
    ) {
        let (next_at, counted) = match decision {
            Decision::Retry { after, counted } => (Some(now + *after), *counted),
            Decision::Park { after } => (Some(now + *after), false),
            Decision::Again { .. } => (Some(now), false),
            _ => (None, true),
        };
        let record = AttemptRecord {
            number: self.next_number(),
            at: now - Duration::from_millis(u64::from(latency_ms)),
            latency_ms,
            outcome: report.outcome.kind(),
            decision: decision.kind(),
            status: report.status,
            code: report.code,
            detail: report.detail,
            retry_after: report.retry_after,
            provider_id: report.provider_id,
            account: self.account.as_deref().map(Box::from),
            key: report.key,
            next_at,
            counted,
            strike: report.terms.strike,
        };
        self.log.reserve_exact(1);
        self.log.push(record);
    }
}

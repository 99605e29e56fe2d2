//! Hands everything that the dispatcher reports to the metrics, and counts it for the rollups.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::policy::audience::WithheldReason;
use postrider_core::ports::store::{LeasedDelivery, StoreError};
use postrider_core::{
    AddressHash, AttemptRecord, DeadReason, DeliveryId, Gate, LaneKey, Message, State, StrikeKind,
};
use postrider_dispatch::{LaneEvent, Observer, PutOff};

use super::RollupCounter;
use crate::events::EventRecorder;
use crate::telemetry::Metrics;
use crate::traces::Tracer;

pub(crate) struct CountingObserver {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) counter: Arc<RollupCounter>,
    pub(crate) events: Arc<EventRecorder>,
    /// Absent if spans are not made.
    pub(crate) tracer: Option<Arc<Tracer>>,
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Observer for CountingObserver {
    fn makes_spans(&self) -> bool {
        self.tracer.is_some()
    }

    fn attempted(&self, lane: &LaneKey, leased: &LeasedDelivery, attempt: &AttemptRecord) {
        if let Some(tracer) = &self.tracer {
            tracer.attempted(lane, leased, attempt);
        }
        let is_bad_request = attempt.status == Some(400);
        self.counter.note_attempt(
            lane,
            attempt.outcome.name(),
            u64::from(attempt.latency_ms),
            attempt.number > 1,
            is_bad_request,
        );
        self.metrics.attempted(lane, leased, attempt);
    }

    fn finished(
        &self,
        lane: &LaneKey,
        delivery: DeliveryId,
        message: &Message,
        state: State,
        reason: Option<DeadReason>,
        age: Duration,
    ) {
        let outcome = reason.map_or_else(|| state.name(), DeadReason::name);
        self.counter.note_delivery(lane, outcome, whole_ms(age));
        self.events.note_finished(lane.tenant.as_str(), delivery);
        self.metrics.finished(lane, delivery, message, state, reason, age);
    }

    fn struck(&self, lane: &LaneKey, address: AddressHash, kind: StrikeKind, suspected: bool) {
        self.metrics.struck(lane, address, kind, suspected);
    }

    fn fenced(&self, delivery: DeliveryId) {
        self.metrics.fenced(delivery);
    }

    fn lane_event(&self, lane: &LaneKey, event: LaneEvent) {
        let cause = match event {
            LaneEvent::BreakerOpened { .. } => Some("breaker"),
            LaneEvent::RetryStorm { .. } => Some("retry_storm"),
            LaneEvent::CredentialRefused { .. } => Some("credential"),
            LaneEvent::MassGone { .. } => Some("mass_gone"),
            LaneEvent::BreakerClosed { .. }
            | LaneEvent::CredentialAccepted
            | LaneEvent::LeftAlone { .. } => None,
        };
        if let Some(cause) = cause {
            self.counter.watch_held(lane, cause);
        }
        self.metrics.lane_event(lane, event);
    }

    fn lane_waits(&self, lane: &LaneKey, on: Gate) {
        self.metrics.lane_waits(lane, on);
    }

    fn put_off(&self, lane: &LaneKey, why: PutOff, count: usize) {
        self.metrics.put_off(lane, why, count);
    }

    fn withheld(&self, lane: &LaneKey, reason: WithheldReason) {
        self.metrics.withheld(lane, reason);
    }

    fn settled(&self, waited: Duration) {
        self.metrics.settled(waited);
    }

    fn shortage(&self, lane: &LaneKey, what: &str) {
        self.metrics.shortage(lane, what);
    }

    fn in_flight(&self, now: usize) {
        self.metrics.in_flight(now);
    }

    fn taken_up(&self, late: Duration) {
        self.counter.note_overhead(whole_ms(late));
        self.metrics.taken_up(late);
    }

    fn store_trouble(&self, doing: &'static str, error: &StoreError) {
        self.metrics.store_trouble(doing, error);
    }
}

//! Makes the spans of messages whose caller has a sampled trace: acceptance, waiting, and each attempt. Never waits.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::trace::{TraceParent, span_of_attempt, span_of_message, span_of_wait};
use postrider_core::ports::store::LeasedDelivery;
use postrider_core::{AttemptRecord, Clock, LaneKey, OutcomeKind, TenantId, Timestamp};
use postrider_dispatch::IntakeAnswer;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

use super::{SpanExporter, SpanKind, SpanReceiver, TraceSpan};
use crate::config::sections::TraceSection;
use crate::telemetry::Metrics;

pub(crate) struct Tracer {
    queue: mpsc::Sender<TraceSpan>,
    ending: watch::Sender<bool>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl Tracer {
    /// The tracer and what sends its spans.
    pub(crate) fn new(
        section: &TraceSection,
        receiver: SpanReceiver,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> (Self, SpanExporter) {
        let (queue, spans) = mpsc::channel(section.queue_max.max(1));
        let (ending, is_ending) = watch::channel(false);
        let exporter = SpanExporter {
            receiver,
            service: section.service_name.clone(),
            batch_max: section.batch_max.max(1),
            timeout: Duration::from_secs(section.timeout_s),
            metrics: metrics.clone(),
            queue: spans,
            ending: is_ending,
        };
        (Self { queue, ending, clock, metrics }, exporter)
    }

    /// From now on, what is in the queue is sent, and then the exporter ends.
    pub(crate) fn end(&self) {
        self.ending.send_replace(true);
    }

    fn put(&self, span: TraceSpan) {
        if self.queue.try_send(span).is_err() {
            self.metrics.spans("dropped", 1);
        }
    }

    /// Others see times of the system's clock.
    fn wall(&self, at: Timestamp) -> Timestamp {
        Timestamp(at.0.saturating_add(self.clock.wall_offset_ms()))
    }

    /// A message was accepted; the call began at `start`.
    pub(crate) fn accepted(
        &self,
        traceparent: Option<&str>,
        tenant: &TenantId,
        accepted: &IntakeAnswer,
        start: Timestamp,
    ) {
        let Some(parent) = traceparent.and_then(TraceParent::sampled) else { return };
        let times = (self.wall(start), self.wall(self.clock.now()));
        if accepted.duplicate {
            return;
        }
        let message = accepted.message;
        let id = span_of_message(message);
        let mut span = TraceSpan::below(&parent, id, "accept", SpanKind::Consumer, times);
        span.text("postrider.tenant", tenant.as_str());
        span.text("postrider.message.id", message.to_string());
        span.number(
            "postrider.deliveries",
            i64::try_from(accepted.deliveries.len()).unwrap_or(i64::MAX),
        );
        self.put(span);
    }

    /// A provider was called.
    pub(crate) fn attempted(
        &self,
        lane: &LaneKey,
        leased: &LeasedDelivery,
        attempt: &AttemptRecord,
    ) {
        let traceparent = leased.message.envelope.traceparent.as_deref();
        let Some(parent) = traceparent.and_then(TraceParent::sampled) else { return };
        let start = self.wall(attempt.at);
        // The channel told the time of the attempt as it was when it ended.
        let end = start + Duration::from_millis(u64::from(attempt.latency_ms));
        let waited = (self.wall(leased.due_at).min(start), start);
        let id = span_of_wait(leased.delivery, attempt.number);
        let mut wait = TraceSpan::below(&parent, id, "queue", SpanKind::Internal, waited);
        describe(&mut wait, lane, leased, attempt);
        self.put(wait);
        let id = span_of_attempt(leased.delivery, attempt.number);
        let mut span = TraceSpan::below(&parent, id, "attempt", SpanKind::Client, (start, end));
        describe(&mut span, lane, leased, attempt);
        span.text("postrider.outcome", attempt.outcome.name());
        span.text("postrider.decision", attempt.decision.name());
        if let Some(method) = method(lane, leased) {
            span.text("http.request.method", method);
        }
        if let Some(url) = url_template(lane) {
            span.text("url.full", url);
        }
        if let Some(status) = attempt.status {
            span.number("http.response.status_code", i64::from(status));
        }
        if attempt.outcome != OutcomeKind::Accepted {
            span.error = Some(attempt.outcome.name());
            span.text("error.type", attempt.outcome.name());
        }
        self.put(span);
    }
}

fn describe(
    span: &mut TraceSpan,
    lane: &LaneKey,
    leased: &LeasedDelivery,
    attempt: &AttemptRecord,
) {
    span.number("retry.attempt", i64::from(attempt.number));
    span.text("postrider.delivery.id", leased.delivery.to_string());
    span.text("postrider.message.id", leased.message.id.to_string());
    span.text("postrider.tenant", lane.tenant.as_str());
    span.text("postrider.channel", lane.channel.name());
    span.text("postrider.provider", &*lane.provider);
    span.text("postrider.class", &*lane.class);
}

/// The method of a call over HTTP: what the target says, else POST. Mail and texts may go by something else.
fn method(lane: &LaneKey, leased: &LeasedDelivery) -> Option<String> {
    #[derive(Deserialize)]
    struct MethodField {
        method: Option<String>,
    }
    if matches!(lane.channel.name(), "email" | "sms") {
        return None;
    }
    let own = leased.target.read::<MethodField>().ok().and_then(|field| field.method);
    Some(own.unwrap_or_else(|| "POST".to_owned()))
}

/// The origin, and a placeholder for the path, which can be as secret as a key.
fn url_template(lane: &LaneKey) -> Option<String> {
    let is_origin = lane.provider.starts_with("https://") || lane.provider.starts_with("http://");
    is_origin.then(|| format!("{}/{{path}}", lane.provider))
}

//! Turns events of the dispatcher into metrics, live events and log lines.

use std::time::Duration;

use postrider_core::model::trace::TraceParent;
use postrider_core::policy::audience::WithheldReason;
use postrider_core::ports::store::{LeasedDelivery, StoreError};
use postrider_core::{
    AddressHash, AttemptRecord, DeadReason, DecisionKind, DeliveryId, Gate, LaneKey, Message,
    OutcomeKind, Scope, State, StrikeKind,
};
use postrider_dispatch::{BreakerScope, LaneEvent, Observer, PutOff};

use super::labels::{ChannelLabel, OutcomeLabel, StrikeLabels};
use super::rates::count;
use super::{EventBody, Metrics};

impl Observer for Metrics {
    fn taken_up(&self, late: Duration) {
        self.lag.note(late);
    }

    fn attempted(&self, lane: &LaneKey, leased: &LeasedDelivery, attempt: &AttemptRecord) {
        let delivery = leased.delivery;
        self.events.publish(|| EventBody {
            attempt: Some(attempt.number),
            status: attempt.status,
            outcome: Some(attempt.outcome.name()),
            decision: Some(attempt.decision.name()),
            ..EventBody::about("attempted", lane, Some(delivery))
        });
        count(&self.totals.attempts);
        if matches!(attempt.decision, DecisionKind::Retry | DecisionKind::Again) {
            count(&self.totals.retried);
        }
        self.lanes.attempted(lane, delivery, attempt);
        log_attempt(lane, leased, attempt);
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
        self.events.publish(|| EventBody {
            state: Some(state.name()),
            reason: reason.map(DeadReason::name),
            ..EventBody::about("finished", lane, Some(delivery))
        });
        match state {
            State::Sent => count(&self.totals.sent),
            State::Gone => count(&self.totals.gone),
            State::Expired => count(&self.totals.expired),
            State::Failed => count(&self.totals.dead_lettered),
            _ => {}
        }
        self.lanes.finished(lane, state, reason, age.as_secs_f64());
        if let Some(reason) = reason {
            let trace_id = trace_id(message);
            tracing::warn!(%delivery, %lane, trace_id, reason = reason.name(), "dead letter");
        } else {
            tracing::debug!(%delivery, %lane, trace_id = trace_id(message), state = state.name(), "finished");
        }
    }

    fn lane_event(&self, lane: &LaneKey, event: LaneEvent) {
        let (name, until) = match event {
            LaneEvent::BreakerOpened { until, .. } => ("breaker_opened", Some(until)),
            LaneEvent::RetryStorm { until } => ("retry_storm", Some(until)),
            LaneEvent::BreakerClosed { .. } => ("breaker_closed", None),
            LaneEvent::CredentialRefused { until } => ("credential_refused", Some(until)),
            LaneEvent::MassGone { until } => ("mass_gone", Some(until)),
            LaneEvent::CredentialAccepted => ("credential_accepted", None),
            LaneEvent::LeftAlone { until, .. } => ("left_alone", Some(until)),
        };
        let scope = scope_of(event).name();
        self.events.publish(|| EventBody {
            event: Some(name),
            scope: Some(scope),
            provider: Some(lane.provider.to_string()),
            until_ms: until.map(|until| until.0),
            ..EventBody::about("lane", lane, None)
        });
        self.lanes.lane_event(lane, name);
        let until = until.map(tracing::field::display);
        match event {
            LaneEvent::BreakerClosed { .. } | LaneEvent::CredentialAccepted => {
                tracing::info!(%lane, event = name, "a provider takes calls again");
            }
            LaneEvent::LeftAlone { scope, .. } => {
                tracing::info!(%lane, event = name, ?scope, until, "a provider asked for a pause");
            }
            LaneEvent::MassGone { .. } => tracing::warn!(
                %lane, event = name, until,
                "too many addresses are reported as gone at once, so none is erased; check key and environment"
            ),
            LaneEvent::RetryStorm { .. } => {
                tracing::warn!(%lane, event = name, until, "hardly any retry of a tenant succeeds; its lanes to this provider wait");
            }
            LaneEvent::BreakerOpened { scope: BreakerScope::Tenant, .. } => {
                tracing::warn!(%lane, event = name, until, "most of a tenant's addresses at a provider fail; its lanes wait");
            }
            _ => tracing::warn!(%lane, event = name, until, "a provider fails; its lanes wait"),
        }
    }

    fn lane_waits(&self, lane: &LaneKey, on: Gate) {
        self.lanes.lane_waits(lane, on);
    }

    fn put_off(&self, lane: &LaneKey, why: PutOff, count: usize) {
        self.lanes.put_off(lane, why, count);
    }

    fn withheld(&self, lane: &LaneKey, reason: WithheldReason) {
        self.lanes.withheld(lane, reason);
    }

    fn settled(&self, waited: Duration) {
        self.settle_seconds.observe(waited.as_secs_f64());
    }

    fn in_flight(&self, now: usize) {
        self.unsettled.set(i64::try_from(now).unwrap_or(i64::MAX));
    }

    fn struck(&self, lane: &LaneKey, address: AddressHash, kind: StrikeKind, suspected: bool) {
        self.strikes
            .get_or_create(&StrikeLabels { channel: ChannelLabel(lane.channel), kind: kind.name() })
            .inc();
        self.events.publish(|| EventBody {
            event: Some(if suspected { "suspect" } else { "strike" }),
            address_hash: Some(address.to_string()),
            strike: Some(kind.name()),
            ..EventBody::about("address", lane, None)
        });
        if suspected {
            tracing::warn!(%lane, %address, kind = kind.name(), "an address is suspect; ask its owner");
        }
    }

    fn fenced(&self, delivery: DeliveryId) {
        count(&self.totals.fenced);
        self.fenced.inc();
        tracing::info!(%delivery, "a late answer was refused because its lease had ended");
    }

    fn shortage(&self, lane: &LaneKey, what: &str) {
        // A label for each of the codes that are documented.
        const KNOWN: [&str; 7] =
            ["connections", "busy", "descriptors", "ports", "memory", "resolver", "network"];
        let outcome = KNOWN.into_iter().find(|known| *known == what).unwrap_or("other");
        self.shortages.get_or_create(&OutcomeLabel { outcome }).inc();
        tracing::debug!(%lane, what, "the server ran out of something; a delivery is put off");
    }

    fn store_trouble(&self, doing: &'static str, error: &StoreError) {
        self.store_errors.get_or_create(&OutcomeLabel { outcome: doing }).inc();
        tracing::error!(doing, %error, "the store failed; trying again");
    }
}

/// Whom an event concerns: one tenant at the provider, or all.
fn scope_of(event: LaneEvent) -> BreakerScope {
    match event {
        LaneEvent::BreakerOpened { scope, .. } | LaneEvent::BreakerClosed { scope } => scope,
        LaneEvent::LeftAlone { scope: Scope::Host, .. } => BreakerScope::Provider,
        LaneEvent::LeftAlone { .. }
        | LaneEvent::RetryStorm { .. }
        | LaneEvent::CredentialRefused { .. }
        | LaneEvent::MassGone { .. }
        | LaneEvent::CredentialAccepted => BreakerScope::Tenant,
    }
}

/// Success is the common case: it is logged at level debug only.
fn log_attempt(lane: &LaneKey, leased: &LeasedDelivery, a: &AttemptRecord) {
    let (delivery, address) = (leased.delivery, leased.hash);
    let key = a.key.map(tracing::field::display);
    if a.outcome == OutcomeKind::Accepted {
        tracing::debug!(
            %delivery, %address, %lane, trace_id = trace_id(&leased.message), key, attempt = a.number, status = a.status,
            latency_ms = a.latency_ms, "sent"
        );
        return;
    }
    tracing::info!(
        %delivery, %address, %lane, trace_id = trace_id(&leased.message), key, attempt = a.number, status = a.status,
        code = a.code.as_deref(), retry_after = a.retry_after.as_deref(),
        latency_ms = a.latency_ms, outcome = a.outcome.name(), decision = a.decision.name(),
        next_at = a.next_at.map(tracing::field::display), "attempt failed"
    );
}

/// The caller's trace, if there is one.
fn trace_id(message: &Message) -> Option<String> {
    let traceparent = message.envelope.traceparent.as_deref()?;
    TraceParent::parse(traceparent).map(|parent| parent.trace_id())
}

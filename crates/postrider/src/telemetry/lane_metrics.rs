//! Metrics that every attempt and every delivery counts for, by lane without its tenant. After the first time, counting
//! takes one lookup and no other lock.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use postrider_core::policy::audience::WithheldReason;
use postrider_core::{AttemptRecord, DeadReason, DeliveryId, Gate, LaneKey, OutcomeKind, State};
use postrider_dispatch::PutOff;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::histogram::AtomicHistogram;
use super::labels::{LaneLabels, ProviderOutcomeLabels, Providers};
use super::registrar::{Histograms, Registrar};

pub(super) struct LaneMetrics {
    pub(super) providers: Arc<Providers>,
    known: RwLock<HashMap<LaneLabels, Arc<LaneSeries>>>,
    attempts: Family<LaneLabels, Counter>,
    retries: Family<LaneLabels, Counter>,
    finished: Family<LaneLabels, Counter>,
    dead_lettered: Family<LaneLabels, Counter>,
    attempt_seconds: Histograms,
    first_call_seconds: Histograms,
    age_seconds: Histograms,
    events: Family<LaneLabels, Counter>,
    waits: Family<ProviderOutcomeLabels, Counter>,
    put_off: Family<ProviderOutcomeLabels, Counter>,
    withheld: Family<ProviderOutcomeLabels, Counter>,
}

/// The metrics of one lane. Each appears in a scrape when it is first counted.
struct LaneSeries {
    labels: LaneLabels,
    attempts: [OnceLock<Counter>; OutcomeKind::ALL.len()],
    retries: [OnceLock<Counter>; OutcomeKind::ALL.len()],
    finished: [OnceLock<(Counter, AtomicHistogram)>; State::ALL.len()],
    dead_lettered: [OnceLock<Counter>; DeadReason::ALL.len()],
    attempt_seconds: OnceLock<AtomicHistogram>,
    first_call_seconds: OnceLock<AtomicHistogram>,
}

impl LaneSeries {
    fn new(labels: LaneLabels) -> Self {
        Self {
            labels,
            attempts: [const { OnceLock::new() }; OutcomeKind::ALL.len()],
            retries: [const { OnceLock::new() }; OutcomeKind::ALL.len()],
            finished: [const { OnceLock::new() }; State::ALL.len()],
            dead_lettered: [const { OnceLock::new() }; DeadReason::ALL.len()],
            attempt_seconds: OnceLock::new(),
            first_call_seconds: OnceLock::new(),
        }
    }

    fn with(&self, outcome: &'static str) -> LaneLabels {
        LaneLabels { outcome: Some(outcome), ..self.labels.clone() }
    }
}

impl LaneMetrics {
    pub(super) fn new(r: &mut Registrar) -> Self {
        Self {
            providers: Arc::default(),
            known: RwLock::default(),
            attempts: r.add("attempts", "Calls to providers"),
            retries: r.add("retries", "Calls to providers after the first one of a delivery"),
            finished: r.add("finished", "Deliveries that became final"),
            dead_lettered: r.add("dead_lettered", "Deliveries that became dead letters, by reason"),
            attempt_seconds: r.histograms(
                "attempt_duration_seconds",
                "Time from a call to its answer",
                AtomicHistogram::of_latencies,
            ),
            first_call_seconds: r.histograms(
                "first_call_seconds",
                "Time from acceptance to the first call, with a delay that the caller asked for",
                AtomicHistogram::of_ages,
            ),
            age_seconds: r.histograms(
                "delivery_age_seconds",
                "Time from acceptance to the final state",
                AtomicHistogram::of_ages,
            ),
            events: r
                .add("lane_events", "Events that stop or start the lanes of a provider, by kind"),
            waits: r.add("lane_waits", "Turns that a check refused to a lane, by check"),
            put_off: r.add(
                "put_off",
                "Leased deliveries that were put off without an attempt, by reason",
            ),
            withheld: r.add(
                "withheld",
                "Deliveries that were not sent because their recipient does not want them, by reason",
            ),
        }
    }

    pub(super) fn attempted(&self, lane: &LaneKey, delivery: DeliveryId, attempt: &AttemptRecord) {
        let series = self.series(lane);
        let (nth, name) = (usize::from(attempt.outcome.code()), attempt.outcome.name());
        count(&series.attempts, nth, || self.attempts.get_or_create_owned(&series.with(name)));
        let seconds = f64::from(attempt.latency_ms) / 1000.0;
        let times = &self.attempt_seconds;
        let times =
            series.attempt_seconds.get_or_init(|| times.get_or_create_owned(&series.labels));
        times.observe(seconds);
        if attempt.number > 1 {
            count(&series.retries, nth, || self.retries.get_or_create_owned(&series.with(name)));
            return;
        }
        let waits = &self.first_call_seconds;
        let waits =
            series.first_call_seconds.get_or_init(|| waits.get_or_create_owned(&series.labels));
        waits.observe(attempt.at.since(delivery.created_at()).as_secs_f64());
    }

    pub(super) fn finished(
        &self,
        lane: &LaneKey,
        state: State,
        reason: Option<DeadReason>,
        age_s: f64,
    ) {
        let series = self.series(lane);
        if let Some(known) = series.finished.get(usize::from(state.code())) {
            let (total, ages) = known.get_or_init(|| {
                let labels = series.with(state.name());
                let ages = self.age_seconds.get_or_create_owned(&labels);
                (self.finished.get_or_create_owned(&labels), ages)
            });
            total.inc();
            ages.observe(age_s);
        }
        if let Some(reason) = reason {
            count(&series.dead_lettered, usize::from(reason.code()), || {
                self.dead_lettered.get_or_create_owned(&series.with(reason.name()))
            });
        }
    }

    pub(super) fn lane_event(&self, lane: &LaneKey, name: &'static str) {
        self.events.get_or_create(&self.providers.labels(lane, Some(name))).inc();
    }

    pub(super) fn lane_waits(&self, lane: &LaneKey, on: Gate) {
        self.waits.get_or_create(&self.of_provider(lane, check_name(on))).inc();
    }

    pub(super) fn put_off(&self, lane: &LaneKey, why: PutOff, deliveries: usize) {
        let outcome = match why {
            PutOff::AddressRest => "address_rest",
            PutOff::AddressRate => "address_rate",
            PutOff::RetryBudget => "retry_budget",
            PutOff::QuietHours => "quiet_hours",
        };
        self.put_off.get_or_create(&self.of_provider(lane, outcome)).inc_by(deliveries as u64);
    }

    pub(super) fn withheld(&self, lane: &LaneKey, reason: WithheldReason) {
        self.withheld.get_or_create(&self.of_provider(lane, reason.name())).inc();
    }

    fn of_provider(&self, lane: &LaneKey, outcome: &'static str) -> ProviderOutcomeLabels {
        let labels = self.providers.labels(lane, None);
        ProviderOutcomeLabels { channel: labels.channel, provider: labels.provider, outcome }
    }

    fn series(&self, lane: &LaneKey) -> Arc<LaneSeries> {
        let (provider, class) = (lane.provider.clone(), lane.class.clone());
        let own = LaneLabels { channel: lane.channel, provider, class, outcome: None };
        if let Some(series) = self.find(&own) {
            return series;
        }
        // Beyond the bound, providers share the series of `other`.
        let labels = self.providers.labels(lane, None);
        self.find(&labels).unwrap_or_else(|| {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            let entry = known.entry(labels.clone());
            entry.or_insert_with(|| Arc::new(LaneSeries::new(labels))).clone()
        })
    }

    fn find(&self, labels: &LaneLabels) -> Option<Arc<LaneSeries>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(labels).cloned()
    }
}

fn count<const N: usize>(
    counters: &[OnceLock<Counter>; N],
    nth: usize,
    new: impl FnOnce() -> Counter,
) {
    if let Some(counter) = counters.get(nth) {
        counter.get_or_init(new).inc();
    }
}

/// A check as a label names it.
fn check_name(gate: Gate) -> &'static str {
    match gate {
        Gate::TenantPaused => "tenant_paused",
        Gate::Paused => "lane_paused",
        Gate::ProviderPaused => "provider_paused",
        Gate::RetryAfter => "retry_after",
        Gate::Breaker => "breaker",
        Gate::Credential => "credential",
        Gate::MassGone => "mass_gone",
        Gate::Pace => "pace",
        Gate::RateLimit => "rate_limit",
        Gate::TenantRateLimit => "tenant_rate_limit",
        Gate::CredentialRateLimit => "credential_rate_limit",
        Gate::RetryBudget => "retry_budget",
        Gate::Concurrency => "concurrency",
    }
}

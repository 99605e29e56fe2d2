//! Prometheus metrics, named `postrider_` + noun + unit. The number of labels is bounded; no label names a
//! tenant.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use postrider_channels::accounts::AccountView;
use postrider_channels::pool::PoolStats;
use postrider_core::policy::backpressure::Capacity;
use postrider_core::ports::store::{Counts, Load, StoreHealth};
use postrider_core::{ChannelKind, DeadReason, State};
use postrider_dispatch::{IntakeAnswer, IntakeRefusal};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use super::accounts::AccountMetrics;
use super::events::EventBus;
use super::labels::{
    ChannelLabel, LaneLabels, OutcomeLabel, ProviderLabels, Providers, StrikeLabels,
};
use super::lag::Lag;
use super::rates::{Totals, count};

type Histograms = Family<LaneLabels, Histogram, fn() -> Histogram>;

pub struct Metrics {
    registry: Registry,
    /// Published beside the metrics.
    pub events: EventBus,
    pub(super) providers: Providers,
    pub totals: Totals,
    pub lag: Lag,
    messages: Family<OutcomeLabel, Counter>,
    refused: Family<OutcomeLabel, Counter>,
    keys_refused: Family<OutcomeLabel, Counter>,
    calls_limited: Family<OutcomeLabel, Counter>,
    connections_refused: Counter,
    audited: Family<OutcomeLabel, Counter>,
    pub(super) attempts: Family<LaneLabels, Counter>,
    pub(super) finished: Family<LaneLabels, Counter>,
    pub(super) dead_lettered: Family<LaneLabels, Counter>,
    pub(super) attempt_seconds: Histograms,
    pub(super) age_seconds: Histograms,
    pub(super) lane_events: Family<LaneLabels, Counter>,
    pub(super) fenced: Counter,
    pub(super) strikes: Family<StrikeLabels, Counter>,
    pub(super) store_errors: Family<OutcomeLabel, Counter>,
    pub(super) shortages: Family<OutcomeLabel, Counter>,
    deliveries: Family<OutcomeLabel, Gauge>,
    dead_letters: Family<OutcomeLabel, Gauge>,
    oldest_seconds: Gauge<f64, AtomicU64>,
    lag_seconds: Gauge<f64, AtomicU64>,
    in_flight: Gauge,
    connections: Gauge,
    pub(crate) accounts: AccountMetrics,
    paces: Family<ProviderLabels, Gauge<f64, AtomicU64>>,
    deliveries_used: Gauge,
    /// 0 stands for no limit.
    deliveries_max: Gauge,
    bytes_used: Gauge,
    /// 0 stands for no limit.
    bytes_max: Gauge,
    journal_bytes: Gauge,
    quarantined: Gauge,
    held: Gauge,
    /// 0 if there is none.
    backup_at: Gauge<f64, AtomicU64>,
    problems: Family<OutcomeLabel, Gauge>,
    clock_offset: Gauge<f64, AtomicU64>,
    quota_used: Family<OutcomeLabel, Gauge<f64, AtomicU64>>,
    over_quota: Gauge,
    rollups: Family<OutcomeLabel, Counter>,
    problems_opened: Family<OutcomeLabel, Counter>,
    problems_open: Family<OutcomeLabel, Gauge>,
    alerts: Family<OutcomeLabel, Counter>,
}

impl Metrics {
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("postrider");
        let r = &mut registry;
        let metrics = Self {
            events: EventBus::default(),
            providers: Providers::default(),
            totals: Totals::default(),
            lag: Lag::default(),
            messages: add(r, "messages", "Messages accepted"),
            refused: add(r, "refused", "Messages refused at the intake"),
            keys_refused: add(
                r,
                "api_keys_refused",
                "Calls refused because of their key, by reason",
            ),
            calls_limited: add(r, "api_calls_limited", "Calls answered with 429, by whose limit"),
            connections_refused: add(
                r,
                "api_connections_refused",
                "Connections closed because their address has too many",
            ),
            audited: add(r, "audit_entries", "Entries of the audit log: written or failed"),
            attempts: add(r, "attempts", "Calls to providers"),
            finished: add(r, "finished", "Deliveries that became final"),
            dead_lettered: add(
                r,
                "dead_lettered",
                "Deliveries that became dead letters, by reason",
            ),
            attempt_seconds: histograms(
                r,
                "attempt_duration_seconds",
                "Time from a call to its answer",
                latencies,
            ),
            age_seconds: histograms(
                r,
                "delivery_age_seconds",
                "Time from acceptance to the final state",
                ages,
            ),
            lane_events: add(
                r,
                "lane_events",
                "Events that stop or start the lanes of a provider, by kind",
            ),
            fenced: add(r, "fenced", "Settlements refused as too late"),
            strikes: add(r, "strikes", "Strikes against addresses, by kind"),
            store_errors: add(r, "store_errors", "Failures of the store"),
            shortages: add(
                r,
                "shortages",
                "Deliveries put off because the server ran out of something",
            ),
            deliveries: add(r, "deliveries", "Deliveries in each state"),
            dead_letters: add(r, "dead_letters", "Dead letters by reason"),
            oldest_seconds: add(r, "oldest_pending_seconds", "Age of the oldest pending delivery"),
            lag_seconds: add(
                r,
                "lag_seconds",
                "How late deliveries were taken up because this server was busy, the most of the last 10 s",
            ),
            in_flight: add(r, "in_flight", "Calls in progress"),
            connections: add(r, "connections", "Connections to providers"),
            accounts: AccountMetrics::new(r),
            paces: add(
                r,
                "lane_pace_per_second",
                "Calls per second that a provider seems to accept; only if it ever throttled",
            ),
            deliveries_used: add(r, "capacity_used_deliveries", "Deliveries pending"),
            deliveries_max: add(r, "capacity_deliveries", "Deliveries that may be pending"),
            bytes_used: add(r, "capacity_used_bytes", "Bytes pending"),
            bytes_max: add(r, "capacity_bytes", "Bytes that may be pending"),
            journal_bytes: add(r, "store_journal_bytes", "Size of the store's journal"),
            held: add(
                r,
                "held_deliveries",
                "Deliveries from a backup that wait until they are released",
            ),
            backup_at: add(
                r,
                "store_backup_timestamp_seconds",
                "When the last backup was taken; 0 if there is none",
            ),
            quarantined: add(
                r,
                "store_quarantined_deliveries",
                "Deliveries set aside in this run because they cannot be read or settled",
            ),
            problems: add(r, "store_problems", "Problems of the store while it goes on, by code"),
            clock_offset: add(
                r,
                "clock_offset_seconds",
                "How far the system's clock is ahead of the server's time",
            ),
            quota_used: add(
                r,
                "quota_used_ratio",
                "How much of each quota the tenant uses that uses most of it; 1 is all",
            ),
            over_quota: add(
                r,
                "tenants_over_quota",
                "Tenants whose new messages are refused because of a quota",
            ),
            rollups: add(r, "rollup_parts", "Parts of the history: written or failed"),
            alerts: add(r, "alerts", "Alerts: queued, refused, and by a backup route"),
            problems_opened: add(r, "problems_opened", "Problems that opened, by kind"),
            problems_open: add(
                r,
                "problems_open",
                "Problems that are open and not muted, by severity; on the server that looks for them",
            ),
            registry,
        };
        Arc::new(metrics)
    }

    /// Counts one answer of the intake.
    pub fn admitted(&self, answer: &Result<IntakeAnswer, IntakeRefusal>) {
        let (family, label, total) = match answer {
            Ok(IntakeAnswer { duplicate: false, .. }) => {
                (&self.messages, "accepted", &self.totals.accepted)
            }
            Ok(_) => (&self.messages, "duplicate", &self.totals.duplicates),
            Err(refusal) => (&self.refused, refusal.kind.name(), &self.totals.refused),
        };
        family.get_or_create(&OutcomeLabel { outcome: label }).inc();
        count(total);
    }

    /// Counts one call that was refused because of its key.
    pub fn key_refused(&self, reason: &'static str) {
        self.keys_refused.get_or_create(&OutcomeLabel { outcome: reason }).inc();
    }

    /// Counts one call that was answered with 429: of a key, an address, a stream or a wrong key.
    pub fn call_limited(&self, whose: &'static str) {
        self.calls_limited.get_or_create(&OutcomeLabel { outcome: whose }).inc();
    }

    /// Sets how full the quotas of the fullest tenants are, and how many tenants are refused for one.
    pub fn quotas(&self, used: impl Iterator<Item = (&'static str, f64)>, refused: usize) {
        for (quota, share) in used {
            self.quota_used.get_or_create(&OutcomeLabel { outcome: quota }).set(share);
        }
        self.over_quota.set(i64::try_from(refused).unwrap_or(i64::MAX));
    }

    /// Counts an entry of the audit log.
    pub fn audited(&self, is_written: bool) {
        let outcome = if is_written { "written" } else { "failed" };
        self.audited.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts an alert.
    pub fn alert(&self, outcome: &'static str) {
        self.alerts.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a problem that opened.
    pub fn problem_opened(&self, kind: &'static str) {
        self.problems_opened.get_or_create(&OutcomeLabel { outcome: kind }).inc();
    }

    pub fn problems_open(&self, severity: &'static str, count: i64) {
        self.problems_open.get_or_create(&OutcomeLabel { outcome: severity }).set(count);
    }

    /// Counts parts of rollups that the store took or did not take.
    pub fn rollups_written(&self, parts: usize, is_written: bool) {
        let outcome = if is_written { "written" } else { "failed" };
        self.rollups.get_or_create(&OutcomeLabel { outcome }).inc_by(parts as u64);
    }

    pub fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// Sets how much is pending, and how much may be.
    pub fn capacity(&self, (load, capacity): (Load, Capacity)) {
        let set = |gauge: &Gauge, n: u64| gauge.set(i64::try_from(n).unwrap_or(i64::MAX));
        set(&self.deliveries_used, load.deliveries);
        set(&self.deliveries_max, capacity.deliveries_max);
        set(&self.bytes_used, load.bytes);
        set(&self.bytes_max, capacity.bytes_max);
    }

    /// Sets the state of the store. Solved problems disappear.
    pub fn store_health(&self, health: &StoreHealth) {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.journal_bytes.set(number(health.journal_bytes));
        self.quarantined.set(number(health.quarantined));
        self.backup_at.set(health.backup_at.map_or(0.0, |at| at.0 as f64 / 1000.0));
        self.problems.clear();
        for problem in &health.problems {
            self.problems.get_or_create(&OutcomeLabel { outcome: problem.code }).inc();
        }
    }

    /// Sets how far the system's clock is ahead of the server's time.
    pub fn clock(&self, offset_ms: i64) {
        self.clock_offset.set(offset_ms as f64 / 1000.0);
    }

    /// Sets the learned paces. Forgotten ones disappear. Of the providers called `other`, the slowest counts.
    pub fn paces(&self, learned: &[(ChannelKind, Arc<str>, f64)]) {
        self.paces.clear();
        for (channel, provider, per_s) in learned {
            let provider = self.providers.bounded(provider);
            let labels = ProviderLabels { channel: ChannelLabel(*channel), provider };
            let gauge = self.paces.get_or_create(&labels);
            let known = Some(gauge.get()).filter(|known| *known > 0.0);
            gauge.set(known.map_or(*per_s, |known| known.min(*per_s)));
        }
    }

    /// The text for a scrape, with the present figures of the store and the pool.
    pub fn render(
        &self,
        counts: &Counts,
        oldest: Option<Duration>,
        pool: PoolStats,
        accounts: &[AccountView],
    ) -> String {
        let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        // All states, so that an empty state does not keep its last number.
        for state in State::ALL {
            let n = counts.states.get(state).copied().unwrap_or_default();
            self.deliveries.get_or_create(&OutcomeLabel { outcome: state.name() }).set(gauge(n));
        }
        for reason in DeadReason::ALL {
            let n = counts.dead.get(reason).copied().unwrap_or_default();
            self.dead_letters.get_or_create(&OutcomeLabel { outcome: reason.name() }).set(gauge(n));
        }
        self.held.set(gauge(counts.held));
        self.oldest_seconds.set(oldest.unwrap_or_default().as_secs_f64());
        self.lag_seconds.set(self.lag.seconds());
        self.in_flight.set(gauge(pool.in_flight as u64));
        self.connections.set(gauge(pool.connections as u64));
        self.accounts.update(accounts);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

/// Makes a metric and registers it.
pub(super) fn add<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn histograms(
    registry: &mut Registry,
    name: &str,
    help: &str,
    new: fn() -> Histogram,
) -> Histograms {
    let family = Histograms::new_with_constructor(new);
    registry.register(name, help, family.clone());
    family
}

fn latencies() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

fn ages() -> Histogram {
    Histogram::new([0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 86_400.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_shown_while_it_is_known_and_the_slowest_stands_for_those_beyond_the_bound() {
        let metrics = Metrics::new();
        let shown = |paces: &[(ChannelKind, Arc<str>, f64)]| {
            metrics.paces(paces);
            let text = metrics.render(&Counts::default(), None, PoolStats::default(), &[]);
            let lines = text.lines().filter(|line| line.starts_with("postrider_lane_pace"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let of = |n: usize, per_s| {
            (postrider_channels::webhook::KIND, format!("https://h{n}").into(), per_s)
        };
        let line =
            r#"postrider_lane_pace_per_second{channel="webhook",provider="https://h0"} 97.5"#;
        assert_eq!(shown(&[of(0, 97.5)]), [line]);
        assert!(shown(&[]).is_empty());
        let many: Vec<_> = (0..500).map(|n| of(n, 500.0 - n as f64)).collect();
        let shown = shown(&many);
        assert!(shown.len() <= 101, "{} labels", shown.len());
        assert!(shown.iter().any(|line| line.contains(r#"provider="other"} 1.0"#)), "{shown:?}");
    }
}

//! Prometheus metrics, named `postrider_` + noun + unit. The number of labels is bounded; no label names a
//! tenant.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_channels::accounts::AccountView;
use postrider_channels::accounts::health::CredentialView;
use postrider_channels::pool::PoolStats;
use postrider_core::policy::backpressure::Capacity;
use postrider_core::ports::store::{Counts, Load, StoreHealth};
use postrider_core::{ChannelKind, DeadReason, State, Timestamp};
use postrider_dispatch::{IntakeAnswer, IntakeRefusal, ProviderFigures};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::accounts::AccountMetrics;
use super::depths::{DepthCache, ProviderDepth};
use super::events::EventBus;
use super::exposition;
use super::histogram::AtomicHistogram;
use super::labels::{OutcomeLabel, StrikeLabels};
use super::lag::Lag;
use super::lane_metrics::LaneMetrics;
use super::provider_metrics::ProviderMetrics;
use super::rates::{Totals, count};
use super::receipts::ReceiptMetrics;
use super::registrar::{MetricName, Registrar};

pub struct Metrics {
    registry: Registry,
    names: Vec<MetricName>,
    /// Held by one scrape at a time, because a scrape sets figures and then writes them.
    scrape: Mutex<()>,
    pub depths: DepthCache,
    /// Published beside the metrics.
    pub events: EventBus,
    pub totals: Totals,
    pub lag: Lag,
    messages: Family<OutcomeLabel, Counter>,
    refused: Family<OutcomeLabel, Counter>,
    keys_refused: Family<OutcomeLabel, Counter>,
    calls_limited: Family<OutcomeLabel, Counter>,
    connections_refused: Counter,
    audited: Family<OutcomeLabel, Counter>,
    pub(super) lanes: LaneMetrics,
    pub(super) settle_seconds: AtomicHistogram,
    pub(super) unsettled: Gauge,
    pub(super) fenced: Counter,
    pub(super) strikes: Family<StrikeLabels, Counter>,
    pub(super) receipts: ReceiptMetrics,
    pub(super) store_errors: Family<OutcomeLabel, Counter>,
    pub(super) shortages: Family<OutcomeLabel, Counter>,
    deliveries: Family<OutcomeLabel, Gauge>,
    dead_letters: Family<OutcomeLabel, Gauge>,
    oldest_seconds: Gauge<f64, AtomicU64>,
    lag_seconds: Gauge<f64, AtomicU64>,
    in_flight: Gauge,
    connections: Gauge,
    accounts: AccountMetrics,
    providers: ProviderMetrics,
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
    jobs: Family<OutcomeLabel, Gauge>,
    job_items: Family<OutcomeLabel, Counter>,
    event_counts: Family<OutcomeLabel, Counter>,
    event_pages_failed: Counter,
    event_subscriptions: Family<OutcomeLabel, Gauge>,
    event_lag: Gauge<f64, AtomicU64>,
    span_counts: Family<OutcomeLabel, Counter>,
}

impl Metrics {
    pub fn new() -> Arc<Self> {
        let mut registrar = Registrar::default();
        let r = &mut registrar;
        let lanes = LaneMetrics::new(r);
        let providers = ProviderMetrics::new(r, lanes.providers.clone());
        let metrics = Self {
            scrape: Mutex::default(),
            depths: DepthCache::default(),
            events: EventBus::default(),
            totals: Totals::default(),
            lag: Lag::default(),
            messages: r.add("messages", "Messages accepted"),
            refused: r.add("refused", "Messages refused at the intake"),
            keys_refused: r.add(
                "api_keys_refused",
                "Calls refused because of their key, by reason",
            ),
            calls_limited: r.add("api_calls_limited", "Calls answered with 429, by whose limit"),
            connections_refused: r.add(
                "api_connections_refused",
                "Connections closed because their address has too many",
            ),
            audited: r.add("audit_entries", "Entries of the audit log: written or failed"),
            lanes,
            providers,
            settle_seconds: r.register(
                "settle_duration_seconds",
                "Time from the first decision of a batch to its durable write",
                AtomicHistogram::of_latencies(),
            ),
            unsettled: r.add(
                "unsettled_deliveries",
                "Deliveries that are leased by this server and not durably settled",
            ),
            fenced: r.add("fenced", "Settlements refused as too late"),
            receipts: ReceiptMetrics::new(r),
            strikes: r.add("strikes", "Strikes against addresses, by kind"),
            store_errors: r.add("store_errors", "Failures of the store"),
            shortages: r.add(
                "shortages",
                "Deliveries put off because the server ran out of something",
            ),
            deliveries: r.add("deliveries", "Deliveries in each state"),
            dead_letters: r.add("dead_letters", "Dead letters by reason"),
            oldest_seconds: r.add("oldest_pending_seconds", "Age of the oldest pending delivery"),
            lag_seconds: r.add(
                "lag_seconds",
                "How late deliveries were taken up because this server was busy, the most of the last 10 s",
            ),
            in_flight: r.add("in_flight", "Calls in progress"),
            connections: r.add("connections", "Connections to providers"),
            accounts: AccountMetrics::new(r),
            deliveries_used: r.add("capacity_used_deliveries", "Deliveries pending"),
            deliveries_max: r.add("capacity_deliveries", "Deliveries that may be pending"),
            bytes_used: r.add("capacity_used_bytes", "Bytes pending"),
            bytes_max: r.add("capacity_bytes", "Bytes that may be pending"),
            journal_bytes: r.add("store_journal_bytes", "Size of the store's journal"),
            held: r.add(
                "held_deliveries",
                "Deliveries from a backup that wait until they are released",
            ),
            backup_at: r.add(
                "store_backup_timestamp_seconds",
                "When the last backup was taken; 0 if there is none",
            ),
            quarantined: r.add(
                "store_quarantined_deliveries",
                "Deliveries set aside in this run because they cannot be read or settled",
            ),
            problems: r.add("store_problems", "Problems of the store while it goes on, by code"),
            clock_offset: r.add(
                "clock_offset_seconds",
                "How far the system's clock is ahead of the server's time",
            ),
            quota_used: r.add(
                "quota_used_ratio",
                "How much of each quota the tenant uses that uses most of it; 1 is all",
            ),
            over_quota: r.add(
                "tenants_over_quota",
                "Tenants whose new messages are refused because of a quota",
            ),
            rollups: r.add("rollup_parts", "Parts of the history: written or failed"),
            jobs: r.add("jobs", "Jobs that are kept, by state; on the server that runs them"),
            job_items: r.add("job_items", "Deliveries that jobs acted upon, by kind of job"),
            alerts: r.add("alerts", "Alerts: queued, refused, and by a backup route"),
            event_counts: r.add(
                "events",
                "Events for others: logged, sent to a receiver, and lost because the store failed",
            ),
            event_pages_failed: r.add(
                "event_pages_failed",
                "Webhooks with events that were given up; their events are sent again",
            ),
            event_subscriptions: r.add(
                "event_subscriptions",
                "Subscriptions to events by state; on the server that sends them",
            ),
            event_lag: r.add(
                "event_lag_seconds",
                "How far the receiver is behind that is furthest behind, of those that events are sent to",
            ),
            span_counts: r.add(
                "spans",
                "Spans: sent, failed at their receiver, and dropped because too many waited",
            ),
            problems_opened: r.add("problems_opened", "Problems that opened, by kind"),
            problems_open: r.add(
                "problems_open",
                "Problems that are open and not muted, by severity; on the server that looks for them",
            ),
            names: registrar.names,
            registry: registrar.registry,
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

    pub fn jobs(&self, state: &'static str, count: i64) {
        self.jobs.get_or_create(&OutcomeLabel { outcome: state }).set(count);
    }

    pub fn job_items(&self, kind: &'static str, count: u64) {
        self.job_items.get_or_create(&OutcomeLabel { outcome: kind }).inc_by(count);
    }

    /// Counts events: `logged`, `sent` or `lost`.
    pub(crate) fn events(&self, outcome: &'static str, count: usize) {
        self.event_counts.get_or_create(&OutcomeLabel { outcome }).inc_by(count as u64);
    }

    /// Counts spans: `sent`, `failed` or `dropped`.
    pub(crate) fn spans(&self, outcome: &'static str, count: usize) {
        self.span_counts.get_or_create(&OutcomeLabel { outcome }).inc_by(count as u64);
    }

    pub(crate) fn event_page_failed(&self) {
        self.event_pages_failed.inc();
    }

    /// Sets how many subscriptions there are by state, and how far the last of them is behind.
    pub(crate) fn event_subscriptions(&self, counts: &HashMap<&'static str, i64>, lag_s: f64) {
        self.event_subscriptions.clear();
        for (outcome, count) in counts {
            self.event_subscriptions.get_or_create(&OutcomeLabel { outcome }).set(*count);
        }
        self.event_lag.set(lag_s);
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

    /// Every metric, as a scrape shows it.
    pub fn names(&self) -> &[MetricName] {
        &self.names
    }

    /// The text for a scrape: OpenMetrics, or the older format of Prometheus.
    pub fn render(&self, figures: &ScrapeFigures, is_open_metrics: bool) -> String {
        let _alone = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        self.set(figures);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        if is_open_metrics { text } else { exposition::classic(&text) }
    }

    fn set(&self, figures: &ScrapeFigures) {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let counts = &figures.counts;
        // All states, so that an empty state does not keep its last number.
        for state in State::ALL {
            let n = counts.states.get(state).copied().unwrap_or_default();
            self.deliveries.get_or_create(&OutcomeLabel { outcome: state.name() }).set(number(n));
        }
        for reason in DeadReason::ALL {
            let n = counts.dead.get(reason).copied().unwrap_or_default();
            self.dead_letters
                .get_or_create(&OutcomeLabel { outcome: reason.name() })
                .set(number(n));
        }
        self.held.set(number(counts.held));
        self.oldest_seconds.set(figures.oldest.unwrap_or_default().as_secs_f64());
        self.lag_seconds.set(self.lag.seconds());
        self.in_flight.set(number(figures.in_flight() as u64));
        self.connections.set(number(figures.connections() as u64));
        self.clock_offset.set(figures.clock_offset_ms as f64 / 1000.0);
        self.set_capacity(figures.load, figures.capacity);
        self.set_health(&figures.health);
        self.accounts.update(&figures.accounts);
        self.accounts.update_credentials(&figures.credentials, figures.now);
        self.providers.update(&figures.providers);
        self.providers.update_paces(&figures.paces);
        self.providers.update_depths(&figures.depths, figures.now);
        self.providers.update_connections(&figures.own_connections);
    }

    fn set_capacity(&self, load: Load, capacity: Capacity) {
        let set = |gauge: &Gauge, n: u64| gauge.set(i64::try_from(n).unwrap_or(i64::MAX));
        set(&self.deliveries_used, load.deliveries);
        set(&self.deliveries_max, capacity.deliveries_max);
        set(&self.bytes_used, load.bytes);
        set(&self.bytes_max, capacity.bytes_max);
    }

    /// Solved problems disappear.
    fn set_health(&self, health: &StoreHealth) {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.journal_bytes.set(number(health.journal_bytes));
        self.quarantined.set(number(health.quarantined));
        self.backup_at.set(health.backup_at.map_or(0.0, |at| at.0 as f64 / 1000.0));
        self.problems.clear();
        for problem in &health.problems {
            self.problems.get_or_create(&OutcomeLabel { outcome: problem.code }).inc();
        }
    }
}

/// The state of everything else at the moment of a scrape.
#[derive(Default)]
pub struct ScrapeFigures {
    pub now: Timestamp,
    pub counts: Counts,
    pub oldest: Option<Duration>,
    pub load: Load,
    pub capacity: Capacity,
    pub health: StoreHealth,
    pub clock_offset_ms: i64,
    pub pool: PoolStats,
    pub accounts: Vec<AccountView>,
    pub credentials: Arc<Vec<CredentialView>>,
    pub providers: Vec<ProviderFigures>,
    pub paces: Vec<(ChannelKind, Arc<str>, f64)>,
    pub depths: Arc<[ProviderDepth]>,
    /// Connections of accounts that the pool does not count.
    pub own_connections: Vec<(ChannelKind, Arc<str>, usize)>,
}

impl ScrapeFigures {
    /// Calls under way, of all channels.
    pub fn in_flight(&self) -> usize {
        self.providers.iter().map(|provider| provider.in_flight).sum()
    }

    /// Open connections, of all channels.
    pub fn connections(&self) -> usize {
        let own: usize = self.own_connections.iter().map(|(_, _, count)| count).sum();
        self.pool.connections + own
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_tables_in_the_docs_have_every_metric_and_no_other() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows = page.lines().filter(|line| line.starts_with("| `postrider_"));
        let row = |row: &str| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
        };
        let documented: Vec<_> = rows.map(row).collect();
        let metrics = Metrics::new();
        let known = metrics.names().iter().map(|metric| (metric.name.clone(), metric.kind.into()));
        let known: BTreeSet<(String, String)> = known.collect();
        assert_eq!(documented.iter().cloned().collect::<BTreeSet<_>>(), known);
        assert_eq!(documented.len(), known.len(), "each is documented once");
    }
}

//! What is known about each provider at the moment of a scrape: calls under way, limits, breakers, depth. One label per
//! provider up to the bound; the further ones are added up as `other`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use postrider_core::policy::breaker::BreakerState;
use postrider_core::{ChannelKind, Timestamp};
use postrider_dispatch::ProviderFigures;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::depths::ProviderDepth;
use super::labels::{ChannelLabel, ProviderLabels, Providers};
use super::registrar::Registrar;

type Gauges = Family<ProviderLabels, Gauge>;
type Measures = Family<ProviderLabels, Gauge<f64, AtomicU64>>;

pub(super) struct ProviderMetrics {
    providers: Arc<Providers>,
    in_flight: Gauges,
    limit: Gauges,
    breaker: Gauges,
    tenants_held: Gauges,
    paces: Measures,
    pending: Gauges,
    oldest_due: Measures,
    connections: Gauges,
}

impl ProviderMetrics {
    pub(super) fn new(r: &mut Registrar, providers: Arc<Providers>) -> Self {
        Self {
            providers,
            in_flight: r.add("provider_in_flight", "Calls in progress to a provider or account"),
            limit: r.add(
                "provider_in_flight_limit",
                "Calls that may be in progress to a provider or account, as far as was learned",
            ),
            breaker: r.add(
                "breaker_state",
                "The breaker of a provider or account: 0 closed, 1 recovering, 2 open",
            ),
            tenants_held: r.add(
                "breaker_open_tenants",
                "Tenants whose own breaker at a provider or account is not closed",
            ),
            paces: r.add(
                "lane_pace_per_second",
                "Calls per second that a provider seems to accept; only if it ever throttled",
            ),
            pending: r
                .add("provider_pending_deliveries", "Deliveries to a provider that are not final"),
            oldest_due: r.add(
                "provider_oldest_due_seconds",
                "How long the delivery to a provider has been due that has been due longest",
            ),
            connections: r.add(
                "account_connections",
                "Open connections of an account to its mail relay or message centre",
            ),
        }
    }

    /// Sets all figures. Those of forgotten providers disappear.
    pub(super) fn update(&self, providers: &[ProviderFigures]) {
        let all = [&self.in_flight, &self.limit, &self.breaker, &self.tenants_held];
        all.into_iter().for_each(Family::clear);
        for figures in providers {
            let labels = self.labels(figures.channel, &figures.provider);
            add(&self.in_flight, &labels, figures.in_flight);
            add(&self.limit, &labels, figures.limit);
            add(&self.tenants_held, &labels, figures.tenants_held);
            let state = match figures.breaker {
                BreakerState::Closed | BreakerState::ForcedClosed => 0,
                BreakerState::Recovering { .. } => 1,
                BreakerState::Open { .. } | BreakerState::ForcedOpen => 2,
            };
            let gauge = self.breaker.get_or_create(&labels);
            gauge.set(gauge.get().max(state));
        }
    }

    pub(super) fn update_depths(&self, depths: &[ProviderDepth], now: Timestamp) {
        self.pending.clear();
        self.oldest_due.clear();
        for depth in depths {
            let labels = self.labels(depth.channel, &depth.provider);
            let pending = usize::try_from(depth.pending).unwrap_or(usize::MAX);
            add(&self.pending, &labels, pending);
            let waited = depth.next_due.map_or(0.0, |due| now.since(due).as_secs_f64());
            let gauge = self.oldest_due.get_or_create(&labels);
            gauge.set(gauge.get().max(waited));
        }
    }

    pub(super) fn update_connections(&self, open: &[(ChannelKind, Arc<str>, usize)]) {
        self.connections.clear();
        for (channel, account, count) in open {
            add(&self.connections, &self.labels(*channel, account), *count);
        }
    }

    /// Sets the learned paces. Forgotten ones disappear. Of the providers called `other`, the slowest counts.
    pub(super) fn update_paces(&self, learned: &[(ChannelKind, Arc<str>, f64)]) {
        self.paces.clear();
        let mut slowest: HashMap<ProviderLabels, f64> = HashMap::new();
        for (channel, provider, per_s) in learned {
            let known = slowest.entry(self.labels(*channel, provider)).or_insert(*per_s);
            *known = known.min(*per_s);
        }
        for (labels, per_s) in slowest {
            self.paces.get_or_create(&labels).set(per_s);
        }
    }

    fn labels(&self, channel: ChannelKind, provider: &Arc<str>) -> ProviderLabels {
        let provider = self.providers.bounded(provider);
        ProviderLabels { channel: ChannelLabel(channel), provider }
    }
}

fn add(gauges: &Gauges, labels: &ProviderLabels, count: usize) {
    gauges.get_or_create(labels).inc_by(i64::try_from(count).unwrap_or(i64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(registrar: &Registrar, name: &str) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registrar.registry).unwrap();
        text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    }

    #[test]
    fn a_pace_is_shown_while_it_is_known_and_the_slowest_stands_for_those_beyond_the_bound() {
        let mut registrar = Registrar::default();
        let metrics = ProviderMetrics::new(&mut registrar, Arc::default());
        let shown = |paces: &[(ChannelKind, Arc<str>, f64)]| {
            metrics.update_paces(paces);
            lines(&registrar, "postrider_lane_pace")
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

    #[test]
    fn providers_beyond_the_bound_are_added_up_and_their_worst_breaker_counts() {
        let mut registrar = Registrar::default();
        let metrics = ProviderMetrics::new(&mut registrar, Arc::default());
        let of = |n: usize| ProviderFigures {
            channel: postrider_channels::webhook::KIND,
            provider: format!("https://h{n}").into(),
            in_flight: 2,
            limit: 10,
            breaker: if n == 110 { BreakerState::ForcedOpen } else { BreakerState::Closed },
            tenants_held: 0,
        };
        // The last quarter of the hundred names is for tenants with few providers.
        metrics.update(&(0..150).map(of).collect::<Vec<_>>());
        metrics.update(&(0..150).map(of).collect::<Vec<_>>());
        let other = |name: &str| {
            lines(&registrar, name).into_iter().find(|line| line.contains("other")).unwrap()
        };
        assert!(other("postrider_provider_in_flight{").ends_with(" 150"));
        assert!(other("postrider_provider_in_flight_limit").ends_with(" 750"));
        assert!(other("postrider_breaker_state").ends_with(" 2"));
        assert_eq!(lines(&registrar, "postrider_breaker_state").len(), 76);
    }
}

//! Makes metrics, registers them, and remembers their names, so that the documentation can be compared with them.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry};

use super::histogram::AtomicHistogram;
use super::labels::LaneLabels;

pub(super) type Histograms = Family<LaneLabels, AtomicHistogram, fn() -> AtomicHistogram>;

const PREFIX: &str = "postrider";

pub(super) struct Registrar {
    pub(super) registry: Registry,
    /// As a scrape shows them.
    pub(super) names: Vec<MetricName>,
}

/// A metric as a scrape shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetricName {
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
}

impl Default for Registrar {
    fn default() -> Self {
        Self { registry: Registry::with_prefix(PREFIX), names: Vec::new() }
    }
}

impl Registrar {
    /// Makes a metric and registers it.
    pub(super) fn add<M: Metric + TypedMetric + Clone + Default>(
        &mut self,
        name: &str,
        help: &str,
    ) -> M {
        self.register(name, help, M::default())
    }

    /// The same for a metric that has no default.
    pub(super) fn register<M: Metric + TypedMetric + Clone>(
        &mut self,
        name: &str,
        help: &str,
        metric: M,
    ) -> M {
        let (kind, suffix) = match M::TYPE {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Histogram => ("histogram", ""),
            _ => ("gauge", ""),
        };
        self.names.push(MetricName { name: format!("{PREFIX}_{name}{suffix}"), kind });
        self.registry.register(name, help, metric.clone());
        metric
    }

    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        new: fn() -> AtomicHistogram,
    ) -> Histograms {
        self.register(name, help, Histograms::new_with_constructor(new))
    }
}

//! Logs, metrics, rates and live events. Never shows an endpoint, a token or a payload.

mod accounts;
mod depths;
mod events;
mod exposition;
mod histogram;
mod labels;
mod lag;
mod lane_metrics;
pub mod log;
mod metrics;
mod observer;
mod provider_metrics;
mod rates;
mod receipts;
mod registrar;

pub use events::{EventBody, EventBus};
pub use exposition::{CLASSIC, OPEN_METRICS, takes_open_metrics};
pub use metrics::{Metrics, ScrapeFigures};
pub use rates::{RatesBody, Totals, TotalsBody};
pub use registrar::MetricName;

//! Logs, metrics, rates and live events. Never shows an endpoint, a token or a payload.

mod accounts;
mod events;
mod labels;
mod lag;
pub mod log;
mod metrics;
mod observer;
mod rates;

pub use events::{EventBody, EventBus};
pub use metrics::Metrics;
pub use rates::{RatesBody, Totals, TotalsBody};

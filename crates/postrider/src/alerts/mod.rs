//! Alerts: tells people of problems, through Postrider's own queue, as a tenant of its own. A route that fails has a
//! backup. Goes past the queue only if the store cannot take an alert.

mod direct;
mod sending;
mod text;

pub(crate) use sending::{AlertSubmission, follow_up, send_due, send_test};

/// The tenant whose deliveries alerts are.
pub(crate) const TENANT: &str = "postrider-alerts";

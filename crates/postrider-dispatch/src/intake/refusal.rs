//! Why the intake did not take a message: precise enough to become a problem-details answer.

use std::time::Duration;

use postrider_core::FieldError;
use postrider_core::policy::backpressure::Capacity;
use postrider_core::ports::store::{Load, StoreError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// A short stable name, e.g. `invalid_message`.
    pub kind: &'static str,
    pub title: &'static str,
    pub detail: String,
    pub errors: Vec<FieldError>,
    pub retry_after_s: Option<u32>,
}

impl Refusal {
    pub fn invalid_json(detail: impl Into<String>) -> Self {
        Self::new(400, "invalid_json", "The body is not valid JSON", detail)
    }

    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [one] => format!("{}: found {}, allowed: {}", one.field, one.found, one.allowed),
            many => format!("{} fields are not as they must be", many.len()),
        };
        Self {
            errors,
            ..Self::new(422, "invalid_message", "The message cannot be accepted", detail)
        }
    }

    pub fn field(
        field: impl Into<String>,
        found: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self::invalid(vec![FieldError::new(field, found, allowed)])
    }

    /// A template that is not there, or cannot be rendered with what the message gives.
    pub(super) fn template(errors: Vec<FieldError>) -> Self {
        let kind = "template";
        let title = "The message's template cannot be rendered";
        Self { kind, title, ..Self::invalid(errors) }
    }

    pub fn conflict(first: &str) -> Self {
        Self::new(
            409,
            "idempotency_conflict",
            "The idempotency key was used for another message",
            format!(
                "the first message under this key is {first}; use a new key for a new message, or repeat the first body unchanged"
            ),
        )
    }

    /// No room at present; `whose` capacity is used up.
    pub(super) fn full(whose: &'static str, wait: Duration) -> Self {
        let retry_after_s = u32::try_from(wait.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX);
        let (kind, title) = match whose {
            "tenant" => ("tenant_full", "The tenant has as much pending as it may"),
            _ => ("server_full", "The server has as much pending as it may"),
        };
        let detail = format!(
            "nothing of this message was accepted; at the present pace there is room in about {retry_after_s} s"
        );
        Self { retry_after_s: Some(retry_after_s), ..Self::new(429, kind, title, detail) }
    }

    /// More than there could ever be room for: waiting does not help.
    pub(super) fn never_fits(capacity: &Capacity, more: Load, whose: &str) -> Self {
        let bound = |max: u64, what: &str| match max {
            0 => format!("any number of {what}"),
            max => format!("at most {max} {what}"),
        };
        Self::field(
            "to",
            format!("{} deliveries of {} bytes in all", more.deliveries, more.bytes),
            format!(
                "{} and {} pending for the {whose} (section [capacity])",
                bound(capacity.deliveries_max, "deliveries"),
                bound(capacity.bytes_max, "bytes"),
            ),
        )
    }

    pub fn new(
        status: u16,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self { status, kind, title, detail: detail.into(), errors: Vec::new(), retry_after_s: None }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let (kind, title) = match error {
            StoreError::Full(_) => ("store_full", "There is no room for new work"),
            StoreError::Closed => ("shutting_down", "The server is shutting down"),
            _ => ("store_unavailable", "The store cannot take new work"),
        };
        let detail = format!("{error}; nothing was accepted, try again later");
        Self { retry_after_s: Some(5), ..Self::new(503, kind, title, detail) }
    }
}

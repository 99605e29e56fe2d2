//! Why the gate did not take a message: precise enough to become a problem-details answer.

use postrider_core::FieldError;
use postrider_core::store::StoreError;

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

//! Why the intake refuses a message. Knows no HTTP: the API chooses status and title by kind.

use std::time::Duration;

use postrider_core::policy::backpressure::Capacity;
use postrider_core::ports::store::{Load, StoreError};
use postrider_core::{FieldError, MessageId};

use super::quota::QuotaExcess;

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    InvalidJson,
    InvalidMessage,
    /// The template does not exist, or cannot be rendered with the variables of the message.
    Template,
    /// There was no time to render the template.
    TemplateLate,
    /// The idempotency key was used for another message.
    IdempotencyConflict,
    TenantFull,
    /// The tenant keeps as much as it may.
    QuotaExceeded,
    ServerFull,
    StoreFull,
    ShuttingDown,
    StoreUnavailable,
    /// A bug of ours.
    Internal,
}

impl RefusalKind {
    /// The stable name, as API and metrics show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid_json",
            Self::InvalidMessage => "invalid_message",
            Self::Template => "template",
            Self::TemplateLate => "template_late",
            Self::IdempotencyConflict => "idempotency_conflict",
            Self::TenantFull => "tenant_full",
            Self::QuotaExceeded => "quota_exceeded",
            Self::ServerFull => "server_full",
            Self::StoreFull => "store_full",
            Self::ShuttingDown => "shutting_down",
            Self::StoreUnavailable => "store_unavailable",
            Self::Internal => "internal",
        }
    }

    /// Whether the message itself is at fault.
    pub fn is_invalid(self) -> bool {
        matches!(self, Self::InvalidMessage | Self::Template)
    }
}

/// Whose capacity is used up.
#[derive(Debug, Clone, Copy)]
pub(super) enum CapacityOwner {
    Tenant,
    Server,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntakeRefusal {
    pub kind: RefusalKind,
    pub detail: String,
    pub errors: Vec<FieldError>,
    pub retry_after_s: Option<u32>,
}

impl IntakeRefusal {
    pub fn new(kind: RefusalKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new(), retry_after_s: None }
    }

    pub fn invalid_json(detail: impl Into<String>) -> Self {
        Self::new(RefusalKind::InvalidJson, detail)
    }

    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [one] => format!("{}: found {}, allowed: {}", one.field, one.found, one.allowed),
            many => format!("{} fields are invalid", many.len()),
        };
        Self { errors, ..Self::new(RefusalKind::InvalidMessage, detail) }
    }

    pub fn field(
        field: impl Into<String>,
        found: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self::invalid(vec![FieldError::new(field, found, allowed)])
    }

    pub fn template(errors: Vec<FieldError>) -> Self {
        Self { kind: RefusalKind::Template, ..Self::invalid(errors) }
    }

    /// The server is too busy to render a template in its time.
    pub fn template_late() -> Self {
        let detail =
            "the server is too busy to render the template; nothing was accepted, try again later";
        Self { retry_after_s: Some(2), ..Self::new(RefusalKind::TemplateLate, detail) }
    }

    pub(super) fn conflict(first: MessageId) -> Self {
        let detail = format!(
            "the first message under this key is {first}; use a new key for a new message, or repeat the first body unchanged"
        );
        Self::new(RefusalKind::IdempotencyConflict, detail)
    }

    /// No room at present.
    pub(super) fn full(owner: CapacityOwner, wait: Duration) -> Self {
        let kind = match owner {
            CapacityOwner::Tenant => RefusalKind::TenantFull,
            CapacityOwner::Server => RefusalKind::ServerFull,
        };
        let retry_after_s = u32::try_from(wait.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX);
        let detail = format!(
            "nothing of this message was accepted; there is probably room in about {retry_after_s} s"
        );
        Self { retry_after_s: Some(retry_after_s), ..Self::new(kind, detail) }
    }

    /// The tenant is over a quota, and enough of its calls are being refused already.
    pub(super) fn no_turn() -> Self {
        let detail = "this tenant is over a quota, and others of its calls are being refused at this moment; \
                      nothing was accepted; `postrider tenants show` says which quota it is";
        Self { retry_after_s: Some(1), ..Self::new(RefusalKind::TenantFull, detail) }
    }

    /// The tenant keeps as much as it may: waiting does not help, deleting does.
    pub fn quota(excess: &QuotaExcess) -> Self {
        let QuotaExcess { quota, found, allowed, remedy } = excess;
        let detail = format!("{quota}: found {found}, allowed: {allowed}; {remedy}");
        let error = FieldError::new(*quota, found.to_string(), format!("at most {allowed}"));
        Self { errors: vec![error], ..Self::new(RefusalKind::QuotaExceeded, detail) }
    }

    /// The message is larger than the whole capacity: waiting does not help.
    pub(super) fn never_fits(capacity: &Capacity, more: Load, owner: CapacityOwner) -> Self {
        let bound = |max: u64, what: &str| match max {
            0 => format!("any number of {what}"),
            max => format!("at most {max} {what}"),
        };
        let owner = match owner {
            CapacityOwner::Tenant => "tenant",
            CapacityOwner::Server => "server",
        };
        Self::field(
            "to",
            format!("{} deliveries of {} bytes in all", more.deliveries, more.bytes),
            format!(
                "{} and {} pending for the {owner} (section [capacity])",
                bound(capacity.deliveries_max, "deliveries"),
                bound(capacity.bytes_max, "bytes"),
            ),
        )
    }
}

impl From<StoreError> for IntakeRefusal {
    fn from(error: StoreError) -> Self {
        let kind = match error {
            StoreError::Full { .. } => RefusalKind::StoreFull,
            StoreError::Closed => RefusalKind::ShuttingDown,
            _ => RefusalKind::StoreUnavailable,
        };
        let detail = format!("{error}; nothing was accepted, try again later");
        Self { retry_after_s: Some(5), ..Self::new(kind, detail) }
    }
}

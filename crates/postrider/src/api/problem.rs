//! Errors as RFC 9457 problem details, with the HTTP status of each.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse, Response};
use postrider_core::ports::store::StoreError;
use postrider_dispatch::{FieldError, IntakeRefusal, QuotaExcess, RefusalKind};
use serde::Serialize;
use utoipa::ToSchema;

use crate::keys::KeyError;

/// What is wrong with one field.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FieldProblem {
    /// A path such as `to.address.keys.p256dh`.
    pub field: String,
    pub found: String,
    pub allowed: String,
}

/// RFC 9457 problem details.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// `urn:postrider:problem:` and the kind.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<FieldProblem>,
    #[serde(skip)]
    pub retry_after_s: Option<u32>,
}

/// Marks the answer to a call that a quota refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaRefusal;

pub(crate) type ApiResult<T> = Result<T, Problem>;

impl Problem {
    pub fn new(status: u16, kind: &str, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:postrider:problem:{kind}"),
            title: title.to_owned(),
            status,
            detail: detail.into(),
            errors: Vec::new(),
            retry_after_s: None,
        }
    }

    /// A problem with one field.
    pub fn field(
        field: impl Into<String>,
        found: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        let (field, found, allowed) = (field.into(), found.into(), allowed.into());
        let detail = format!("{field}: found {found}, allowed: {allowed}");
        let mut problem = Self::new(422, "invalid", "The request cannot be accepted", detail);
        problem.errors.push(FieldProblem { field, found, allowed });
        problem
    }

    pub fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        let detail = format!("there is no {what} {id}, or this key may not see it");
        Self::new(404, "not_found", "Not found", detail)
    }

    pub fn too_large(limit: usize) -> Self {
        let setting = if limit > 64 << 10 { " (server.body_bytes_max)" } else { "" };
        let detail = format!("the body is larger than {limit} bytes{setting}");
        Self::new(413, "too_large", "The body is too large", detail)
    }

    pub fn timeout(what: &str) -> Self {
        Self::new(408, "timeout", "The request took too long to arrive", what)
    }

    /// A call that did not end in its time.
    pub fn late() -> Self {
        let detail = "the call took longer than server.request_timeout_s; it may have been done, so repeat it with \
                      the same idempotency key";
        let problem = Self::new(503, "late", "The call took too long", detail);
        Self { retry_after_s: Some(5), ..problem }
    }

    /// A limit of calls.
    pub fn too_many(detail: &str, wait: std::time::Duration) -> Self {
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        let problem = Self::new(429, "too_many_calls", "There are too many calls", detail);
        Self { retry_after_s: Some(seconds), ..problem }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }
}

impl From<FieldError> for FieldProblem {
    fn from(error: FieldError) -> Self {
        Self { field: error.field, found: error.found, allowed: error.allowed }
    }
}

impl From<IntakeRefusal> for Problem {
    fn from(refusal: IntakeRefusal) -> Self {
        let (status, title) = status_and_title(refusal.kind);
        Self {
            errors: refusal.errors.into_iter().map(Into::into).collect(),
            retry_after_s: refusal.retry_after_s,
            ..Self::new(status, refusal.kind.name(), title, refusal.detail)
        }
    }
}

fn status_and_title(kind: RefusalKind) -> (u16, &'static str) {
    match kind {
        RefusalKind::InvalidJson => (400, "The body is not valid JSON"),
        RefusalKind::InvalidMessage => (422, "The message cannot be accepted"),
        RefusalKind::Template => (422, "The message's template cannot be rendered"),
        RefusalKind::TemplateLate => (503, "The template could not be rendered in time"),
        RefusalKind::IdempotencyConflict => {
            (409, "The idempotency key was used for another message")
        }
        RefusalKind::TenantFull => (429, "The tenant has as much pending as it may"),
        RefusalKind::QuotaExceeded => (403, "The tenant keeps as much as it may"),
        RefusalKind::ServerFull => (429, "The server has as much pending as it may"),
        RefusalKind::StoreFull => (503, "There is no room for new work"),
        RefusalKind::ShuttingDown => (503, "The server is shutting down"),
        RefusalKind::StoreUnavailable => (503, "The store cannot take new work"),
        RefusalKind::Internal => (500, "The store gave no answer"),
    }
}

impl From<QuotaExcess> for Problem {
    fn from(excess: QuotaExcess) -> Self {
        IntakeRefusal::quota(&excess).into()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        IntakeRefusal::from(error).into()
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Store(error) => error.into(),
            KeyError::TooMany { quota, found, allowed } => {
                let remedy = "revoke keys that are not needed, or raise the limit";
                QuotaExcess { quota, found, allowed, remedy }.into()
            }
            KeyError::TooOften { wait } => {
                Self::too_many("keys are rotated more often than limits.rotations_per_minute", wait)
            }
            KeyError::TooManyCodes { wait, .. } => Self::too_many(&error.to_string(), wait),
            other => Self::new(500, "internal", "A key could not be created", other.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.to_json()).into_response();
        if self.kind.ends_with(RefusalKind::QuotaExceeded.name()) {
            response.extensions_mut().insert(QuotaRefusal);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"postrider\""),
            );
        }
        response
    }
}

//! What is done to dead letters of one cause: first a look at how many there are, then a job.

use serde_json::{Value, json};

use super::api_calls::PageCallResult;
use super::dead_groups::DeadCause;
use super::json_read::JsonRead as _;
use super::page_context::PageContext;

/// What a job would take.
pub(super) struct DeadPlan {
    pub(super) count: u64,
    pub(super) sample: Vec<Value>,
    pub(super) takes_s: u64,
    /// There are more than were counted.
    pub(super) is_partial: bool,
}

/// Changes nothing.
pub(super) async fn plan(
    page: &PageContext,
    kind: &str,
    cause: &DeadCause,
    rate: f64,
) -> PageCallResult<DeadPlan> {
    let body =
        json!({"kind": kind, "filter": filter(kind, cause), "rate_per_s": rate, "dry_run": true});
    let planned = page.calls.for_tenant(&cause.tenant).post("/v1/jobs", &body).await?;
    Ok(DeadPlan {
        count: planned.number("count"),
        sample: planned.list("sample").to_vec(),
        takes_s: planned.number("takes_s"),
        is_partial: planned.has("count_is_at_least"),
    })
}

/// Makes the job, and returns its id.
pub(super) async fn order(
    page: &PageContext,
    kind: &str,
    cause: &DeadCause,
    rate: f64,
    reason: Option<&str>,
) -> PageCallResult<String> {
    let mut body = json!({"kind": kind, "filter": filter(kind, cause), "rate_per_s": rate});
    if let Some(reason) = reason {
        body["reason"] = reason.into();
    }
    let job = page.calls.for_tenant(&cause.tenant).post("/v1/jobs", &body).await?;
    Ok(job.text("id").to_owned())
}

fn filter(kind: &str, cause: &DeadCause) -> Value {
    let mut filter = cause.filter();
    if kind == "export" {
        filter["state"] = "failed".into();
    }
    filter
}

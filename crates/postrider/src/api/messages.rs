//! Messages: accept, show and cancel them, and read their content.

use axum::extract::{FromRequest as _, Request};
use axum::http::HeaderMap;
use postrider_core::MessageId;
use postrider_dispatch::Submission;

use super::lines;
use super::parameters;
use super::prelude::*;
use super::schema::MessageRequest;
use super::views::{DeliveryRef, MessageBody};
use crate::events::LoggedEvent;

/// An accepted message. It is on disk.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Accepted)]
pub(crate) struct AcceptResponse {
    /// `msg_…`
    pub id: String,
    pub deliveries: Vec<DeliveryRef>,
    /// True if the idempotency key was used before: this repeats the first answer.
    pub duplicate: bool,
    /// Of a list, how many addresses its campaign had reached before: they are left out.
    pub repeated: Option<usize>,
    /// Deliveries that would not be sent as things are, and why. It is asked again just before sending, and that one
    /// counts.
    pub withheld: Option<Vec<WithheldBody>>,
}

/// A delivery that its recipient would not get.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Withheld)]
pub(crate) struct WithheldBody {
    /// `dlv_…`
    pub delivery: String,
    /// `undeliverable`, `complaint`, `unsubscribed`, `snoozed`, `opted_out`, `not_opted_in`, `quiet_hours`, …
    pub reason: &'static str,
}

/// Accept one message. 202 means that it is on disk and survives a crash.
#[utoipa::path(post, path = "/v1/messages", tag = "messages", request_body = MessageRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeat harmless")),
    responses((status = 202, body = AcceptResponse), (status = "4XX", body = Problem), (status = 503, body = Problem)))]
pub(crate) async fn accept(
    State(app): State<SharedState>,
    access: SendAccess,
    headers: HeaderMap,
    request: Request,
) -> ApiResult<Response> {
    app.refuse_if_worker()?;
    // Of a tenant over a quota, few bodies are read at the same time.
    let turn = app.intake.quotas().turn(&access.tenant).await?;
    let RawJson(body) = RawJson::from_request(request, &app).await?;
    let traceparent = headers.get("traceparent").and_then(|v| v.to_str().ok());
    let start = app.clock.now();
    let own = app.tracer.as_ref().and_then(|_| lines::own_traceparent(&body));
    let submission = Submission {
        body,
        idempotency_key: idempotency_key(&headers)?,
        traceparent: traceparent.map(str::to_owned),
    };
    app.signing.ensure(&access.tenant).await?;
    let mut answers = app.intake.admit_in_turn(&access.tenant, vec![submission], turn).await;
    let answer = answers.pop().ok_or_else(|| {
        Problem::new(500, "internal", "The intake gave no answer", "please report this")
    })?;
    app.metrics.admitted(&answer);
    if let (Some(tracer), Ok(accepted)) = (&app.tracer, &answer) {
        let traceparent = own.as_deref().or(traceparent);
        tracer.accepted(traceparent, &access.tenant, accepted, start);
    }
    let mut json = Vec::with_capacity(160);
    lines::accepted(&mut json, &answer?);
    Ok((StatusCode::ACCEPTED, [("content-type", "application/json")], json).into_response())
}

/// A message with its counts per state.
#[utoipa::path(get, path = "/v1/messages/{id}", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, body = MessageBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<MessageBody>> {
    let id: MessageId = parameters::id("id", &id)?;
    let found = app.store.message(access.view.as_ref(), id).await?;
    Ok(Json(found.ok_or_else(|| Problem::not_found("message", id))?.into()))
}

/// The result of a cancellation.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CancelBody)]
pub(crate) struct CancelResponse {
    pub cancelled: u64,
    /// Being sent at this moment: too late to cancel.
    pub in_flight: u64,
    pub already_final: u64,
}

/// Cancel what is not yet sent.
#[utoipa::path(post, path = "/v1/messages/{id}/cancel", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, body = CancelResponse), (status = 404, body = Problem)))]
pub(crate) async fn cancel(
    State(app): State<SharedState>,
    access: SendAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<CancelResponse>> {
    let id: MessageId = parameters::id("id", &id)?;
    let done = app.store.cancel(Some(&access.tenant), id).await?;
    let done = done.ok_or_else(|| Problem::not_found("message", id))?;
    let event = LoggedEvent::of_cancel(&access.tenant, id, done.cancelled, app.clock.now());
    app.events.note(vec![event]).await;
    audit(&access.caller, "message.cancel", &id, done.cancelled);
    Ok(Json(CancelResponse {
        cancelled: done.cancelled,
        in_flight: done.in_flight,
        already_final: done.already_final,
    }))
}

/// The stored content of a message. Needs a key with the scope `content`; every call is audited.
#[utoipa::path(get, path = "/v1/messages/{id}/content", tag = "messages", params(("id" = String, Path)),
    responses((status = 200, description = "The content as it was sent", content_type = "application/json"),
        (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn content(
    State(app): State<SharedState>,
    access: ContentAccess,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    let id: MessageId = parameters::id("id", &id)?;
    let content = app.store.content(access.view.as_ref(), id).await?;
    audit(&access.caller, "message.content", &id, u64::from(content.is_some()));
    let content = content.ok_or_else(|| {
        let detail = "there is no such message, this key may not see it, or its body was erased \
                      because it is final";
        Problem::new(404, "not_found", "Not found", detail)
    })?;
    let headers = [("content-type", "application/json"), ("cache-control", "no-store")];
    Ok((headers, content.to_string()).into_response())
}

/// Refuses a key that cannot be read: without it, a repeat would be sent twice.
pub(super) fn idempotency_key(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().map_err(|_| {
        let found = "bytes that are not printable ASCII";
        Problem::field("Idempotency-Key", found, "1 to 256 printable characters")
    })?;
    Ok(Some(text.to_owned()))
}

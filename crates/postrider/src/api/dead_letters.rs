//! Dead letters: list, replay (at a chosen rate) and discard them.

use postrider_core::policy::backoff::RetryPolicy;
use postrider_core::policy::ttl;
use postrider_core::ports::store::{DeliveryFilter, Replay, Selection};
use postrider_core::{DeadReason, DeliveryId};

use super::parameters::{channel, id, name, reasons, time};
use super::prelude::*;
use super::views::{DeliveryBody, DeliveryPage};
use super::{cursor as cursors, schema};

const IDS_MAX: usize = 10_000;

/// Which dead letters to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadLetterQuery {
    /// `permanent`, `retries_exhausted`, `ttl`, `poison`, `ambiguous` or `refused`.
    pub reason: Option<String>,
    /// A channel, e.g. `webhook`.
    pub channel: Option<String>,
    /// Part of the last attempt's code or detail.
    pub error: Option<String>,
    /// One of the tags of the message.
    pub tag: Option<String>,
    /// Not older than this (RFC 3339).
    pub since: Option<String>,
    /// Older than this (RFC 3339).
    pub until: Option<String>,
    pub cursor: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

/// Dead letters, newest first.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "dead letters", params(DeadLetterQuery),
    responses((status = 200, body = DeliveryPage), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<DeadLetterQuery>,
) -> ApiResult<Json<DeliveryPage>> {
    let DeadLetterQuery { reason, channel, error, tag, since, until, cursor, limit: size } = query;
    let filter = DeliveryFilter {
        tenant: access.view,
        cursor: cursors::decode(cursor.as_deref(), |id| id.parse().ok())?,
        limit: limit(size)?,
        ..filter_of(DeadLetterFilter { reason, channel, error, tag, since, until })?
    };
    let (items, next) = page(app.store.dead_letters(filter).await?);
    // Lists of dead letters are passed on to people who need not know whom a message was for.
    let nameless = |body: DeliveryBody| DeliveryBody { recipient: None, ..body };
    Ok(Json(DeliveryPage { items: items.into_iter().map(nameless).collect(), next }))
}

/// Selects dead letters; `{}` selects all of them.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = DeadFilter)]
pub(crate) struct DeadLetterFilter {
    pub reason: Option<String>,
    pub channel: Option<String>,
    pub error: Option<String>,
    /// One of the tags of the message.
    pub tag: Option<String>,
    pub since: Option<String>,
    pub until: Option<String>,
}

/// Exactly one of `ids` and `filter`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayRequest {
    pub ids: Option<Vec<String>>,
    pub filter: Option<DeadLetterFilter>,
    /// At most this many become due per second; all at once if absent.
    pub rate_per_s: Option<f64>,
    /// The new time to live; the message's own if absent.
    pub ttl_s: Option<u32>,
    /// A new retry policy for the replayed deliveries.
    #[schema(value_type = Option<schema::RetryRequest>)]
    pub retry: Option<RetryPolicy>,
}

/// Exactly one of `ids` and `filter`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiscardRequest {
    pub ids: Option<Vec<String>>,
    pub filter: Option<DeadLetterFilter>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Replayed)]
pub(crate) struct ReplayResponse {
    pub replayed: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Discarded)]
pub(crate) struct DiscardResponse {
    pub discarded: u64,
}

/// Put dead letters back into the queue, at a chosen rate if given.
#[utoipa::path(post, path = "/v1/dead-letters/replay", tag = "dead letters", request_body = ReplayRequest,
    responses((status = 200, body = ReplayResponse), (status = "4XX", body = Problem)))]
pub(crate) async fn replay(
    State(app): State<SharedState>,
    access: ReplayAccess,
    JsonBody(request): JsonBody<ReplayRequest>,
) -> ApiResult<Json<ReplayResponse>> {
    if let Some(rate) = request.rate_per_s.filter(|r| !(r.is_finite() && *r > 0.0)) {
        return Err(Problem::field("rate_per_s", rate.to_string(), "a number above 0"));
    }
    if let Some(found) = request.ttl_s.filter(|ttl_s| *ttl_s > ttl::MAX_S) {
        let allowed = format!("0 to {}", ttl::MAX_S);
        return Err(Problem::field("ttl_s", found.to_string(), allowed));
    }
    check_retry(request.retry.as_ref())?;
    let chosen = chosen(request.ids.as_deref(), request.filter.as_ref());
    let which = selection(request.ids, request.filter)?;
    let how = Replay { ttl_s: request.ttl_s, rate_per_s: request.rate_per_s, retry: request.retry };
    let replayed = app.store.replay(Some(&access.tenant), which, how).await?;
    audit(&access.caller, "dead_letters.replay", &"", replayed);
    note_audit(|draft| draft.filter = chosen);
    Ok(Json(ReplayResponse { replayed }))
}

/// Give up dead letters for good: body and address are erased, the history stays.
#[utoipa::path(post, path = "/v1/dead-letters/discard", tag = "dead letters", request_body = DiscardRequest,
    responses((status = 200, body = DiscardResponse), (status = "4XX", body = Problem)))]
pub(crate) async fn discard(
    State(app): State<SharedState>,
    access: ReplayAccess,
    JsonBody(request): JsonBody<DiscardRequest>,
) -> ApiResult<Json<DiscardResponse>> {
    let chosen = chosen(request.ids.as_deref(), request.filter.as_ref());
    let which = selection(request.ids, request.filter)?;
    let discarded = app.store.discard(Some(&access.tenant), which).await?;
    audit(&access.caller, "dead_letters.discard", &"", discarded);
    note_audit(|draft| draft.filter = chosen);
    Ok(Json(DiscardResponse { discarded }))
}

/// As strict as the intake: a policy without waits or without an end would overload a provider.
fn check_retry(policy: Option<&RetryPolicy>) -> ApiResult<()> {
    let Some(Err(errors)) = policy.map(RetryPolicy::validate) else { return Ok(()) };
    let below = |mut e: postrider_dispatch::FieldError| {
        e.field = format!("retry.{}", e.field);
        e
    };
    Err(postrider_dispatch::IntakeRefusal::invalid(errors.into_iter().map(below).collect()).into())
}

/// What a request chose, for the audit log. A recipient is not repeated there.
pub(super) fn chosen(ids: Option<&[String]>, filter: Option<&impl Serialize>) -> Option<Value> {
    if let Some(ids) = ids {
        return Some(serde_json::json!({"ids": ids}));
    }
    let mut filter = serde_json::to_value(filter?).unwrap_or_default();
    if let Some(fields) = filter.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
        if let Some(recipient) = fields.get_mut("recipient") {
            *recipient = "(given)".into();
        }
    }
    Some(filter)
}

/// The ids of a request.
pub(super) fn delivery_ids(ids: &[String]) -> ApiResult<Vec<DeliveryId>> {
    if ids.len() > IDS_MAX {
        let allowed = format!("at most {IDS_MAX}; use a filter for more");
        return Err(Problem::field("ids", format!("{} ids", ids.len()), allowed));
    }
    ids.iter().map(|text| id("ids", text)).collect()
}

fn selection(ids: Option<Vec<String>>, filter: Option<DeadLetterFilter>) -> ApiResult<Selection> {
    match (ids, filter) {
        (Some(ids), None) => Ok(Selection::Ids(delivery_ids(&ids)?)),
        (None, Some(filter)) => Ok(Selection::Filter(filter_of(filter)?)),
        (given, _) => {
            let found = if given.is_some() { "both" } else { "neither" };
            Err(Problem::field("ids or filter", found, "exactly one of ids and filter"))
        }
    }
}

fn filter_of(filter: DeadLetterFilter) -> ApiResult<DeliveryFilter> {
    Ok(DeliveryFilter {
        reason: name("reason", filter.reason, DeadReason::parse, reasons)?,
        channel: channel(filter.channel)?,
        error: filter.error,
        tag: filter.tag.map(Into::into),
        since: time("since", filter.since)?,
        until: time("until", filter.until)?,
        ..DeliveryFilter::default()
    })
}

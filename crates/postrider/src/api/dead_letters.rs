//! Dead letters: list, replay (at a chosen rate) and discard them.

use postrider_core::DeliveryId;
use postrider_core::policy::backoff::RetryPolicy;
use postrider_core::policy::ttl;
use postrider_core::ports::store::{DeliveryFilter, Replay, Selection};

use super::delivery_filter::DeliveryFilterBody;
use super::parameters::id;
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
    /// The provider of the delivery, e.g. `https://hooks.example.com`.
    pub provider: Option<String>,
    pub class: Option<String>,
    /// The account that the last attempt went through.
    pub account: Option<String>,
    /// Part of the last attempt's code or detail.
    pub error: Option<String>,
    /// Exactly the last attempt's code, or its detail if it has no code; empty for those with neither.
    pub error_is: Option<String>,
    /// One of the tags of the message.
    pub tag: Option<String>,
    pub campaign: Option<String>,
    pub recipient: Option<String>,
    /// `msg_…`
    pub message: Option<String>,
    /// Those of the message that was accepted under this key, while the key is remembered. Needs one tenant.
    pub idempotency_key: Option<String>,
    /// Not older than this (RFC 3339).
    pub since: Option<String>,
    /// Older than this (RFC 3339).
    pub until: Option<String>,
    pub cursor: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

impl DeadLetterQuery {
    fn filter(self) -> DeliveryFilterBody {
        DeliveryFilterBody {
            reason: self.reason,
            channel: self.channel,
            provider: self.provider,
            class: self.class,
            account: self.account,
            error: self.error,
            error_is: self.error_is,
            tag: self.tag,
            campaign: self.campaign,
            recipient: self.recipient,
            message: self.message,
            idempotency_key: self.idempotency_key,
            since: self.since,
            until: self.until,
            ..DeliveryFilterBody::default()
        }
    }
}

/// Dead letters, newest first.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "dead letters", params(DeadLetterQuery),
    responses((status = 200, body = DeliveryPage), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<DeadLetterQuery>,
) -> ApiResult<Json<DeliveryPage>> {
    let (cursor, limit) =
        (cursors::decode(query.cursor.as_deref(), |id| id.parse().ok())?, limit(query.limit)?);
    let Some(filter) = query.filter().read(&app, access.view).await? else {
        return Ok(Json(DeliveryPage { items: Vec::new(), next: None }));
    };
    let filter = DeliveryFilter { cursor, limit, ..filter };
    let (items, next) = page(app.store.dead_letters(filter).await?);
    // Lists of dead letters are passed on to people who need not know whom a message was for.
    let nameless = |body: DeliveryBody| DeliveryBody { recipient: None, ..body };
    Ok(Json(DeliveryPage { items: items.into_iter().map(nameless).collect(), next }))
}

/// Exactly one of `ids` and `filter`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayRequest {
    pub ids: Option<Vec<String>>,
    pub filter: Option<DeliveryFilterBody>,
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
    pub filter: Option<DeliveryFilterBody>,
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
    note_audit(|draft| draft.filter = chosen);
    let which = selection(&app, &access.tenant, request.ids, request.filter).await?;
    let how = Replay {
        ttl_s: request.ttl_s,
        rate_per_s: request.rate_per_s,
        retry: request.retry,
        dead_before: None,
    };
    let replayed = app.store.replay(Some(&access.tenant), which, how).await?;
    audit(&access.caller, "dead_letters.replay", &"", replayed);
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
    note_audit(|draft| draft.filter = chosen);
    let which = selection(&app, &access.tenant, request.ids, request.filter).await?;
    let discarded = app.store.discard(Some(&access.tenant), which).await?;
    audit(&access.caller, "dead_letters.discard", &"", discarded);
    Ok(Json(DiscardResponse { discarded }))
}

/// As strict as the intake: a policy without waits or without an end would overload a provider.
pub(super) fn check_retry(policy: Option<&RetryPolicy>) -> ApiResult<()> {
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

async fn selection(
    app: &SharedState,
    tenant: &TenantId,
    ids: Option<Vec<String>>,
    filter: Option<DeliveryFilterBody>,
) -> ApiResult<Selection> {
    match (ids, filter) {
        (Some(ids), None) => Ok(Selection::Ids(delivery_ids(&ids)?)),
        (None, Some(filter)) => Ok(match filter.read(app, Some(tenant.clone())).await? {
            Some(filter) => Selection::Filter(filter),
            None => Selection::Ids(Vec::new()),
        }),
        (given, _) => {
            let found = if given.is_some() { "both" } else { "neither" };
            Err(Problem::field("ids or filter", found, "exactly one of ids and filter"))
        }
    }
}

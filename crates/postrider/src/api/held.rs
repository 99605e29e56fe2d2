//! Held deliveries: lets them go on. A restored backup holds what was pending in it.

use postrider_core::ports::store::{DeliveryFilter, Selection};

use super::auth::ReleaseAccess;
use super::dead_letters::{chosen, delivery_ids};
use super::parameters::{channel, optional_id, time};
use super::prelude::*;

/// Selects held deliveries; `{}` selects all of them.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = HeldFilter)]
pub(crate) struct HeldFilterBody {
    /// A channel, e.g. `webhook`.
    pub channel: Option<String>,
    pub recipient: Option<String>,
    /// `msg_…`
    pub message: Option<String>,
    /// One of the tags of the message.
    pub tag: Option<String>,
    /// Not older than this (RFC 3339).
    pub since: Option<String>,
    /// Older than this (RFC 3339).
    pub until: Option<String>,
}

/// Exactly one of `ids` and `filter`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseRequest {
    pub ids: Option<Vec<String>>,
    pub filter: Option<HeldFilterBody>,
    /// At most this many become due per second; all at once if absent.
    pub rate_per_s: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Released)]
pub(crate) struct ReleaseResponse {
    pub released: u64,
}

/// Let held deliveries go on, at a chosen rate if given. With a key for all tenants and `Postrider-Tenant: *`, those
/// of all tenants.
#[utoipa::path(post, path = "/v1/deliveries/release", tag = "deliveries", request_body = ReleaseRequest,
    responses((status = 200, body = ReleaseResponse), (status = "4XX", body = Problem)))]
pub(crate) async fn release(
    State(app): State<SharedState>,
    access: ReleaseAccess,
    JsonBody(request): JsonBody<ReleaseRequest>,
) -> ApiResult<Json<ReleaseResponse>> {
    if let Some(rate) = request.rate_per_s.filter(|r| !(r.is_finite() && *r > 0.0)) {
        return Err(Problem::field("rate_per_s", rate.to_string(), "a number above 0"));
    }
    let chosen = chosen(request.ids.as_deref(), request.filter.as_ref());
    note_audit(|draft| draft.filter = chosen);
    let which = match (request.ids, request.filter) {
        (Some(ids), None) => Selection::Ids(delivery_ids(&ids)?),
        (None, Some(filter)) => Selection::Filter(filter_of(filter)?),
        (given, _) => {
            let found = if given.is_some() { "both" } else { "neither" };
            return Err(Problem::field("ids or filter", found, "exactly one of ids and filter"));
        }
    };
    let released = app.store.release_held(access.view.as_ref(), which, request.rate_per_s).await?;
    audit(&access.caller, "deliveries.release", &"", released);
    Ok(Json(ReleaseResponse { released }))
}

fn filter_of(filter: HeldFilterBody) -> ApiResult<DeliveryFilter> {
    Ok(DeliveryFilter {
        channel: channel(filter.channel)?,
        recipient: filter.recipient.map(Into::into),
        message: optional_id("message", filter.message)?,
        tag: filter.tag.map(Into::into),
        since: time("since", filter.since)?,
        until: time("until", filter.until)?,
        ..DeliveryFilter::default()
    })
}

//! The ledger: deliveries with their attempts, and what is known about why each is where it is.

use axum::Json;
use axum::extract::{Path, State};
use postrider_core::ports::store::DeliveryFilter;
use postrider_core::{
    ChannelKind, DeadReason, DeliveryId, LaneKey, State as DeliveryState, Timestamp,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::SharedState;
use super::auth::ReadAccess;
use super::explain::{ExplainContext, ExplanationBody, explain};
use super::extract::StrictQuery;
use super::problem::{ApiResult, Problem};
use super::strikes;
use super::views::{DeliveryBody, DeliveryPage};

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 1000;

/// Which deliveries to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveryQuery {
    /// A state such as `retrying`.
    pub state: Option<String>,
    /// `webpush`, `webhook` or `http`.
    pub channel: Option<String>,
    pub recipient: Option<String>,
    /// `msg_…`
    pub message: Option<String>,
    /// Not older than this (RFC 3339).
    pub since: Option<String>,
    /// Older than this (RFC 3339).
    pub until: Option<String>,
    /// The `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

/// Deliveries, newest first.
#[utoipa::path(get, path = "/v1/deliveries", tag = "deliveries", params(DeliveryQuery),
    responses((status = 200, body = DeliveryPage), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<DeliveryQuery>,
) -> ApiResult<Json<DeliveryPage>> {
    let filter = DeliveryFilter {
        tenant: access.view,
        state: named("state", query.state, DeliveryState::parse, states)?,
        channel: channel(query.channel)?,
        recipient: query.recipient.map(Into::into),
        message: id("message", query.message)?,
        since: time("since", query.since)?,
        until: time("until", query.until)?,
        cursor: id("cursor", query.cursor)?,
        limit: limit(query.limit)?,
        ..DeliveryFilter::default()
    };
    Ok(Json(page(app.store.deliveries(filter).await?)))
}

/// One delivery with all its attempts.
#[utoipa::path(get, path = "/v1/deliveries/{id}", tag = "deliveries", params(("id" = String, Path)),
    responses((status = 200, body = DeliveryBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<DeliveryBody>> {
    Ok(Json(find(&app, &access, &id).await?.into()))
}

/// Why a delivery is where it is, what it waits for, and what can be done.
#[utoipa::path(get, path = "/v1/deliveries/{id}/explain", tag = "deliveries", params(("id" = String, Path)),
    responses((status = 200, body = ExplanationBody), (status = 404, body = Problem)))]
pub(crate) async fn explanation(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<ExplanationBody>> {
    let delivery = find(&app, &access, &id).await?;
    let lanes = app.store.lanes(Some(&delivery.tenant), 1000).await?;
    let lane = lanes.into_iter().find(|lane| {
        lane.key.channel == delivery.channel
            && lane.key.provider == delivery.provider
            && lane.key.class == delivery.class
    });
    let standing = app.lanes.standing(&LaneKey {
        tenant: delivery.tenant.clone(),
        channel: delivery.channel,
        provider: delivery.provider.clone(),
        class: delivery.class.clone(),
    });
    let mut class = app.lanes.policies().now().class(&delivery.class).map(|c| (**c).clone());
    let message = app.store.message(access.view.as_ref(), delivery.message).await?;
    let own = message.and_then(|message| message.envelope.retry);
    if let (Some(class), Some(own)) = (&mut class, own) {
        class.retry = own;
    }
    let strikes = strikes::of(&app, &delivery.tenant, delivery.address_hash).await?;
    Ok(Json(explain(&ExplainContext {
        delivery: &delivery,
        strikes: &strikes,
        lane: lane.as_ref(),
        standing: &standing,
        class: class.as_ref(),
        dispatches: app.config().server.role.sends(),
        now: app.clock.now(),
    })))
}

async fn find(
    app: &SharedState,
    access: &ReadAccess,
    text: &str,
) -> ApiResult<postrider_core::Delivery> {
    let id: DeliveryId = parse("id", text)?;
    let found = app.store.delivery(access.view.as_ref(), id).await?;
    found.ok_or_else(|| Problem::not_found("delivery", id))
}

pub(crate) fn page(
    page: postrider_core::ports::store::Page<postrider_core::Delivery, DeliveryId>,
) -> DeliveryPage {
    DeliveryPage {
        items: page.items.into_iter().map(Into::into).collect(),
        next: page.next.map(|id| id.to_string()),
    }
}

pub(crate) fn states() -> String {
    DeliveryState::ALL.iter().map(|s| s.name()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn reasons() -> String {
    DeadReason::ALL.iter().map(|s| s.name()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn named<T>(
    field: &str,
    text: Option<String>,
    parse: impl Fn(&str) -> Option<T>,
    allowed: impl Fn() -> String,
) -> ApiResult<Option<T>> {
    let Some(text) = text else { return Ok(None) };
    let value = parse(&text).ok_or_else(|| Problem::field(field, quoted(&text), allowed()))?;
    Ok(Some(value))
}

pub(crate) fn channel(text: Option<String>) -> ApiResult<Option<ChannelKind>> {
    named("channel", text, ChannelKind::parse, || {
        ChannelKind::ALL.map(ChannelKind::name).join(", ")
    })
}

pub(crate) fn time(field: &str, text: Option<String>) -> ApiResult<Option<Timestamp>> {
    let parse = |text: &str| {
        let instant: jiff::Timestamp = text.parse().ok()?;
        Some(Timestamp(instant.as_millisecond()))
    };
    named(field, text, parse, || "a time such as 2026-11-15T06:00:00Z".to_owned())
}

pub(crate) fn id<T: std::str::FromStr<Err = postrider_core::model::id::IdError>>(
    field: &str,
    text: Option<String>,
) -> ApiResult<Option<T>> {
    text.map(|text| parse(field, &text)).transpose()
}

pub(crate) fn parse<T: std::str::FromStr<Err = postrider_core::model::id::IdError>>(
    field: &str,
    text: &str,
) -> ApiResult<T> {
    text.parse().map_err(|e: postrider_core::model::id::IdError| {
        let allowed = format!("{}_ and 26 characters of base32", e.prefix);
        Problem::field(field, quoted(text), allowed)
    })
}

pub(crate) fn limit(limit: Option<usize>) -> ApiResult<usize> {
    match limit {
        None => Ok(LIMIT_DEFAULT),
        Some(n @ 1..=LIMIT_MAX) => Ok(n),
        Some(n) => Err(Problem::field("limit", n.to_string(), format!("1 to {LIMIT_MAX}"))),
    }
}

fn quoted(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

//! Subscriptions to events: who is told what happens, and where. Shows no secret.

use postrider_core::Timestamp;

use super::auth::EventAccess;
use super::logged_events::check_pattern;
use super::prelude::*;
use crate::events::{
    EventPattern, EventPosition, EventSubscription, RelayState, SubscriptionError, send_test,
};
use crate::quotas::limits_of;

const NAME_MAX: usize = 128;

/// A subscription as a caller asks for it.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EventSubscriptionRequest {
    /// For people.
    #[schema(required = false)]
    pub name: String,
    /// The webhook that gets the events. Without it, they are only logged, to be read by `GET /v1/events`.
    pub url: Option<String>,
    /// Which events; all if absent.
    #[schema(required = false)]
    pub events: EventPattern,
    /// False: events are logged, and sent when it is true again.
    pub enabled: Option<bool>,
    /// Of a new one: `now` (default), `start` for all that is kept, or a position of the log.
    pub after: Option<String>,
}

/// A subscription, and how far it is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubscriptionBody {
    /// `evs_…`
    pub id: String,
    /// Whose events; absent for those of all tenants and of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    pub events: EventPattern,
    pub enabled: bool,
    /// `active`, `paused`, `failing` (the receiver does not take them; they are tried again), `stopped` (it did not for
    /// too long, or is gone: change the subscription to try again) or `read_only` (without a `url`).
    pub state: &'static str,
    /// Everything up to this position of the log was received.
    pub position: String,
    /// Events that were received.
    pub received: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_at: Option<Time>,
    /// `dlv_…`, the delivery that carries the next events, of the tenant `postrider-events.ID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Time>,
    /// Why it is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    pub created_at: Time,
    /// The id of a key.
    pub created_by: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubscriptionList {
    /// Oldest first.
    pub subscriptions: Vec<SubscriptionBody>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TestedSubscription {
    /// `dlv_…`. Its state says whether the event was received.
    pub delivery: String,
    /// The tenant whose delivery it is.
    pub tenant: String,
}

impl From<SubscriptionError> for Problem {
    fn from(error: SubscriptionError) -> Self {
        match error {
            SubscriptionError::Full(excess) => excess.into(),
            SubscriptionError::Store(error) => error.into(),
        }
    }
}

async fn body(app: &SharedState, subscription: &EventSubscription) -> ApiResult<SubscriptionBody> {
    let state = RelayState::load(&*app.store, &subscription.id).await?;
    let mut state = state.unwrap_or_else(|| RelayState::begin(subscription));
    state.apply(subscription);
    Ok(SubscriptionBody {
        state: state.name(subscription),
        id: subscription.id.clone(),
        tenant: subscription.tenant.as_ref().map(ToString::to_string),
        name: subscription.name.clone(),
        url: subscription.url.clone(),
        events: subscription.events.clone(),
        enabled: subscription.enabled,
        position: state.position,
        received: state.received,
        received_at: state.received_at.map(Into::into),
        delivery: state.sending.map(|page| page.delivery.to_string()),
        failing_since: state.failing_since.map(Into::into),
        stopped: state.stopped,
        created_at: subscription.created_at.into(),
        created_by: subscription.created_by.clone(),
    })
}

/// The subscription with this id, if the caller may see it.
pub(super) fn find(
    app: &SharedState,
    view: Option<&TenantId>,
    id: &str,
) -> ApiResult<std::sync::Arc<EventSubscription>> {
    let all = app.events.subscriptions.all();
    let found = all.get(id).filter(|found| view.is_none() || found.tenant.as_ref() == view);
    found.cloned().ok_or_else(|| Problem::not_found("event subscription", shortened(id)))
}

async fn check(
    app: &SharedState,
    access: &EventAccess,
    request: &EventSubscriptionRequest,
) -> ApiResult<()> {
    let is_printable = !request.name.chars().any(char::is_control);
    if request.name.len() > NAME_MAX || !is_printable {
        let allowed = format!("at most {NAME_MAX} bytes without control characters");
        return Err(Problem::field("name", quoted(&request.name), allowed));
    }
    check_pattern(&request.events, |field| format!("events.{field}"))?;
    if let Some(url) = &request.url {
        let address = serde_json::json!({"channel": "webhook", "url": url}).to_string();
        let tenant = access.view.clone().unwrap_or_else(|| access.caller.tenant.clone());
        app.intake.check_address(&tenant, address.as_bytes()).await?;
    }
    Ok(())
}

async fn start(app: &SharedState, after: Option<&str>) -> ApiResult<EventPosition> {
    match after {
        None | Some("now") => Ok(app.events.log.end().await),
        Some("start") => Ok(EventPosition::START),
        Some(text) => text.parse().map_err(|_| {
            Problem::field("after", quoted(text), "now, start or a position of GET /v1/events")
        }),
    }
}

/// The subscriptions of the tenant. With a key for all tenants and `Postrider-Tenant: *`, all.
#[utoipa::path(get, path = "/v1/event-subscriptions", tag = "events",
    responses((status = 200, body = SubscriptionList)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
) -> ApiResult<Json<SubscriptionList>> {
    let all = app.events.subscriptions.all();
    let mut subscriptions = Vec::new();
    for subscription in all.values() {
        if access.view.is_none() || subscription.tenant == access.view {
            subscriptions.push(body(&app, subscription).await?);
        }
    }
    Ok(Json(SubscriptionList { subscriptions }))
}

/// Subscribe to events. With a key for all tenants and `Postrider-Tenant: *`, to those of all tenants and of the
/// server.
#[utoipa::path(post, path = "/v1/event-subscriptions", tag = "events", request_body = EventSubscriptionRequest,
    responses((status = 201, body = SubscriptionBody), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(app): State<SharedState>,
    access: EventAccess,
    JsonBody(request): JsonBody<EventSubscriptionRequest>,
) -> ApiResult<Response> {
    check(&app, &access, &request).await?;
    let (start, now) = (start(&app, request.after.as_deref()).await?, app.clock.now());
    let subscription = EventSubscription {
        id: EventSubscription::new_id(app.store.new_key_id()),
        tenant: access.view.clone(),
        name: request.name,
        url: request.url,
        events: request.events,
        enabled: request.enabled.unwrap_or(true),
        start: start.to_string(),
        created_at: now,
        created_by: key_name(&access.caller),
        changed_at: now,
    };
    put(&app, &access, subscription.clone()).await?;
    audit(&access.caller, "event_subscription.create", &subscription, 1);
    Ok((StatusCode::CREATED, Json(body(&app, &subscription).await?)).into_response())
}

async fn put(
    app: &SharedState,
    access: &EventAccess,
    subscription: EventSubscription,
) -> ApiResult<()> {
    let config = app.config();
    let max = match &access.view {
        Some(tenant) => limits_of(&config, tenant).event_subscriptions_max,
        None => config.limits.event_subscriptions_max,
    };
    Ok(app.events.subscriptions.put(subscription, max).await?)
}

/// One subscription, and how far it is.
#[utoipa::path(get, path = "/v1/event-subscriptions/{id}", tag = "events", params(("id" = String, Path)),
    responses((status = 200, body = SubscriptionBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<SubscriptionBody>> {
    let found = find(&app, access.view.as_ref(), &id)?;
    Ok(Json(body(&app, &found).await?))
}

/// Replace a subscription as a whole; how far it is stays. One that was stopped goes on.
#[utoipa::path(put, path = "/v1/event-subscriptions/{id}", tag = "events", params(("id" = String, Path)),
    request_body = EventSubscriptionRequest,
    responses((status = 200, body = SubscriptionBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set(
    State(app): State<SharedState>,
    access: EventAccess,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<EventSubscriptionRequest>,
) -> ApiResult<Json<SubscriptionBody>> {
    let found = find(&app, access.view.as_ref(), &id)?;
    check(&app, &access, &request).await?;
    if request.after.is_some() {
        let allowed = "nothing: a subscription goes on where it is";
        return Err(Problem::field("after", "a position", allowed));
    }
    let changed_at = app.clock.now().max(Timestamp(found.changed_at.0.saturating_add(1)));
    let changed = EventSubscription {
        name: request.name,
        url: request.url,
        events: request.events,
        enabled: request.enabled.unwrap_or(true),
        changed_at,
        ..EventSubscription::clone(&found)
    };
    put(&app, &access, changed.clone()).await?;
    audit(&access.caller, "event_subscription.set", &changed, 1);
    Ok(Json(body(&app, &changed).await?))
}

/// End a subscription. Events that are on their way are cancelled.
#[utoipa::path(delete, path = "/v1/event-subscriptions/{id}", tag = "events", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn unset(
    State(app): State<SharedState>,
    access: EventAccess,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    let found = find(&app, access.view.as_ref(), &id)?;
    let state = RelayState::load(&*app.store, &found.id).await?;
    app.events.subscriptions.delete(&found.id).await?;
    let sender = found.sender();
    if let Some(page) = state.and_then(|state| state.sending)
        && let Some(carrier) = app.store.delivery(Some(&sender), page.delivery).await?
    {
        app.store.cancel(Some(&sender), carrier.message).await?;
    }
    app.signing.forget(&sender).await?;
    audit(&access.caller, "event_subscription.delete", &*found, 1);
    Ok(StatusCode::NO_CONTENT)
}

/// Send a test event to the receiver.
#[utoipa::path(post, path = "/v1/event-subscriptions/{id}/test", tag = "events", params(("id" = String, Path)),
    responses((status = 200, body = TestedSubscription), (status = "4XX", body = Problem)))]
pub(crate) async fn test(
    State(app): State<SharedState>,
    access: EventAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<TestedSubscription>> {
    let found = find(&app, access.view.as_ref(), &id)?;
    if found.url.is_none() {
        let detail = "the subscription has no `url`: its events are only read";
        return Err(Problem::new(422, "no_receiver", "There is no receiver to test", detail));
    }
    let delivery = send_test(&app, &found).await?.to_string();
    audit(&access.caller, "event_subscription.test", &*found, 1);
    Ok(Json(TestedSubscription { delivery, tenant: found.sender().to_string() }))
}

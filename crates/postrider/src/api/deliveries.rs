//! Deliveries: list them, show their attempts, explain their state.

use postrider_core::policy::audience::{IntendedSend, SendVerdict};
use postrider_core::ports::store::DeliveryFilter;
use postrider_core::{Class, Delivery, DeliveryId, LaneKey, State as DeliveryState};
use postrider_dispatch::audience::{PersonRecord, ReachedPerson};
use postrider_dispatch::lanes::{AddressRest, OwnPlaceWait, SlowPlaces};

use super::delivery_filter::DeliveryFilterBody;
use super::explain::{ExplainContext, ExplanationBody, WaitingCount, explain};
use super::parameters;
use super::prelude::*;
use super::views::{DeliveryBody, DeliveryPage};
use super::{cursor, strikes};

/// Of so many parked deliveries it is known for which address they wait.
const WAITING_READ: usize = 1_000;

/// Which deliveries to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveryQuery {
    /// A state such as `retrying`.
    pub state: Option<String>,
    /// Why it is a dead letter, such as `retries_exhausted`.
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
    pub campaign: Option<String>,
    pub recipient: Option<String>,
    /// `msg_…`
    pub message: Option<String>,
    /// One of the tags of the message.
    pub tag: Option<String>,
    /// Those of the message that was accepted under this key, while the key is remembered. Needs one tenant.
    pub idempotency_key: Option<String>,
    /// Only those that are held until they are released.
    pub held: Option<bool>,
    /// Not older than this (RFC 3339).
    pub since: Option<String>,
    /// Older than this (RFC 3339).
    pub until: Option<String>,
    /// The `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

impl DeliveryQuery {
    fn filter(self) -> DeliveryFilterBody {
        DeliveryFilterBody {
            state: self.state,
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
            held: self.held,
            since: self.since,
            until: self.until,
        }
    }
}

/// Deliveries, newest first.
#[utoipa::path(get, path = "/v1/deliveries", tag = "deliveries", params(DeliveryQuery),
    responses((status = 200, body = DeliveryPage), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<DeliveryQuery>,
) -> ApiResult<Json<DeliveryPage>> {
    let (cursor, limit) =
        (cursor::decode(query.cursor.as_deref(), |id| id.parse().ok())?, limit(query.limit)?);
    let Some(filter) = query.filter().read(&app, access.view).await? else {
        return Ok(Json(DeliveryPage { items: Vec::new(), next: None }));
    };
    let filter = DeliveryFilter { cursor, limit, ..filter };
    let (items, next) = page(app.store.deliveries(filter).await?);
    Ok(Json(DeliveryPage { items, next }))
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

/// Why a delivery is in its state, what it waits for, and what can be done.
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
    let key = LaneKey {
        tenant: delivery.tenant.clone(),
        channel: delivery.channel,
        provider: delivery.provider.clone(),
        class: delivery.class.clone(),
    };
    let standing = app.lanes.report(&key);
    let mut class = app.lanes.policies().now().class(&delivery.class).map(|c| (**c).clone());
    let message = app.store.message(access.view.as_ref(), delivery.message).await?;
    let own_policy = message.and_then(|message| message.envelope.retry);
    if let (Some(class), Some(policy)) = (&mut class, own_policy) {
        class.retry = policy;
    }
    let in_quiet_hours = is_in_quiet_hours(&app, &delivery, class.as_ref()).await?;
    let shortage = app.lanes.shortage();
    let address_rest = app.lanes.address_rest(&key, delivery.address_hash);
    let waiting_with = waiting_with(&app, &delivery, address_rest).await?;
    let own_place_wait = app.lanes.own_place_wait(&key);
    let is_slow =
        matches!(address_rest, Some(AddressRest::Slow { places: SlowPlaces::OfServer(_), .. }));
    // Only a caller who sees all tenants is told the name of one.
    let tells_holder =
        access.view.is_none() && (is_slow || own_place_wait == Some(OwnPlaceWait::Long));
    let long_place_holder = if tells_holder { app.lanes.long_place_holder() } else { None };
    let config = app.config();
    let region = config.tenants.get(delivery.tenant.as_str()).and_then(|t| t.region.as_deref());
    let strikes = strikes::of(&app, &delivery.tenant, delivery.address_hash).await?;
    Ok(Json(explain(&ExplainContext {
        delivery: &delivery,
        strikes: &strikes,
        lane: lane.as_ref(),
        standing: &standing,
        address_rest,
        waiting_with,
        has_address_rate: app
            .lanes
            .policies()
            .now()
            .limits
            .address_rates
            .contains_key(&key.channel),
        own_place_wait,
        long_place_holder: long_place_holder.as_ref(),
        in_quiet_hours,
        shortage: shortage.as_ref(),
        class: class.as_ref(),
        // Another server may send what a shared store has.
        server_sends: config.server.role.sends() || config.store.is_shared(),
        unserved_region: region.filter(|region| app.regions.is_unserved(region)),
        now: app.clock.now(),
    })))
}

/// The other deliveries of the lane that wait for the same sick or slow address. Reads one page of them.
async fn waiting_with(
    app: &SharedState,
    delivery: &Delivery,
    rest: Option<AddressRest>,
) -> ApiResult<Option<WaitingCount>> {
    let is_put_off = matches!(rest, Some(AddressRest::Sick { .. } | AddressRest::Slow { .. }));
    if !is_put_off || delivery.state != DeliveryState::Parked {
        return Ok(None);
    }
    let filter = DeliveryFilter {
        tenant: Some(delivery.tenant.clone()),
        state: Some(DeliveryState::Parked),
        channel: Some(delivery.channel),
        provider: Some(delivery.provider.clone()),
        class: Some(delivery.class.clone()),
        limit: WAITING_READ,
        ..DeliveryFilter::default()
    };
    let parked = app.store.deliveries(filter).await?;
    let is_other =
        |other: &&Delivery| other.address_hash == delivery.address_hash && other.id != delivery.id;
    let others = parked.items.iter().filter(is_other).count();
    Ok(Some(WaitingCount { others, is_minimum: parked.items.len() >= WAITING_READ }))
}

/// Whether the recipient of a delivery that waits has quiet hours now.
async fn is_in_quiet_hours(
    app: &SharedState,
    delivery: &Delivery,
    class: Option<&Class>,
) -> ApiResult<bool> {
    let rules = app.audience.book().rules(&delivery.tenant);
    let (Some(rules), Some(class), DeliveryState::Parked) = (rules, class, delivery.state) else {
        return Ok(false);
    };
    let (recipient, hash) = (delivery.recipient.clone(), delivery.address_hash);
    let people = [ReachedPerson { recipient, hash }];
    let found = app.audience.book().look_up(&delivery.tenant, &rules, &people).await?;
    let send = IntendedSend {
        category: None,
        channel: delivery.channel,
        on_quiet: class.quiet_hours,
        expires_at: delivery.expires_at,
        now: app.clock.wall(),
        random: 0.0,
    };
    let waits =
        |record: &PersonRecord| matches!(record.assess(&rules, send), SendVerdict::Wait { .. });
    Ok(found.first().is_some_and(waits))
}

async fn find(app: &SharedState, access: &ReadAccess, text: &str) -> ApiResult<Delivery> {
    let id: DeliveryId = parameters::id("id", text)?;
    let found = app.store.delivery(access.view.as_ref(), id).await?;
    found.ok_or_else(|| Problem::not_found("delivery", id))
}

//! The registry of addresses: create, show and delete them. Shows no endpoint and no key.

use axum::extract::{FromRequest as _, Request};
use postrider_channels::webpush::WebpushTarget;
use postrider_core::ports::store::NewAddress;
use postrider_core::{Address, AddressId, TenantId};

use super::channel_schema::AddressRequest;
use super::prelude::*;
use super::views::{AddressBody, AddressPage};
use super::{cursor, parameters, strikes};
use crate::events::{EventKind, LoggedEvent};

/// Which addresses to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AddressQuery {
    pub recipient: Option<String>,
    pub cursor: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

/// Register an address. The same endpoint keeps its id, takes the new keys and is active again.
#[utoipa::path(post, path = "/v1/addresses", tag = "addresses", request_body = AddressRequest,
    responses((status = 201, body = AddressBody), (status = 200, description = "Registered before", body = AddressBody), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(app): State<SharedState>,
    access: AddressAccess,
    request: Request,
) -> ApiResult<Response> {
    // Of a tenant with as many addresses as it may have, few bodies are read at the same time.
    let is_full = app.quotas.check_address(&app.config(), &access.tenant).is_err();
    let turn =
        if is_full { Some(app.intake.quotas().turn_of(&access.tenant).await?) } else { None };
    let RawJson(body) = RawJson::from_request(request, &app).await?;
    app.signing.ensure(&access.tenant).await?;
    let mut new = app.intake.check_address(&access.tenant, &body).await?;
    // A push service accepts only the key with which the subscription was made.
    let active = || app.signing.active_vapid(&access.tenant);
    if let Some(target) = WebpushTarget::with_vapid_key(&new.target, active) {
        new.target = target;
    }
    let (address, is_new) = match app.quotas.check_address(&app.config(), &access.tenant) {
        Ok(()) => app.store.put_address(new).await?,
        Err(excess) => match put_if_known(&app, &access.tenant, new).await? {
            Some(known) => (known, false),
            None => {
                if let Some(turn) = turn {
                    turn.pause(body.len()).await;
                }
                return Err(excess.into());
            }
        },
    };
    if is_new {
        app.quotas.note_addresses(&access.tenant, 1);
    }
    let event = LoggedEvent::of_address(EventKind::AddressRegistered, &address, app.clock.now());
    app.events.note(vec![event]).await;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(AddressBody::from(address))).into_response())
}

/// Of a tenant with as many addresses as it may have: registers again what is registered. None for what is not.
async fn put_if_known(
    app: &SharedState,
    tenant: &TenantId,
    new: NewAddress,
) -> ApiResult<Option<Address>> {
    // A hash can also be known by a mark or a strike. Whether the address is, only the store can tell.
    if app.store.known_hash(tenant, &[new.hash]).await?.is_none() {
        return Ok(None);
    }
    let (address, is_new) = app.store.put_address(new).await?;
    if is_new {
        app.store.delete_address(tenant, address.id, false).await?;
    }
    Ok((!is_new).then_some(address))
}

/// Addresses, oldest first.
#[utoipa::path(get, path = "/v1/addresses", tag = "addresses", params(AddressQuery),
    responses((status = 200, body = AddressPage), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<AddressQuery>,
) -> ApiResult<Json<AddressPage>> {
    let tenant = access.tenant()?;
    let (cursor, limit) =
        (cursor::decode(query.cursor.as_deref(), |id| id.parse().ok())?, limit(query.limit)?);
    let found = app.store.addresses(&tenant, query.recipient.as_deref(), cursor, limit).await?;
    let (items, next) = page(found);
    Ok(Json(AddressPage { items, next }))
}

/// One address, with the strikes against it since it last worked.
#[utoipa::path(get, path = "/v1/addresses/{id}", tag = "addresses", params(("id" = String, Path)),
    responses((status = 200, body = AddressBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(text): Path<String>,
) -> ApiResult<Json<AddressBody>> {
    let id: AddressId = parameters::id("id", &text)?;
    let tenant = access.tenant()?;
    let found = app.store.address(&tenant, id).await?;
    let address = found.ok_or_else(|| Problem::not_found("address", id))?;
    let strikes = strikes::of(&app, &tenant, address.hash).await?;
    let strikes = strikes.into_iter().map(Into::into).collect();
    let facts = super::audience::facts::of(&app, &tenant, address.hash).await?;
    Ok(Json(AddressBody { strikes, facts, ..address.into() }))
}

/// Delete an address. What is queued for its endpoint is cancelled when it would be sent.
#[utoipa::path(delete, path = "/v1/addresses/{id}", tag = "addresses", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn delete(
    State(app): State<SharedState>,
    access: AddressAccess,
    Path(text): Path<String>,
) -> ApiResult<StatusCode> {
    let id: AddressId = parameters::id("id", &text)?;
    let found = app.store.address(&access.tenant, id).await?;
    let address = found.ok_or_else(|| Problem::not_found("address", id))?;
    let event = LoggedEvent::of_address(EventKind::AddressDeleted, &address, app.clock.now());
    // Before it is deleted: a caller that gets no answer finds it gone, and does not ask again.
    app.events.note(vec![event]).await;
    if !app.store.delete_address(&access.tenant, id, true).await? {
        return Err(Problem::not_found("address", id));
    }
    app.quotas.note_addresses(&access.tenant, -1);
    audit(&access.caller, "address.delete", &id, 1);
    Ok(StatusCode::NO_CONTENT)
}

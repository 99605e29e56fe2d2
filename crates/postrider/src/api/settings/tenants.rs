//! Tenants by API: weight, rates, capacity, and the pause of all that a tenant sends.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use postrider_core::TenantId;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{SettingBody, put, reset};
use crate::api::auth::{AdminAccess, tenant_name};
use crate::api::capacity::{self, CapacityBody};
use crate::api::extract::JsonBody;
use crate::api::problem::{ApiResult, Problem};
use crate::api::views::Time;
use crate::api::{SharedState, audit};
use crate::live::{SettingKind, SettingView};

/// A tenant: what it may do, and whether it may at present.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantBody {
    #[serde(flatten)]
    pub setting: SettingBody,
    /// What is pending of what may be.
    pub capacity: CapacityBody,
    /// Absent while it is not paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<PauseBody>,
}

/// Who paused it, and when.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PauseBody {
    /// The id of a key.
    pub by: String,
    pub at: Time,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantList {
    /// Those that are configured, have a key or are paused, and the caller's own; by name.
    pub tenants: Vec<TenantBody>,
}

/// All tenants that are known by name.
#[utoipa::path(get, path = "/v1/tenants", tag = "administration",
    responses((status = 200, body = TenantList), (status = 403, body = Problem)))]
pub(crate) async fn list(State(app): State<SharedState>, access: AdminAccess) -> Json<TenantList> {
    let configured = app.live.list(SettingKind::Tenant).await;
    let mut names: BTreeSet<String> = configured.iter().map(|shown| shown.name.clone()).collect();
    names.insert(access.tenant.to_string());
    names.extend(app.keys.list().into_iter().map(|key| key.tenant.to_string()));
    names.extend(app.lanes.paused_tenants().into_iter().map(|(tenant, _)| tenant.to_string()));
    let mut tenants = Vec::with_capacity(names.len());
    for name in names {
        tenants.push(body(&app, &TenantId::new(&name)).await);
    }
    Json(TenantList { tenants })
}

/// One tenant.
#[utoipa::path(get, path = "/v1/tenants/{name}", tag = "administration", params(("name" = String, Path)),
    responses((status = 200, body = TenantBody), (status = "4XX", body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    _: AdminAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<TenantBody>> {
    Ok(Json(body(&app, &tenant_name("name", &name)?).await))
}

/// Change what holds for a tenant, at once, over what file and environment say. What was set before
/// and is not named is taken back.
#[utoipa::path(put, path = "/v1/tenants/{name}", tag = "administration", params(("name" = String, Path)),
    request_body(content = Object, description = "Fields of a tenant, e.g. `{\"weight\": 2, \"rate_per_s\": 50}`"),
    responses((status = 200, body = TenantBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
    JsonBody(values): JsonBody<Map<String, Value>>,
) -> ApiResult<Json<TenantBody>> {
    let tenant = tenant_name("name", &name)?;
    put(&app, &access, SettingKind::Tenant, tenant.as_str(), values).await?;
    Ok(Json(body(&app, &tenant).await))
}

/// Take back what was set by API for a tenant. Its work and its keys stay.
#[utoipa::path(delete, path = "/v1/tenants/{name}", tag = "administration", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn unset(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    reset(&app, &access, SettingKind::Tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send nothing of this tenant until it is resumed. What it hands in is accepted and kept.
#[utoipa::path(post, path = "/v1/tenants/{name}/pause", tag = "administration", params(("name" = String, Path)),
    responses((status = 200, body = TenantBody), (status = "4XX", body = Problem)))]
pub(crate) async fn pause(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<TenantBody>> {
    let tenant = tenant_name("name", &name)?;
    app.operator.pause_tenant(&tenant, app.order(&access.caller)).await?;
    audit(&access.caller, "tenant.pause", &tenant, 1);
    Ok(Json(body(&app, &tenant).await))
}

/// Send a paused tenant's work again.
#[utoipa::path(post, path = "/v1/tenants/{name}/resume", tag = "administration", params(("name" = String, Path)),
    responses((status = 200, body = TenantBody), (status = "4XX", body = Problem)))]
pub(crate) async fn resume(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<TenantBody>> {
    let tenant = tenant_name("name", &name)?;
    let was_paused = app.operator.resume_tenant(&tenant).await?;
    audit(&access.caller, "tenant.resume", &tenant, u64::from(was_paused));
    Ok(Json(body(&app, &tenant).await))
}

/// A tenant needs no setting to exist.
async fn body(app: &SharedState, tenant: &TenantId) -> TenantBody {
    let name = tenant.as_str();
    let shown = app.live.show(SettingKind::Tenant, name).await;
    let setting = shown.unwrap_or_else(|| SettingView::of_nobody(name)).into();
    let paused = app.lanes.paused_tenants().into_iter().find(|(paused, _)| paused == tenant);
    let paused =
        paused.map(|(_, order)| PauseBody { by: order.by.to_string(), at: order.at.into() });
    TenantBody { setting, capacity: capacity::body(app, Some(tenant)), paused }
}

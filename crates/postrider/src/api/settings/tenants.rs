//! Reads and sets tenants: weight, rates and capacity. Pauses and resumes them.

use std::collections::BTreeSet;

use super::{SettingBody, put, reset};
use crate::api::auth::parse_tenant;
use crate::api::overview::{CapacityBody, capacity_body};
use crate::api::prelude::*;
use crate::live::{SettingKind, SettingView};
use crate::quotas::{self, QuotaUse};

/// A tenant with its settings, its capacity and its pause.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantBody {
    #[serde(flatten)]
    pub setting: SettingBody,
    /// How much is pending, and how much may be.
    pub capacity: CapacityBody,
    /// How much it keeps of what stays, and how much it may.
    pub quotas: Vec<QuotaBody>,
    /// Absent while it is not paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<PauseBody>,
}

/// One quota of a tenant. What is in the store was counted some seconds ago.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuotaBody {
    /// The setting of `[limits]`, such as `addresses_max`.
    pub quota: &'static str,
    pub used: u64,
    /// 0 for no limit.
    pub allowed: u64,
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
    /// By name: all tenants that are configured, have a key or are paused, and the caller's own.
    pub tenants: Vec<TenantBody>,
}

/// All known tenants.
#[utoipa::path(get, path = "/v1/tenants", tag = "administration",
    responses((status = 200, body = TenantList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ServerReadAccess,
) -> Json<TenantList> {
    let configured = app.live.list(SettingKind::Tenant).await;
    let mut names: BTreeSet<String> = configured.iter().map(|view| view.name.clone()).collect();
    names.insert(access.tenant.to_string());
    names.extend(app.keys.list().into_iter().map(|(key, _)| key.tenant.to_string()));
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
    _: ServerReadAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<TenantBody>> {
    Ok(Json(body(&app, &parse_tenant("name", &name)?).await))
}

/// Change the settings of a tenant. The body wins over file and environment at once. Fields that were set
/// before and are missing in the body go back to file and environment.
#[utoipa::path(put, path = "/v1/tenants/{name}", tag = "administration", params(("name" = String, Path)),
    request_body(content = Object, description = "Fields of a tenant, e.g. `{\"weight\": 2, \"rate_per_s\": 50}`"),
    responses((status = 200, body = TenantBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
    JsonBody(values): JsonBody<Map<String, Value>>,
) -> ApiResult<Json<TenantBody>> {
    let tenant = parse_tenant("name", &name)?;
    put(&app, &access, SettingKind::Tenant, tenant.as_str(), values).await?;
    Ok(Json(body(&app, &tenant).await))
}

/// Delete what was set by API for a tenant. Its messages and its keys stay.
#[utoipa::path(delete, path = "/v1/tenants/{name}", tag = "administration", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn unset(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    reset(&app, &access, SettingKind::Tenant, &name).await
}

/// Pause a tenant: send nothing until it is resumed. Its new messages are accepted and kept.
#[utoipa::path(post, path = "/v1/tenants/{name}/pause", tag = "administration", params(("name" = String, Path)),
    responses((status = 200, body = TenantBody), (status = "4XX", body = Problem)))]
pub(crate) async fn pause(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<TenantBody>> {
    let tenant = parse_tenant("name", &name)?;
    app.operator.pause_tenant(&tenant, app.order(&access.caller)).await?;
    audit(&access.caller, "tenant.pause", &tenant, 1);
    note_audit(|draft| draft.tenant = Some(tenant.clone()));
    Ok(Json(body(&app, &tenant).await))
}

/// Resume a paused tenant.
#[utoipa::path(post, path = "/v1/tenants/{name}/resume", tag = "administration", params(("name" = String, Path)),
    responses((status = 200, body = TenantBody), (status = "4XX", body = Problem)))]
pub(crate) async fn resume(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<TenantBody>> {
    let tenant = parse_tenant("name", &name)?;
    let was_paused = app.operator.resume_tenant(&tenant).await?;
    audit(&access.caller, "tenant.resume", &tenant, u64::from(was_paused));
    note_audit(|draft| draft.tenant = Some(tenant.clone()));
    Ok(Json(body(&app, &tenant).await))
}

/// Also for a tenant without any setting.
async fn body(app: &SharedState, tenant: &TenantId) -> TenantBody {
    let name = tenant.as_str();
    let view = app.live.show(SettingKind::Tenant, name).await;
    let setting = view.unwrap_or_else(|| SettingView::unset_tenant(name)).into();
    let paused = app.lanes.paused_tenants().into_iter().find(|(paused, _)| paused == tenant);
    let paused =
        paused.map(|(_, order)| PauseBody { by: order.by.to_string(), at: order.at.into() });
    let quota = |each: QuotaUse| {
        let QuotaUse { setting, used, max } = each;
        QuotaBody { quota: setting, used, allowed: max }
    };
    let quotas = quotas::uses(app, tenant).into_iter().map(quota).collect();
    TenantBody { setting, capacity: capacity_body(app, Some(tenant)), quotas, paused }
}

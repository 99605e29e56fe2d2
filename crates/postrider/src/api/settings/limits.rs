//! Reads and sets limits: rates and concurrency of channels, breaker, retry budget, dispatch, capacity.

use super::{SettingBody, put, reset};
use crate::api::prelude::*;
use crate::live::SettingKind;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LimitList {
    /// One entry per section of the configuration, with the settings that can change while the server runs.
    pub limits: Vec<SettingBody>,
}

/// All limits, by section of the configuration.
#[utoipa::path(get, path = "/v1/limits", tag = "administration",
    responses((status = 200, body = LimitList), (status = 403, body = Problem)))]
pub(crate) async fn list(State(app): State<SharedState>, _: ServerReadAccess) -> Json<LimitList> {
    let all = app.live.list(SettingKind::Limits).await;
    Json(LimitList { limits: all.into_iter().map(Into::into).collect() })
}

/// The limits of one section, e.g. `webhook`, `breaker` or `capacity`.
#[utoipa::path(get, path = "/v1/limits/{section}", tag = "administration", params(("section" = String, Path)),
    responses((status = 200, body = SettingBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    _: ServerReadAccess,
    Path(section): Path<String>,
) -> ApiResult<Json<SettingBody>> {
    super::show(&app, SettingKind::Limits, &section).await.map(Json)
}

/// Change limits of one section. The body wins over file and environment at once. Settings that were set
/// before and are missing in the body go back to file and environment.
#[utoipa::path(put, path = "/v1/limits/{section}", tag = "administration", params(("section" = String, Path)),
    request_body(content = Object, description = "Settings of the section, e.g. `{\"rate_per_s\": 50}`"),
    responses((status = 200, body = SettingBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(section): Path<String>,
    JsonBody(values): JsonBody<Map<String, Value>>,
) -> ApiResult<Json<SettingBody>> {
    super::show(&app, SettingKind::Limits, &section).await?;
    put(&app, &access, SettingKind::Limits, &section, values).await.map(Json)
}

/// Delete what was set by API for a section.
#[utoipa::path(delete, path = "/v1/limits/{section}", tag = "administration", params(("section" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn unset(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(section): Path<String>,
) -> ApiResult<StatusCode> {
    reset(&app, &access, SettingKind::Limits, &section).await
}

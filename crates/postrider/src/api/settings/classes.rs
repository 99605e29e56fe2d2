//! Reads and sets classes.

use std::collections::BTreeMap;

use super::{SettingBody, put, reset};
use crate::api::prelude::*;
use crate::live::SettingKind;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClassList {
    /// By name, each with all its fields and its source.
    pub classes: BTreeMap<String, SettingBody>,
}

/// The configured classes.
#[utoipa::path(get, path = "/v1/classes", tag = "administration", responses((status = 200, body = ClassList)))]
pub(crate) async fn list(State(app): State<SharedState>, _: ReadAccess) -> Json<ClassList> {
    let all = app.live.list(SettingKind::Class).await;
    let classes = all.into_iter().map(|view| (view.name.clone(), view.into())).collect();
    Json(ClassList { classes })
}

/// One class with the values in force.
#[utoipa::path(get, path = "/v1/classes/{name}", tag = "administration", params(("name" = String, Path)),
    responses((status = 200, body = SettingBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    _: ReadAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<SettingBody>> {
    super::show(&app, SettingKind::Class, &name).await.map(Json)
}

/// Create or change a class. The body wins over file and environment, from the next message and the next
/// attempt on. Fields that were set before and are missing in the body go back to file and environment.
#[utoipa::path(put, path = "/v1/classes/{name}", tag = "administration", params(("name" = String, Path)),
    request_body(content = Object, description = "Fields of a class, e.g. `{\"ttl_s\": 600, \"retry\": {\"retries\": 3}}`"),
    responses((status = 200, body = SettingBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
    JsonBody(values): JsonBody<Map<String, Value>>,
) -> ApiResult<Json<SettingBody>> {
    put(&app, &access, SettingKind::Class, &name, values).await.map(Json)
}

/// Delete what was set by API. The class is as in file and environment, or deleted if it is not there.
#[utoipa::path(delete, path = "/v1/classes/{name}", tag = "administration", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn unset(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    reset(&app, &access, SettingKind::Class, &name).await
}

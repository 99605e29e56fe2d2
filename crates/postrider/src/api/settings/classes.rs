//! Classes by API.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{SettingBody, put, reset};
use crate::api::Shared;
use crate::api::auth::{Operator, Reader};
use crate::api::extract::JsonOf;
use crate::api::problem::{Answer, Problem};
use crate::live::Kind;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClassList {
    /// By name: ttl_s, priority, urgency, retry, on_ambiguous, on_expiry and the rest, each with its
    /// source.
    pub classes: BTreeMap<String, SettingBody>,
}

/// The configured classes.
#[utoipa::path(get, path = "/v1/classes", tag = "administration", responses((status = 200, body = ClassList)))]
pub(crate) async fn list(State(app): State<Shared>, _: Reader) -> Json<ClassList> {
    let all = app.live.list(Kind::Class).await;
    let classes = all.into_iter().map(|shown| (shown.name.clone(), shown.into())).collect();
    Json(ClassList { classes })
}

/// One class as it holds now.
#[utoipa::path(get, path = "/v1/classes/{name}", tag = "administration", params(("name" = String, Path)),
    responses((status = 200, body = SettingBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<Shared>,
    _: Reader,
    Path(name): Path<String>,
) -> Answer<Json<SettingBody>> {
    super::show(&app, Kind::Class, "class", &name).await.map(Json)
}

/// Make a class, or change one: what the body names holds from the next message and the next attempt
/// on, over what file and environment say. What was set before and is not named is taken back.
#[utoipa::path(put, path = "/v1/classes/{name}", tag = "administration", params(("name" = String, Path)),
    request_body(content = Object, description = "Fields of a class, e.g. `{\"ttl_s\": 600, \"retry\": {\"retries\": 3}}`"),
    responses((status = 200, body = SettingBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set(
    State(app): State<Shared>,
    operator: Operator,
    Path(name): Path<String>,
    JsonOf(values): JsonOf<Map<String, Value>>,
) -> Answer<Json<SettingBody>> {
    put(&app, &operator, Kind::Class, &name, values).await.map(Json)
}

/// Take back what was set by API: the class is as file and environment say, or gone.
#[utoipa::path(delete, path = "/v1/classes/{name}", tag = "administration", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn unset(
    State(app): State<Shared>,
    operator: Operator,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    reset(&app, &operator, Kind::Class, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

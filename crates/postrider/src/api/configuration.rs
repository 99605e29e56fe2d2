//! Reloads the configuration while the server runs. Needs an admin key.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::SharedState;
use super::auth::AdminAccess;
use super::problem::{ApiResult, Problem};
use crate::config::ConfigError;

/// The result of a reload.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Reloaded)]
pub(crate) struct ReloadResponse {
    /// Settings that are in force from now on.
    pub changed: Vec<String>,
    /// Settings that differ from the running ones. They need a restart.
    pub needs_restart: Vec<String>,
}

/// Reload `postrider.toml` and the environment. If anything is wrong, nothing changes.
#[utoipa::path(post, path = "/v1/config/reload", tag = "administration",
    responses((status = 200, body = ReloadResponse), (status = 403, body = Problem), (status = 422, body = Problem)))]
pub(crate) async fn reload(
    State(app): State<SharedState>,
    access: AdminAccess,
) -> ApiResult<Json<ReloadResponse>> {
    let done = app.live.reload().await?;
    super::audit(&access.caller, "config.reload", &"configuration", done.changed.len() as u64);
    Ok(Json(ReloadResponse { changed: done.changed, needs_restart: done.needs_restart }))
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Invalid { field, found, allowed } => Self::field(field, found, allowed),
            other => {
                let title = "The configuration cannot be used; nothing was changed";
                Self::new(422, "invalid_configuration", title, other.to_string())
            }
        }
    }
}

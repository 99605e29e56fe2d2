//! Reloads the configuration while the server runs. Needs an admin key.

use axum::Json;
use axum::extract::State;

use super::SharedState;
use super::auth::AdminAccess;
use super::problem::{ApiResult, Problem};
use crate::config::ConfigError;
use crate::live::ReloadReport;

/// Reload `postrider.toml` and the environment. If anything is wrong, nothing changes.
#[utoipa::path(post, path = "/v1/config/reload", tag = "administration",
    responses((status = 200, body = ReloadReport), (status = 403, body = Problem), (status = 422, body = Problem)))]
pub(crate) async fn reload(
    State(app): State<SharedState>,
    access: AdminAccess,
) -> ApiResult<Json<ReloadReport>> {
    let report = app.live.reload().await?;
    super::audit(&access.caller, "config.reload", &"configuration", report.changed.len() as u64);
    Ok(Json(report))
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

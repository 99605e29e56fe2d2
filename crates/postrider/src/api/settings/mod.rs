//! Classes, tenants and limits that are set by API. They take effect at once, survive restarts and win over
//! file and environment.

pub(super) mod classes;
pub(super) mod limits;
pub(super) mod tenants;

use postrider_core::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::SharedState;
use super::auth::AdminAccess;
use super::parameters::shortened;
use super::problem::{ApiResult, Problem};
use super::views::Time;
use crate::live::{LiveConfigError, Override, SettingKind, SettingView};

/// The values of a setting, and where they come from.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettingBody {
    pub name: String,
    /// `default`, `file` (or environment) or `api`.
    pub source: &'static str,
    /// Every value in force.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub values: Map<String, Value>,
    /// What was set by API; the rest comes from the file or is a default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub set: Option<Map<String, Value>>,
    /// The id of the key that set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Time>,
}

impl From<SettingView> for SettingBody {
    fn from(view: SettingView) -> Self {
        let (name, source, values) = (view.name, view.source, view.values);
        let Some(Override { values: set, by, at }) = view.set else {
            return Self { name, source, values, set: None, set_by: None, set_at: None };
        };
        let set_at = Some(at.into());
        Self { name, source, values, set: Some(set), set_by: Some(by), set_at }
    }
}

impl From<LiveConfigError> for Problem {
    fn from(error: LiveConfigError) -> Self {
        match error {
            LiveConfigError::Config(error) => error.into(),
            LiveConfigError::Store(error) => error.into(),
        }
    }
}

async fn show(
    app: &SharedState,
    kind: SettingKind,
    what: &str,
    name: &str,
) -> ApiResult<SettingBody> {
    let view = app.live.show(kind, name).await;
    Ok(view.ok_or_else(|| Problem::not_found(what, shortened(name)))?.into())
}

async fn put(
    app: &SharedState,
    access: &AdminAccess,
    kind: SettingKind,
    name: &str,
    values: Map<String, Value>,
) -> ApiResult<SettingBody> {
    let (what, action) = words(kind);
    let at: Timestamp = app.clock.now();
    let new = Override { values, by: super::key_name(&access.caller), at };
    app.live.set(kind, name, Some(new)).await?;
    super::audit(&access.caller, action.0, &name, 1);
    show(app, kind, what, name).await
}

/// Goes back to the values of file and environment.
async fn reset(
    app: &SharedState,
    access: &AdminAccess,
    kind: SettingKind,
    name: &str,
) -> ApiResult<()> {
    let (what, action) = words(kind);
    if !app.live.set(kind, name, None).await? {
        let what = format!("{what} set by API under the name");
        return Err(Problem::not_found(&what, shortened(name)));
    }
    super::audit(&access.caller, action.1, &name, 1);
    Ok(())
}

fn words(kind: SettingKind) -> (&'static str, (&'static str, &'static str)) {
    match kind {
        SettingKind::Class => ("class", ("class.set", "class.reset")),
        SettingKind::Tenant => ("tenant", ("tenant.set", "tenant.reset")),
        SettingKind::Limits => ("section of limits", ("limits.set", "limits.reset")),
    }
}

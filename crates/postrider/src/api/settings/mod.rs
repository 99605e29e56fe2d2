//! Settings that hold at once and survive a restart: classes, tenants and limits. They are laid over
//! what file and environment say, and every answer says where its values come from.

pub(super) mod classes;
pub(super) mod limits;
pub(super) mod tenants;

use postrider_core::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::SharedState;
use super::auth::AdminAccess;
use super::problem::{ApiResult, Problem};
use super::views::Time;
use crate::live::{LiveConfigError, Override, SettingKind, SettingView};

/// What holds, and where it comes from.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettingBody {
    pub name: String,
    /// `default`, `file` (or environment) or `api`.
    pub source: &'static str,
    /// Every value as it holds now.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub values: Map<String, Value>,
    /// What was set by API; the rest comes from the file or is a default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub set: Option<Map<String, Value>>,
    /// The id of the key that it was set with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Time>,
}

impl From<SettingView> for SettingBody {
    fn from(shown: SettingView) -> Self {
        let (name, source, values) = (shown.name, shown.source, shown.values);
        let Some(Override { values: set, by, at }) = shown.made else {
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
    let shown = app.live.show(kind, name).await;
    Ok(shown.ok_or_else(|| Problem::not_found(what, shorten(name)))?.into())
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
    let made = Override { values, by: super::who(&access.caller), at };
    app.live.set(kind, name, Some(made)).await?;
    super::audit(&access.caller, action.0, &name, 1);
    show(app, kind, what, name).await
}

/// Goes back to what file and environment say.
async fn reset(
    app: &SharedState,
    access: &AdminAccess,
    kind: SettingKind,
    name: &str,
) -> ApiResult<()> {
    let (what, action) = words(kind);
    if !app.live.set(kind, name, None).await? {
        let what = format!("{what} set by API under the name");
        return Err(Problem::not_found(&what, shorten(name)));
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

fn shorten(name: &str) -> String {
    name.chars().take(80).collect()
}

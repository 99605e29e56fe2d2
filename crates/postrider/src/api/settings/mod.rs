//! Classes, tenants and limits that are set by API: they take effect at once, survive restarts and win over
//! file and environment. Also reloads the configuration.

pub(super) mod classes;
pub(super) mod limits;
pub(super) mod tenants;

use super::prelude::*;
use crate::config::ConfigError;
use crate::live::{LiveConfigError, Override, ReloadReport, SettingKind, SettingView};

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

impl From<LiveConfigError> for Problem {
    fn from(error: LiveConfigError) -> Self {
        match error {
            LiveConfigError::Config(error) => error.into(),
            LiveConfigError::Store(error) => error.into(),
        }
    }
}

/// Reload `postrider.toml` and the environment. If anything is wrong, nothing changes.
#[utoipa::path(post, path = "/v1/config/reload", tag = "administration",
    responses((status = 200, body = ReloadReport), (status = 403, body = Problem), (status = 422, body = Problem)))]
pub(crate) async fn reload(
    State(app): State<SharedState>,
    access: AdminAccess,
) -> ApiResult<Json<ReloadReport>> {
    let report = app.live.reload().await?;
    audit(&access.caller, "config.reload", &"configuration", report.changed.len() as u64);
    note_audit(|draft| draft.after = serde_json::to_value(&report).ok());
    Ok(Json(report))
}

async fn show(app: &SharedState, kind: SettingKind, name: &str) -> ApiResult<SettingBody> {
    let view = app.live.show(kind, name).await;
    let view = view.ok_or_else(|| Problem::not_found(words(kind).0, shortened(name)))?;
    Ok(view.into())
}

async fn put(
    app: &SharedState,
    access: &AdminAccess,
    kind: SettingKind,
    name: &str,
    values: Map<String, Value>,
) -> ApiResult<SettingBody> {
    let before = values_in_force(app, kind, name).await;
    let new = Override { values, by: key_name(&access.caller), at: app.clock.now() };
    app.live.set(kind, name, Some(new)).await?;
    audit(&access.caller, words(kind).1.0, &name, 1);
    note_change(app, kind, name, before).await;
    show(app, kind, name).await
}

async fn values_in_force(app: &SharedState, kind: SettingKind, name: &str) -> Option<Value> {
    let view = app.live.show(kind, name).await?;
    serde_json::to_value(&view.values).ok()
}

/// Adds what changed to the entry of the audit log.
async fn note_change(app: &SharedState, kind: SettingKind, name: &str, before: Option<Value>) {
    let after = values_in_force(app, kind, name).await;
    let tenant = (kind == SettingKind::Tenant).then(|| TenantId::new(name));
    note_audit(|draft| (draft.before, draft.after, draft.tenant) = (before, after, tenant));
}

/// Goes back to the values of file and environment.
async fn reset(
    app: &SharedState,
    access: &AdminAccess,
    kind: SettingKind,
    name: &str,
) -> ApiResult<StatusCode> {
    let (what, action) = words(kind);
    let before = values_in_force(app, kind, name).await;
    if !app.live.set(kind, name, None).await? {
        let what = format!("{what} set by API under the name");
        return Err(Problem::not_found(&what, shortened(name)));
    }
    audit(&access.caller, action.1, &name, 1);
    note_change(app, kind, name, before).await;
    Ok(StatusCode::NO_CONTENT)
}

/// What a problem calls a setting of this kind, and what the audit log calls its changes.
fn words(kind: SettingKind) -> (&'static str, (&'static str, &'static str)) {
    match kind {
        SettingKind::Class => ("class", ("class.set", "class.reset")),
        SettingKind::Tenant => ("tenant", ("tenant.set", "tenant.reset")),
        SettingKind::Limits => ("section of limits", ("limits.set", "limits.reset")),
    }
}

//! Templates of a tenant, and of the server. Every tenant can use the server's templates; only a key
//! for all tenants can change them, with `Postrider-Tenant: *`. Renders nothing itself.

mod preview;

use postrider_dispatch::template::{TemplateSource, check_name};

use super::auth::TemplateAccess;
use super::prelude::*;
use super::schema::TemplateRequest;
use crate::live::{TemplateEntry, TemplateError, TemplateLimits};

pub(super) use preview::{__path_preview, __path_preview_unsaved, preview, preview_unsaved};

/// A template without its content.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplateSummary {
    pub name: String,
    /// `tenant`, or `server` for one that every tenant can use.
    pub owner: &'static str,
    /// `file` or `api`.
    pub source: &'static str,
    /// The default one first.
    pub locales: Vec<String>,
    pub strict: bool,
    /// The variables that it uses, e.g. `order.number`.
    pub variables: Vec<String>,
    /// The id of the key that set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Time>,
}

/// A template with its content.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplateBody {
    pub name: String,
    /// `tenant`, or `server` for one that every tenant can use.
    pub owner: &'static str,
    /// `file` or `api`.
    pub source: &'static str,
    pub default_locale: String,
    pub strict: bool,
    /// By locale: fields of a message's content.
    #[schema(value_type = Object)]
    pub locales: Map<String, Value>,
    /// The variables that it uses, e.g. `order.number`.
    pub variables: Vec<String>,
    /// The id of the key that set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Time>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplateList {
    /// By name. A tenant's own template hides the server's template of the same name.
    pub templates: Vec<TemplateSummary>,
}

impl From<TemplateEntry> for TemplateSummary {
    fn from(entry: TemplateEntry) -> Self {
        let template = &entry.template;
        let (set_by, set_at) = setter(&entry);
        Self {
            name: template.name().to_owned(),
            owner: owner(&entry),
            source: source(&entry),
            locales: template.locales().into_iter().map(str::to_owned).collect(),
            strict: entry.source.strict,
            variables: template.variables().iter().cloned().collect(),
            set_by,
            set_at,
        }
    }
}

impl From<TemplateEntry> for TemplateBody {
    fn from(entry: TemplateEntry) -> Self {
        let (set_by, set_at) = setter(&entry);
        let (owner, source) = (owner(&entry), source(&entry));
        let default_locale =
            entry.template.locales().first().copied().unwrap_or_default().to_owned();
        let locales = entry.source.locales;
        Self {
            name: entry.template.name().to_owned(),
            owner,
            source,
            default_locale,
            strict: entry.source.strict,
            locales: locales.into_iter().map(|(name, of)| (name, Value::Object(of))).collect(),
            variables: entry.template.variables().iter().cloned().collect(),
            set_by,
            set_at,
        }
    }
}

fn owner(entry: &TemplateEntry) -> &'static str {
    if entry.is_shared { "server" } else { "tenant" }
}

fn source(entry: &TemplateEntry) -> &'static str {
    if entry.set_by.is_some() { "api" } else { "file" }
}

fn setter(entry: &TemplateEntry) -> (Option<String>, Option<Time>) {
    entry.set_by.clone().map(|(by, at)| (by, at.into())).unzip()
}

impl From<TemplateError> for Problem {
    fn from(error: TemplateError) -> Self {
        match error {
            TemplateError::Unusable(errors) => unusable(errors),
            TemplateError::Full(excess) => excess.into(),
            TemplateError::Store(error) => error.into(),
        }
    }
}

/// A problem that lists every error of a template.
fn unusable(errors: Vec<postrider_core::FieldError>) -> Problem {
    let refusal = postrider_dispatch::IntakeRefusal::invalid(errors);
    Problem {
        kind: "urn:postrider:problem:template".to_owned(),
        title: "The template cannot be used".to_owned(),
        ..refusal.into()
    }
}

/// Every template that the tenant can use.
#[utoipa::path(get, path = "/v1/templates", tag = "templates", responses((status = 200, body = TemplateList)))]
pub(crate) async fn list(State(app): State<SharedState>, access: ReadAccess) -> Json<TemplateList> {
    let all = app.templates.list(access.view.as_ref());
    Json(TemplateList { templates: all.into_iter().map(Into::into).collect() })
}

/// The template that a message gets by this name.
#[utoipa::path(get, path = "/v1/templates/{name}", tag = "templates", params(("name" = String, Path)),
    responses((status = 200, body = TemplateBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<TemplateBody>> {
    Ok(Json(find(&app, access.view.as_ref(), &name)?.into()))
}

/// Create a template, or replace it as a whole. It is in force from the next message on, survives restarts
/// and wins over the configuration file. With a key for all tenants and `Postrider-Tenant: *` it is for every
/// tenant.
#[utoipa::path(put, path = "/v1/templates/{name}", tag = "templates", params(("name" = String, Path)),
    request_body = TemplateRequest,
    responses((status = 200, body = TemplateBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set(
    State(app): State<SharedState>,
    access: TemplateAccess,
    Path(name): Path<String>,
    JsonBody(source): JsonBody<TemplateSource>,
) -> ApiResult<Json<TemplateBody>> {
    check_name(&name).map_err(|error| unusable(vec![error]))?;
    let new = (source, key_name(&access.caller), app.clock.now());
    app.templates.set(access.view.as_ref(), &name, Some(new), limits(&app, &access)).await?;
    audit(&access.caller, "template.set", &name, 1);
    Ok(Json(find(&app, access.view.as_ref(), &name)?.into()))
}

/// Delete a template that was set by API. If the file or the server has a template of that name, that one
/// is in force again. Accepted messages keep their content.
#[utoipa::path(delete, path = "/v1/templates/{name}", tag = "templates", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn unset(
    State(app): State<SharedState>,
    access: TemplateAccess,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    if !app.templates.set(access.view.as_ref(), &name, None, limits(&app, &access)).await? {
        let what = "template that this tenant set by API under the name";
        return Err(Problem::not_found(what, shortened(&name)));
    }
    audit(&access.caller, "template.delete", &name, 1);
    Ok(StatusCode::NO_CONTENT)
}

/// The limits of the owner of a template; those of all tenants for templates of the server.
fn limits(app: &SharedState, access: &TemplateAccess) -> TemplateLimits {
    let config = app.config();
    let limits =
        config.limits.of(access.view.as_ref().and_then(|own| config.tenants.get(own.as_str())));
    TemplateLimits { count_max: limits.templates_max, bytes_max: limits.template_bytes_max }
}

fn find(app: &SharedState, tenant: Option<&TenantId>, name: &str) -> ApiResult<TemplateEntry> {
    let found = app.templates.find(tenant, name);
    found.ok_or_else(|| Problem::not_found("template", shortened(name)))
}

//! Templates by API: a tenant's own, and those of the server, which every tenant can use and only an
//! admin key with `Postrider-Tenant: *` can change. Renders nothing itself.

mod preview;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use postrider_core::TenantId;
use postrider_core::ports::store::KeyScope;
use postrider_dispatch::template::{Source, check_name};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::auth::{Reader, allow, identify};
use super::extract::JsonOf;
use super::problem::{Answer, Problem};
use super::schema::NewTemplate;
use super::views::Time;
use super::{Shared, audit, who};
use crate::keys::Caller;
use crate::live::{Entry, TemplateError};

pub(super) use preview::{__path_preview, __path_preview_unsaved, preview, preview_unsaved};

/// May make templates: for one tenant, or for all.
pub(crate) struct Author {
    caller: Caller,
    /// None for the server's own.
    owner: Option<TenantId>,
}

impl FromRequestParts<Shared> for Author {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Problem> {
        let (caller, owner) = identify(parts, app)?;
        allow(&caller, &[KeyScope::Admin, KeyScope::Tenant], "tenant")?;
        Ok(Self { caller, owner })
    }
}

/// A template without its words.
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
    /// What it looks at, e.g. `order.number`.
    pub variables: Vec<String>,
    /// The id of the key that it was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Time>,
}

/// A template with its words.
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
    /// What it looks at, e.g. `order.number`.
    pub variables: Vec<String>,
    /// The id of the key that it was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Time>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplateList {
    /// By name; a tenant's own hides the server's of the same name.
    pub templates: Vec<TemplateSummary>,
}

impl From<Entry> for TemplateSummary {
    fn from(entry: Entry) -> Self {
        let template = &entry.template;
        let (set_by, set_at) = made(&entry);
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

impl From<Entry> for TemplateBody {
    fn from(entry: Entry) -> Self {
        let (set_by, set_at) = made(&entry);
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

fn owner(entry: &Entry) -> &'static str {
    if entry.is_shared { "server" } else { "tenant" }
}

fn source(entry: &Entry) -> &'static str {
    if entry.made.is_some() { "api" } else { "file" }
}

fn made(entry: &Entry) -> (Option<String>, Option<Time>) {
    entry.made.clone().map(|(by, at)| (by, at.into())).unzip()
}

impl From<TemplateError> for Problem {
    fn from(error: TemplateError) -> Self {
        match error {
            TemplateError::Unusable(errors) => unusable(errors),
            TemplateError::Store(error) => error.into(),
        }
    }
}

/// All that is wrong with a template.
fn unusable(errors: Vec<postrider_core::FieldError>) -> Problem {
    let refusal = postrider_dispatch::Refusal::invalid(errors);
    Problem {
        kind: "urn:postrider:problem:template".to_owned(),
        title: "The template cannot be used".to_owned(),
        ..refusal.into()
    }
}

/// Every template that the tenant can use.
#[utoipa::path(get, path = "/v1/templates", tag = "templates", responses((status = 200, body = TemplateList)))]
pub(crate) async fn list(State(app): State<Shared>, reader: Reader) -> Json<TemplateList> {
    let all = app.templates.list(reader.view.as_ref());
    Json(TemplateList { templates: all.into_iter().map(Into::into).collect() })
}

/// One template, as a message that names it gets it.
#[utoipa::path(get, path = "/v1/templates/{name}", tag = "templates", params(("name" = String, Path)),
    responses((status = 200, body = TemplateBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<Shared>,
    reader: Reader,
    Path(name): Path<String>,
) -> Answer<Json<TemplateBody>> {
    Ok(Json(find(&app, reader.view.as_ref(), &name)?.into()))
}

/// Make a template, or replace it as a whole. It holds from the next message on, across restarts, and
/// over what the file says. With an admin key and `Postrider-Tenant: *` it is for every tenant.
#[utoipa::path(put, path = "/v1/templates/{name}", tag = "templates", params(("name" = String, Path)),
    request_body = NewTemplate,
    responses((status = 200, body = TemplateBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set(
    State(app): State<Shared>,
    author: Author,
    Path(name): Path<String>,
    JsonOf(source): JsonOf<Source>,
) -> Answer<Json<TemplateBody>> {
    check_name(&name).map_err(|error| unusable(vec![error]))?;
    let made = (source, who(&author.caller), app.clock.now());
    app.templates.set(author.owner.as_ref(), &name, Some(made)).await?;
    audit(&author.caller, "template.set", &name, 1);
    Ok(Json(find(&app, author.owner.as_ref(), &name)?.into()))
}

/// Take back what was made by API. Where the file or the server has a template of that name, that one
/// holds again. Messages that were accepted keep their words.
#[utoipa::path(delete, path = "/v1/templates/{name}", tag = "templates", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn unset(
    State(app): State<Shared>,
    author: Author,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    if !app.templates.set(author.owner.as_ref(), &name, None).await? {
        let what = "template of this tenant's own made by API under the name";
        return Err(Problem::not_found(what, shorten(&name)));
    }
    audit(&author.caller, "template.delete", &name, 1);
    Ok(StatusCode::NO_CONTENT)
}

fn find(app: &Shared, tenant: Option<&TenantId>, name: &str) -> Answer<Entry> {
    let found = app.templates.find(tenant, name);
    found.ok_or_else(|| Problem::not_found("template", shorten(name)))
}

fn shorten(name: &str) -> String {
    name.chars().take(80).collect()
}

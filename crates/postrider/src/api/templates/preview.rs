//! What a message with a template would say, channel by channel, before anybody sends it. Accepts
//! nothing and stores nothing.

use axum::Json;
use axum::extract::{Path, State};
use postrider_channels::preview::shown;
use postrider_core::model::content::Content;
use postrider_core::{ChannelKind, FieldError, TenantId};
use postrider_dispatch::template::{Call, Missing, Source, Template, VARIABLES_MAX};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::super::SharedState;
use super::super::auth::ReadAccess;
use super::super::extract::JsonBody;
use super::super::problem::{ApiResult, FieldProblem, Problem};
use super::super::schema::TemplateRequest;
use super::{find, unusable};

/// The name of what was not saved.
const UNSAVED: &str = "unsaved";

/// What a message would ask of the template.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PreviewRequest {
    /// The template's default if absent.
    pub locale: Option<String>,
    #[schema(value_type = Object)]
    pub variables: Map<String, Value>,
    /// Content of the message's own, which wins over the template's.
    #[schema(value_type = Object)]
    pub content: Map<String, Value>,
    /// Only this channel; all of them if absent.
    pub channel: Option<String>,
}

/// The same with a template that is not saved yet.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnsavedPreviewRequest {
    #[schema(value_type = TemplateRequest)]
    pub template: Source,
    #[serde(default)]
    pub locale: Option<String>,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub variables: Map<String, Value>,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub content: Map<String, Value>,
    #[serde(default)]
    pub channel: Option<String>,
}

/// What would be said, and what is in the way.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PreviewBody {
    /// Whether a message like this would be rendered.
    pub ready: bool,
    /// The locale that is used.
    pub locale: String,
    /// Every variable that is looked for and not there, also where that refuses nothing.
    pub missing: Vec<MissingBody>,
    /// What else is in the way of the template.
    pub errors: Vec<FieldProblem>,
    /// The content as it would be stored; nothing stands where something is missing.
    #[schema(value_type = Object)]
    pub content: Value,
    pub channels: Vec<ChannelPreview>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MissingBody {
    /// E.g. `order.number`
    pub variable: String,
    /// The fields that use it.
    pub fields: Vec<String>,
}

impl From<Missing> for MissingBody {
    fn from(Missing { variable, fields }: Missing) -> Self {
        Self { variable, fields }
    }
}

/// What one channel would send.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChannelPreview {
    pub channel: &'static str,
    /// Whether the tenant can send by it; where not, nothing but the looks was checked.
    pub configured: bool,
    /// Why the intake would refuse it.
    pub errors: Vec<FieldProblem>,
    /// By part: `subject`, `text` and `html` of a mail; `text`, `encoding` and `segments` of a text message;
    /// `payload`, `message` or `body` of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub sends: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// What the provider takes at the most, where it counts bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<usize>,
}

/// What a message with this template would say, channel by channel. Tells all missing variables at once
/// and sends nothing.
#[utoipa::path(post, path = "/v1/templates/{name}/preview", tag = "templates", params(("name" = String, Path)),
    request_body = PreviewRequest,
    responses((status = 200, body = PreviewBody), (status = "4XX", body = Problem)))]
pub(crate) async fn preview(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(name): Path<String>,
    JsonBody(asked): JsonBody<PreviewRequest>,
) -> ApiResult<Json<PreviewBody>> {
    let entry = find(&app, access.view.as_ref(), &name)?;
    look(&app, access, &entry.template, &entry.source, &asked).map(Json)
}

/// The same for a template that is not saved.
#[utoipa::path(post, path = "/v1/templates/preview", tag = "templates", request_body = UnsavedPreviewRequest,
    responses((status = 200, body = PreviewBody), (status = "4XX", body = Problem)))]
pub(crate) async fn preview_unsaved(
    State(app): State<SharedState>,
    access: ReadAccess,
    JsonBody(asked): JsonBody<UnsavedPreviewRequest>,
) -> ApiResult<Json<PreviewBody>> {
    let UnsavedPreviewRequest { template: source, locale, variables, content, channel } = asked;
    let template = Template::compile(UNSAVED, &source).map_err(|errors| {
        let below = |e: FieldError| FieldError { field: format!("template.{}", e.field), ..e };
        unusable(errors.into_iter().map(below).collect())
    })?;
    let asked = PreviewRequest { locale, variables, content, channel };
    look(&app, access, &template, &source, &asked).map(Json)
}

fn look(
    app: &SharedState,
    access: ReadAccess,
    template: &Template,
    source: &Source,
    asked: &PreviewRequest,
) -> ApiResult<PreviewBody> {
    let kinds = kinds(asked.channel.as_deref())?;
    let own = Value::Object(asked.content.clone()).to_string();
    check(asked, &own)?;
    let call = Call { locale: asked.locale.as_deref(), variables: &asked.variables, content: &own };
    let seen = template.preview(source, &call).map_err(unusable)?;
    let content = Content::parse(&seen.content).map_err(|e| {
        Problem::new(422, "template", "The content cannot be understood", e.to_string())
    })?;
    let tenant = access.view.unwrap_or_else(|| TenantId::new("default"));
    let channels = kinds.into_iter().map(|kind| channel(app, &tenant, kind, &content)).collect();
    Ok(PreviewBody {
        ready: seen.errors.is_empty() && (seen.missing.is_empty() || !source.strict),
        locale: seen.locale,
        missing: seen.missing.into_iter().map(Into::into).collect(),
        errors: seen.errors.into_iter().map(Into::into).collect(),
        channels,
        content: serde_json::from_str(&seen.content).unwrap_or_default(),
    })
}

/// What the intake would check of a message before its template.
fn check(asked: &PreviewRequest, own: &str) -> ApiResult<()> {
    let size = serde_json::to_string(&asked.variables).map_or(usize::MAX, |text| text.len());
    if size > VARIABLES_MAX {
        let allowed = format!("at most {VARIABLES_MAX} bytes of JSON");
        return Err(Problem::field("variables", format!("{size} bytes"), allowed));
    }
    let wrong =
        |e: serde_json::Error| Problem::field("content", e.to_string(), "a message's content");
    Content::parse(own).map(drop).map_err(wrong)
}

fn kinds(channel: Option<&str>) -> ApiResult<Vec<ChannelKind>> {
    let Some(name) = channel else { return Ok(ChannelKind::ALL.to_vec()) };
    let kind = ChannelKind::parse(name).ok_or_else(|| {
        let names: Vec<_> = ChannelKind::ALL.into_iter().map(ChannelKind::name).collect();
        let found: String = name.chars().take(32).collect();
        Problem::field("channel", found, format!("one of {}", names.join(", ")))
    })?;
    Ok(vec![kind])
}

fn channel(
    app: &SharedState,
    tenant: &TenantId,
    kind: ChannelKind,
    content: &Content<'_>,
) -> ChannelPreview {
    let checked = app.intake.check(tenant, kind, content);
    let configured = checked.is_some();
    let errors = checked.and_then(Result::err).unwrap_or_default();
    let errors = errors.into_iter().map(Into::into).collect();
    let shown = shown(kind, content);
    let (bytes, bytes_max) = shown.as_ref().map(|s| (s.bytes, s.bytes_max)).unzip();
    ChannelPreview {
        channel: kind.name(),
        configured,
        errors,
        sends: shown.map(|shown| shown.parts),
        bytes,
        bytes_max: bytes_max.flatten(),
    }
}

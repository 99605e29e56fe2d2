//! Previews a message with a template: what each channel would send. Accepts and stores nothing.

use std::time::Instant;

use postrider_channels::registry::{self, content_schema};
use postrider_core::model::content::Content;
use postrider_core::{ChannelKind, FieldError};
use postrider_dispatch::IntakeRefusal;
use postrider_dispatch::template::{
    MissingVariable, Template, TemplateCall, TemplateFailure, TemplateSource, VARIABLES_MAX,
};

use super::super::auth::PreviewAccess;
use super::super::problem::FieldProblem;
use super::super::schema::TemplateRequest;
use super::{find, unusable};
use crate::api::prelude::*;

/// The name of a template that is not saved.
const UNSAVED: &str = "unsaved";

/// The locale, variables and content of the message to preview.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PreviewRequest {
    /// The template's default if absent.
    pub locale: Option<String>,
    #[schema(value_type = Object)]
    pub variables: Map<String, Value>,
    /// The message's own content. It wins over the template's.
    #[schema(value_type = Object)]
    pub content: Map<String, Value>,
    /// Only this channel; all of them if absent.
    pub channel: Option<String>,
}

/// The same, with a template that is not saved yet.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UnsavedRequest)]
pub(crate) struct UnsavedPreviewRequest {
    #[schema(value_type = TemplateRequest)]
    pub template: TemplateSource,
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

/// What would be sent, and what prevents it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PreviewBody {
    /// Whether a message like this would be rendered.
    pub ready: bool,
    /// The locale that is used.
    pub locale: String,
    /// Every variable that is missing, also if the template is not strict.
    pub missing: Vec<MissingBody>,
    /// Other errors of the template.
    pub errors: Vec<FieldProblem>,
    /// The content as it would be stored. A missing variable is empty.
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

impl From<MissingVariable> for MissingBody {
    fn from(MissingVariable { variable, fields }: MissingVariable) -> Self {
        Self { variable, fields }
    }
}

/// What one channel would send.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChannelPreview {
    pub channel: String,
    /// Whether the tenant can send by this channel. If not, the limits of the channel are not checked.
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
    /// The maximum that the provider accepts, if it counts bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<usize>,
}

/// Preview what each channel would send for a message with this template. Lists all missing variables.
/// Sends nothing. Needs the scope `send` or `manage`.
#[utoipa::path(post, path = "/v1/templates/{name}/preview", tag = "templates", params(("name" = String, Path)),
    request_body = PreviewRequest,
    responses((status = 200, body = PreviewBody), (status = "4XX", body = Problem), (status = 503, body = Problem)))]
pub(crate) async fn preview(
    State(app): State<SharedState>,
    access: PreviewAccess,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<PreviewRequest>,
) -> ApiResult<Json<PreviewBody>> {
    let entry = find(&app, access.view.as_ref(), &name)?;
    let run = move |app: &SharedState, deadline| {
        render_preview(app, access, &entry.template, &entry.source, &request, deadline)
    };
    beside(app, run).await
}

/// Preview a template that is not saved.
#[utoipa::path(post, path = "/v1/templates/preview", tag = "templates", request_body = UnsavedPreviewRequest,
    responses((status = 200, body = PreviewBody), (status = "4XX", body = Problem), (status = 503, body = Problem)))]
pub(crate) async fn preview_unsaved(
    State(app): State<SharedState>,
    access: PreviewAccess,
    JsonBody(request): JsonBody<UnsavedPreviewRequest>,
) -> ApiResult<Json<PreviewBody>> {
    let run = move |app: &SharedState, deadline| {
        let UnsavedPreviewRequest { template: source, locale, variables, content, channel } =
            request;
        let template =
            Template::compile(UNSAVED, &source, &content_schema()).map_err(|errors| {
                let below =
                    |e: FieldError| FieldError { field: format!("template.{}", e.field), ..e };
                unusable(errors.into_iter().map(below).collect())
            })?;
        let request = PreviewRequest { locale, variables, content, channel };
        render_preview(app, access, &template, &source, &request, deadline)
    };
    beside(app, run).await
}

/// Renders beside the threads that serve requests.
async fn beside(
    app: SharedState,
    run: impl FnOnce(&SharedState, Instant) -> ApiResult<PreviewBody> + Send + 'static,
) -> ApiResult<Json<PreviewBody>> {
    let shared = app.clone();
    let rendered = app.intake.renders().run(move |deadline| run(&shared, deadline)).await;
    rendered.map_err(|_| Problem::from(IntakeRefusal::template_late()))?.map(Json)
}

fn render_preview(
    app: &SharedState,
    access: PreviewAccess,
    template: &Template,
    source: &TemplateSource,
    request: &PreviewRequest,
    deadline: Instant,
) -> ApiResult<PreviewBody> {
    let kinds = kinds(request.channel.as_deref())?;
    let own = Value::Object(request.content.clone()).to_string();
    check(request, &own)?;
    let call = TemplateCall {
        locale: request.locale.as_deref(),
        variables: &request.variables,
        content: &own,
        deadline: Some(deadline),
    };
    let preview = template.preview(source, &content_schema(), &call);
    let preview = preview.map_err(|failure| match failure {
        TemplateFailure::Invalid(errors) => unusable(errors),
        TemplateFailure::Late => IntakeRefusal::template_late().into(),
    })?;
    let content = Content::parse(&preview.content)
        .map_err(|e| Problem::new(422, "template", "The content is not valid", e.to_string()))?;
    let tenant = access.view.unwrap_or_else(|| TenantId::new("default"));
    let channels = kinds.into_iter().map(|kind| channel(app, &tenant, kind, &content)).collect();
    Ok(PreviewBody {
        ready: preview.errors.is_empty() && (preview.missing.is_empty() || !source.strict),
        locale: preview.locale,
        missing: preview.missing.into_iter().map(Into::into).collect(),
        errors: preview.errors.into_iter().map(Into::into).collect(),
        channels,
        content: serde_json::from_str(&preview.content).unwrap_or_default(),
    })
}

/// The checks of the intake before it renders a template.
fn check(request: &PreviewRequest, own: &str) -> ApiResult<()> {
    let size = serde_json::to_string(&request.variables).map_or(usize::MAX, |text| text.len());
    if size > VARIABLES_MAX {
        let allowed = format!("at most {VARIABLES_MAX} bytes of JSON");
        return Err(Problem::field("variables", format!("{size} bytes"), allowed));
    }
    content_schema().read(own).map(drop).map_err(|error| {
        let field = format!("content.{}", error.field);
        Problem::field(field.trim_end_matches('.'), error.found, error.allowed)
    })
}

fn kinds(channel: Option<&str>) -> ApiResult<Vec<ChannelKind>> {
    let all = registry::kinds();
    let Some(name) = channel else { return Ok(all) };
    let kind = all.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(ChannelKind::name).collect();
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
    let preview = registry::definition(kind).and_then(|channel| channel.preview(content));
    let (bytes, bytes_max) = preview.as_ref().map(|s| (s.bytes, s.bytes_max)).unzip();
    ChannelPreview {
        channel: kind.to_string(),
        configured,
        errors,
        sends: preview.map(|preview| preview.parts),
        bytes,
        bytes_max: bytes_max.flatten(),
    }
}

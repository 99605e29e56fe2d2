//! Renders the content of a message that names a template, once: everything behind the intake sees plain
//! content, and every retry sends the same.

use std::borrow::Cow;
use std::sync::Arc;

use postrider_core::model::content::Content;
use postrider_core::{ChannelKind, FieldError, TenantId, model::json_fields};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::MessageIntake;
use super::refusal::IntakeRefusal;
use super::request::{SubmittedMessage, shorten};
use crate::template::{
    CurrentTemplates, RenderPool, Template, TemplateCall, TemplateFailure, VARIABLES_MAX,
};

const ALLOWED: &str =
    "{\"name\": \"…\", \"locale\": \"de-AT\", \"variables\": {…}}; only name is needed";
/// Names of templates that an error lists.
const NAMES_SHOWN: usize = 20;

/// Which template, and the variables for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplateRef<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    locale: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    variables: Option<&'a RawValue>,
}

impl<'a> TemplateRef<'a> {
    pub(super) fn read(raw: &'a RawValue) -> Result<Self, FieldError> {
        json_fields::read(raw.get(), ALLOWED).map_err(|error| error.below("template"))
    }
}

impl MessageIntake {
    /// The same intake, with templates.
    pub fn with_templates(self, templates: Arc<CurrentTemplates>) -> Self {
        Self { templates, ..self }
    }

    /// The content of a message: its own, or a template's with its own fields in it.
    pub(super) async fn content_text<'a>(
        &self,
        tenant: &TenantId,
        request: &SubmittedMessage<'a>,
    ) -> Result<Cow<'a, str>, IntakeRefusal> {
        let Some(wanted) = &request.template else { return Ok(Cow::Borrowed(request.content)) };
        self.parse_content(request.content)?;
        let variables =
            variables(wanted.variables).map_err(|error| IntakeRefusal::template(vec![error]))?;
        let template = self.template(tenant, &wanted.name)?;
        let locale = wanted.locale.as_deref();
        if template.is_light(wanted.variables.map_or(0, |raw| raw.get().len())) {
            let (variables, content) = (&variables, request.content);
            let call = TemplateCall { locale, variables, content, deadline: None };
            return Ok(Cow::Owned(template.render(&call)?));
        }
        let (locale, content) = (locale.map(str::to_owned), request.content.to_owned());
        let rendered = self.renders.run(move |deadline| {
            let deadline = Some(deadline);
            let (locale, variables) = (locale.as_deref(), &variables);
            template.render(&TemplateCall { locale, variables, content: &content, deadline })
        });
        let rendered = rendered.await.map_err(|_| IntakeRefusal::template_late())?;
        Ok(Cow::Owned(rendered?))
    }

    fn template(&self, tenant: &TenantId, name: &str) -> Result<Arc<Template>, IntakeRefusal> {
        let templates = self.templates.now();
        templates.find(tenant, name).cloned().ok_or_else(|| {
            let names = templates.names(tenant);
            IntakeRefusal::template(vec![unknown(name, &names)])
        })
    }

    /// Where templates are rendered that may take their time.
    pub fn renders(&self) -> &RenderPool {
        &self.renders
    }

    /// Checks content for a channel; `None` if the tenant cannot send by it.
    pub fn check(
        &self,
        tenant: &TenantId,
        kind: ChannelKind,
        content: &Content<'_>,
    ) -> Option<Result<(), Vec<FieldError>>> {
        Some(self.intake(tenant, kind)?.check(content))
    }
}

impl From<TemplateFailure> for IntakeRefusal {
    fn from(failure: TemplateFailure) -> Self {
        match failure {
            TemplateFailure::Invalid(errors) => Self::template(errors),
            TemplateFailure::Late => Self::template_late(),
        }
    }
}

fn variables(raw: Option<&RawValue>) -> Result<Map<String, Value>, FieldError> {
    let text = raw.map_or("{}", RawValue::get);
    let wrong =
        |found: String, allowed: &str| FieldError::new("template.variables", found, allowed);
    if text.len() > VARIABLES_MAX {
        let allowed = format!("at most {VARIABLES_MAX} bytes of JSON");
        return Err(wrong(format!("{} bytes", text.len()), &allowed));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(variables)) => Ok(variables),
        Ok(Value::Null) => Ok(Map::new()),
        _ => Err(wrong("something else".to_owned(), "an object of names and values")),
    }
}

fn unknown(name: &str, known: &[&str]) -> FieldError {
    let allowed = match known {
        [] => "a template; there is none yet, `postrider templates set` makes one".to_owned(),
        known => {
            let more = if known.len() > NAMES_SHOWN { ", …" } else { "" };
            let shown: Vec<_> = known.iter().take(NAMES_SHOWN).copied().collect();
            format!("one of {}{more}", shown.join(", "))
        }
    };
    FieldError::new("template.name", shorten(name), allowed)
}

//! Renders a template and variables to content. If that fails, the error names everything that is wrong, not
//! only the first.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use minijinja::{Error, ErrorKind};
use postrider_core::FieldError;
use postrider_core::model::content::ContentSchema;
use serde_json::{Map, Value};

use super::content::{quote, write};
use super::engine::STEPS_MAX;
use super::variables::{RenderRecord, WORK_MAX, root};
use super::{CompiledLocale, Template, TemplateSource, locale};

/// The variables of one message, as JSON text.
pub const VARIABLES_MAX: usize = 64 << 10;
/// All texts of one message together.
const RENDERED_MAX: usize = 1 << 20;
/// Missing names that are reported per text; each costs one more rendering.
const MISSING_MAX: usize = 100;

/// What a message asks of a template.
#[derive(Debug, Clone, Copy)]
pub struct TemplateCall<'a> {
    /// The default one if absent.
    pub locale: Option<&'a str>,
    pub variables: &'a Map<String, Value>,
    /// A JSON object: content of the message's own, which wins.
    pub content: &'a str,
}

/// A variable that is not there, and the fields that need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingVariable {
    pub variable: String,
    pub fields: Vec<String>,
}

/// The rendered content, and what is wrong with it.
#[derive(Debug)]
pub struct TemplatePreview {
    /// As its author writes it.
    pub locale: String,
    /// JSON; missing variables are left empty.
    pub content: String,
    pub missing: Vec<MissingVariable>,
    pub errors: Vec<FieldError>,
}

impl Template {
    /// The content, as JSON text. Errors name fields of the message.
    pub fn render(&self, call: &TemplateCall<'_>) -> Result<String, Vec<FieldError>> {
        let (locale, filled) = self.fill(call).map_err(|error| vec![error])?;
        if filled.missing.is_empty() && filled.errors.is_empty() {
            return Ok(filled.content);
        }
        let told = |missing: &MissingVariable| self.missing(locale, missing);
        Err(filled.missing.iter().map(told).chain(filled.errors).collect())
    }

    /// The same for a preview: reports missing variables even if they would not refuse a message.
    pub fn preview(
        &self,
        source: &TemplateSource,
        schema: &ContentSchema,
        call: &TemplateCall<'_>,
    ) -> Result<TemplatePreview, Vec<FieldError>> {
        let one = |error| vec![error];
        let (locale, filled) = self.fill(call).map_err(one)?;
        let strict = TemplateSource { strict: true, ..source.clone() };
        let strict = Self::compile(&self.name, &strict, schema)?;
        let missing = strict.fill(call).map_err(one)?.1.missing;
        let (content, errors) = (filled.content, filled.errors);
        Ok(TemplatePreview { locale: locale.written.clone(), content, missing, errors })
    }

    fn fill(
        &self,
        call: &TemplateCall<'_>,
    ) -> Result<(&CompiledLocale, RenderedContent), FieldError> {
        let locale = self.locale(call.locale)?;
        let record = Arc::new(RenderRecord::default());
        let mut run = TemplateRun {
            template: self,
            written: &locale.written,
            root: root(call.variables, &record),
            record,
            room: RENDERED_MAX,
            steps: STEPS_MAX * 2,
            is_over: false,
            retries: MISSING_MAX,
            filled: RenderedContent::default(),
        };
        let content = write(&locale.fields, call.content, &mut |name, out| run.say(name, out));
        Ok((locale, RenderedContent { content, ..run.filled }))
    }

    /// The requested one, or the next best.
    fn locale(&self, wished: Option<&str>) -> Result<&CompiledLocale, FieldError> {
        let key = match wished {
            None => self.default_locale.clone(),
            Some(wished) => locale::normalise(wished).ok_or_else(|| {
                FieldError::new("template.locale", super::shorten(wished), locale::ALLOWED)
            })?,
        };
        let best = locale::candidates(&key).find_map(|key| self.locales.get(key));
        best.or_else(|| self.locales.get(&self.default_locale)).ok_or_else(|| {
            let allowed = format!("one of {}", self.locales().join(", "));
            FieldError::new("template.locale", "another one", allowed)
        })
    }

    fn missing(&self, locale: &CompiledLocale, missing: &MissingVariable) -> FieldError {
        let (name, written) = (&self.name, &locale.written);
        let fields = missing.fields.join(", ");
        let allowed = format!(
            "a value: the template {name} ({written}) uses it in {fields}, without a default"
        );
        FieldError::new(format!("template.variables.{}", missing.variable), "nothing", allowed)
    }
}

#[derive(Default)]
struct RenderedContent {
    content: String,
    missing: Vec<MissingVariable>,
    errors: Vec<FieldError>,
}

/// One rendering of one locale.
struct TemplateRun<'a> {
    template: &'a Template,
    written: &'a str,
    root: minijinja::Value,
    record: Arc<RenderRecord>,
    /// Bytes that may still be written.
    room: usize,
    /// Steps that may still be taken.
    steps: u64,
    is_over: bool,
    /// Renderings that may still be repeated.
    retries: usize,
    filled: RenderedContent,
}

impl TemplateRun<'_> {
    /// Renders one text and writes it as JSON; notes what is wrong.
    fn say(&mut self, name: &str, out: &mut String) {
        let field = name.split_once('/').map_or(name, |(_, field)| field);
        self.record.begin();
        let mut missing = Vec::new();
        loop {
            match self.text(name) {
                Ok(text) => {
                    quote(&text, out);
                    return self.miss(&missing, field);
                }
                Err(error) if error.kind() == ErrorKind::UndefinedError => {
                    let Some(variable) = self.record.stand_in_for_last() else {
                        self.note(field, &error);
                        break;
                    };
                    missing.push(variable);
                    if self.retries == 0 {
                        break;
                    }
                    self.retries -= 1;
                }
                // What stands in for something missing may well not fit.
                Err(_) if !missing.is_empty() => break,
                Err(error) => {
                    self.note(field, &error);
                    break;
                }
            }
        }
        quote("", out);
        self.miss(&missing, field);
    }

    fn text(&mut self, name: &str) -> Result<String, Error> {
        if self.steps == 0 || self.is_over {
            return Err(ErrorKind::OutOfFuel.into());
        }
        let mut out = BoundedBuffer { bytes: Vec::with_capacity(64), room: self.room };
        let text = self.template.engine.get_template(name)?;
        let root = self.root.clone();
        // A mistake in the engine costs one message, not all that came in with it.
        let done = catch_unwind(AssertUnwindSafe(|| {
            let done = text.render_captured_to(root, &mut out)?;
            Ok::<_, Error>(done.state().fuel_levels().unwrap_or_default())
        }));
        let gave_up = || Error::new(ErrorKind::InvalidOperation, "the engine gave up");
        let (taken, _) = done.unwrap_or_else(|_| Err(gave_up()))?;
        self.steps = self.steps.saturating_sub(taken);
        self.room = self.room.saturating_sub(out.bytes.len());
        Ok(String::from_utf8(out.bytes).unwrap_or_default())
    }

    fn miss(&mut self, variables: &[String], field: &str) {
        for variable in variables.iter().flat_map(|name| self.record.in_full(name)) {
            let field = field.to_owned();
            match self.filled.missing.iter_mut().find(|known| known.variable == variable) {
                Some(known) => known.fields.push(field),
                None => self.filled.missing.push(MissingVariable { variable, fields: vec![field] }),
            }
        }
    }

    fn note(&mut self, field: &str, error: &Error) {
        if matches!(error.kind(), ErrorKind::WriteFailure | ErrorKind::OutOfFuel) {
            // From here on nothing is rendered any more, and nothing is told about it.
            if std::mem::replace(&mut self.is_over, true) {
                return;
            }
        }
        let at = format!("{} ({}), {field}", self.template.name, self.written);
        let at = error.line().map_or(at.clone(), |line| format!("{at}, line {line}"));
        let (found, allowed) = match error.kind() {
            ErrorKind::WriteFailure => (
                "more text than a message may have".to_owned(),
                format!("at most {RENDERED_MAX} bytes, all fields together"),
            ),
            ErrorKind::OutOfFuel => (
                "too much work".to_owned(),
                format!(
                    "at most {STEPS_MAX} steps per field, and {WORK_MAX} bytes through filters"
                ),
            ),
            _ => {
                let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
                (what, "variables that the template can be rendered with".to_owned())
            }
        };
        self.filled.errors.push(FieldError::new("template", format!("{at}: {found}"), allowed));
    }
}

/// Takes a limited number of bytes.
struct BoundedBuffer {
    bytes: Vec<u8>,
    room: usize,
}

impl io::Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! Renders a template and variables to content. If that fails, the error names everything that is wrong, not
//! only the first.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use minijinja::{Environment, Error, ErrorKind};
use postrider_core::FieldError;
use postrider_core::model::content::ContentSchema;
use serde_json::{Map, Value};

use super::content::{quote, write};
use super::engine::STEPS_MAX;
use super::record::{ITEMS_MAX, RenderRecord, SHORT_TEXT, WORK_MAX};
use super::variables::{longest_text, root};
use super::{CompiledLocale, Template, TemplateSource, locale};

/// The variables of one message, as JSON text.
pub const VARIABLES_MAX: usize = 64 << 10;
/// All texts of one message together.
const RENDERED_MAX: usize = 1 << 20;
/// Missing names that are reported.
const MISSING_MAX: usize = 1_000;
/// Steps that are counted for a text that failed.
const FAILED_STEPS: u64 = STEPS_MAX / 10;

/// What a message asks of a template.
#[derive(Debug, Clone, Copy)]
pub struct TemplateCall<'a> {
    /// The default one if absent.
    pub locale: Option<&'a str>,
    pub variables: &'a Map<String, Value>,
    /// A JSON object: content of the message's own, which wins.
    pub content: &'a str,
    /// It ends at this time, done or not.
    pub deadline: Option<Instant>,
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

/// Why there is no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateFailure {
    /// Errors name fields of the message.
    Invalid(Vec<FieldError>),
    /// There was no time. Another try may have more.
    Late,
}

impl From<FieldError> for TemplateFailure {
    fn from(error: FieldError) -> Self {
        Self::Invalid(vec![error])
    }
}

impl Template {
    /// The content, as JSON text.
    pub fn render(&self, call: &TemplateCall<'_>) -> Result<String, TemplateFailure> {
        let (locale, filled) = self.fill(call)?;
        if filled.missing.is_empty() && filled.errors.is_empty() {
            return Ok(filled.content);
        }
        let told = |missing: &MissingVariable| self.missing(locale, missing);
        let errors = filled.missing.iter().map(told).chain(filled.errors).collect();
        Err(TemplateFailure::Invalid(errors))
    }

    /// The same for a preview: reports missing variables even if they would not refuse a message.
    pub fn preview(
        &self,
        source: &TemplateSource,
        schema: &ContentSchema,
        call: &TemplateCall<'_>,
    ) -> Result<TemplatePreview, TemplateFailure> {
        let (locale, filled) = self.fill(call)?;
        let missing = match self.strict {
            true => filled.missing,
            false => {
                let strict = TemplateSource { strict: true, ..source.clone() };
                let strict = Self::compile(&self.name, &strict, schema);
                strict.map_err(TemplateFailure::Invalid)?.fill(call)?.1.missing
            }
        };
        let (content, errors) = (filled.content, filled.errors);
        Ok(TemplatePreview { locale: locale.written.clone(), content, missing, errors })
    }

    fn fill(
        &self,
        call: &TemplateCall<'_>,
    ) -> Result<(&CompiledLocale, RenderedContent), TemplateFailure> {
        let locale = self.locale(call.locale)?;
        let record = Arc::new(RenderRecord::new(self.strict, call.deadline));
        let scanner = self.scanner(call.variables);
        let mut run = TemplateRun {
            template: self,
            scanner: scanner.as_ref(),
            written: &locale.written,
            root: root(call.variables, &record),
            record,
            room: RENDERED_MAX,
            steps: STEPS_MAX * 2,
            is_over: false,
            filled: RenderedContent::default(),
        };
        let content = write(&locale.fields, call.content, &mut |name, out| run.say(name, out));
        if run.record.is_late() {
            return Err(TemplateFailure::Late);
        }
        Ok((locale, RenderedContent { content, ..run.filled }))
    }

    /// An engine with fewer steps, for texts that read whole texts at each step, where these are long.
    fn scanner(&self, variables: &Map<String, Value>) -> Option<Environment<'static>> {
        if self.costs.scanning.is_empty() {
            return None;
        }
        let longest = longest_text(variables).max(self.costs.longest_constant);
        if longest <= SHORT_TEXT {
            return None;
        }
        let mut engine = self.engine.clone();
        engine.set_fuel(Some(STEPS_MAX * SHORT_TEXT as u64 / longest as u64));
        Some(engine)
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
    /// Renders the texts that read whole texts, if it is there.
    scanner: Option<&'a Environment<'static>>,
    written: &'a str,
    root: minijinja::Value,
    record: Arc<RenderRecord>,
    /// Bytes that may still be written.
    room: usize,
    /// Steps that may still be taken.
    steps: u64,
    is_over: bool,
    filled: RenderedContent,
}

impl TemplateRun<'_> {
    /// Renders one text and writes it as JSON; notes what is wrong.
    fn say(&mut self, name: &str, out: &mut String) {
        let field = name.split_once('/').map_or(name, |(_, field)| field);
        let is_scanning = self.template.costs.scanning.contains(name);
        self.record.begin(is_scanning);
        match self.text(name, is_scanning) {
            Ok(text) => quote(&text, out),
            Err(error) => {
                quote("", out);
                self.steps = self.steps.saturating_sub(FAILED_STEPS);
                // What stands in for something missing may well not fit.
                if is_too_much(&error) || !self.record.blame_missing() {
                    self.note(field, &error);
                }
            }
        }
        let missing = self.record.take_missing();
        self.miss(&missing, field);
    }

    fn text(&mut self, name: &str, is_scanning: bool) -> Result<String, Error> {
        if self.steps == 0 || self.is_over || self.record.is_over() {
            return Err(ErrorKind::OutOfFuel.into());
        }
        let mut out = BoundedBuffer { bytes: Vec::with_capacity(64), room: self.room };
        let engine = self.scanner.filter(|_| is_scanning).unwrap_or(&self.template.engine);
        let text = engine.get_template(name)?;
        let root = self.root.clone();
        // A mistake in the engine costs one message, not all that came in with it.
        let done = catch_unwind(AssertUnwindSafe(|| {
            let done = text.render_captured_to(root, &mut out)?;
            Ok::<_, Error>(done.state().fuel_levels().unwrap_or_default())
        }));
        let gave_up = || Error::new(ErrorKind::InvalidOperation, "the engine gave up");
        let done = done.unwrap_or_else(|_| Err(gave_up()));
        if self.record.is_over() {
            return Err(ErrorKind::OutOfFuel.into());
        }
        let (taken, _) = done?;
        // Few steps of a text that may take few are as dear as many of another.
        let scale = STEPS_MAX / engine.fuel().unwrap_or(STEPS_MAX).max(1);
        self.steps = self.steps.saturating_sub(taken.saturating_mul(scale.max(1)));
        self.room = self.room.saturating_sub(out.bytes.len());
        Ok(String::from_utf8(out.bytes).unwrap_or_default())
    }

    fn miss(&mut self, variables: &[String], field: &str) {
        for variable in variables {
            let field = field.to_owned();
            let all = &mut self.filled.missing;
            let has_room = all.len() < MISSING_MAX;
            match all.iter_mut().find(|known| known.variable == *variable) {
                Some(known) => known.fields.push(field),
                None if has_room => {
                    all.push(MissingVariable { variable: variable.clone(), fields: vec![field] });
                }
                None => {}
            }
        }
    }

    fn note(&mut self, field: &str, error: &Error) {
        if is_too_much(error) {
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
                    "at most {STEPS_MAX} steps per field, {ITEMS_MAX} items and {WORK_MAX} bytes through filters"
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

/// Whether nothing more is rendered after this error.
fn is_too_much(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WriteFailure | ErrorKind::OutOfFuel)
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

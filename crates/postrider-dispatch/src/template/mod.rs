//! Templates: content with variables, in several languages. The intake renders them into the plain content
//! of a message; channels, stores and retries never see one.
//!
//! The language ([`guard`]), the steps, the items and bytes that are handled ([`record`]), the bytes of output and the
//! time ([`pool`]) are bounded, so that the author of a template cannot block the intake. Loads nothing from disk.

mod content;
mod engine;
mod guard;
mod locale;
mod pool;
mod record;
mod render;
mod set;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

use minijinja::Environment;
use postrider_core::FieldError;
use postrider_core::model::content::ContentSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use pool::{RENDER_TIME, RenderPool, RenderTimeout};
pub use render::{MissingVariable, TemplateCall, TemplateFailure, TemplatePreview, VARIABLES_MAX};
pub use set::{CurrentTemplates, TemplateSet};

use content::{ContentPiece, TemplateCosts};

/// A template's JSON text, all locales together.
const SOURCE_MAX: usize = 256 << 10;
const LOCALES_MAX: usize = 100;
/// Texts with variables, all locales together.
const TEXTS_MAX: usize = 1_000;
const NAME_MAX: usize = 64;
/// A template without loops up to this size, with variables up to this size, takes less than a millisecond.
const LIGHT_BYTES: usize = 8 << 10;
const LIGHT_VARIABLES_BYTES: usize = 4 << 10;
/// The API has a call of this name beside the templates.
const RESERVED: &str = "preview";

/// A template as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateSource {
    /// Used where no other locale fits; may be left out if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_locale: Option<String>,
    /// Whether a missing variable refuses the message.
    #[serde(default = "yes")]
    pub strict: bool,
    /// By locale: fields of a message's `content`. Every string in it may have variables.
    pub locales: BTreeMap<String, Map<String, Value>>,
}

fn yes() -> bool {
    true
}

/// A template that can be rendered.
#[derive(Debug)]
pub struct Template {
    name: String,
    /// A key of `locales`.
    default_locale: String,
    /// By normalised locale.
    locales: BTreeMap<String, CompiledLocale>,
    /// Every text with variables, of every locale.
    engine: Environment<'static>,
    variables: BTreeSet<String>,
    strict: bool,
    costs: TemplateCosts,
}

#[derive(Debug)]
struct CompiledLocale {
    /// As its author writes it.
    written: String,
    fields: Vec<(String, ContentPiece)>,
}

impl Template {
    /// Checks and compiles. Errors name fields relative to the template.
    pub fn compile(
        name: &str,
        source: &TemplateSource,
        schema: &ContentSchema,
    ) -> Result<Self, Vec<FieldError>> {
        check_name(name).map_err(|error| vec![error])?;
        check_size(source).map_err(|error| vec![error])?;
        let mut template = Self {
            name: name.to_owned(),
            default_locale: default_locale(source).map_err(|error| vec![error])?,
            locales: BTreeMap::new(),
            engine: engine::new(source.strict),
            variables: BTreeSet::new(),
            strict: source.strict,
            costs: TemplateCosts::default(),
        };
        let mut errors = Vec::new();
        for (written, fields) in &source.locales {
            template.add(written, fields, schema, &mut errors);
        }
        let texts = template.engine.templates().count();
        if texts > TEXTS_MAX {
            let allowed = format!("at most {TEXTS_MAX} texts with variables, all locales together");
            errors.push(FieldError::new("locales", format!("{texts} texts"), allowed));
        }
        if errors.is_empty() { Ok(template) } else { Err(errors) }
    }

    /// Whether it can be rendered at once, whatever the variables are: there is little of it, and nothing repeats it.
    pub fn is_light(&self, variables_bytes: usize) -> bool {
        !self.costs.has_loop
            && self.costs.bytes <= LIGHT_BYTES
            && variables_bytes <= LIGHT_VARIABLES_BYTES
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The variables that it reads, with the path inside of them: `order.number`.
    pub fn variables(&self) -> &BTreeSet<String> {
        &self.variables
    }

    /// As written, the default one first.
    pub fn locales(&self) -> Vec<&str> {
        let mut all: Vec<_> = self.locales.iter().collect();
        all.sort_by_key(|(key, _)| **key != self.default_locale);
        all.into_iter().map(|(_, locale)| &*locale.written).collect()
    }

    fn add(
        &mut self,
        written: &str,
        fields: &Map<String, Value>,
        schema: &ContentSchema,
        errors: &mut Vec<FieldError>,
    ) {
        let at = format!("locales.{}", shorten(written));
        let Some(key) = locale::normalise(written) else {
            return errors.push(FieldError::new(at, shorten(written), locale::ALLOWED));
        };
        if self.locales.contains_key(&key) {
            return errors.push(FieldError::new(at, "the same locale twice", "each locale once"));
        }
        let text = serde_json::to_string(fields).unwrap_or_default();
        if let Err(error) = schema.read(&text) {
            return errors.push(error.below(&at));
        }
        let mut reader = content::LocaleReader {
            locale: &key,
            at,
            engine: &mut self.engine,
            costs: &mut self.costs,
            errors,
        };
        let fields = reader.fields(fields);
        self.variables.extend(reader.variables());
        self.locales.insert(key, CompiledLocale { written: written.to_owned(), fields });
    }
}

/// A template's name as a caller writes it.
pub fn check_name(name: &str) -> Result<(), FieldError> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let fits = !name.is_empty()
        && name.len() <= NAME_MAX
        && name.bytes().all(allowed)
        && !name.bytes().all(|b| b == b'.')
        && name != RESERVED;
    if fits {
        return Ok(());
    }
    let text = "1 to 64 letters, digits, -, _ or ., and not `preview`";
    Err(FieldError::new("name", format!("{:?}", shorten(name)), text))
}

fn check_size(source: &TemplateSource) -> Result<(), FieldError> {
    let size = serde_json::to_string(&source.locales).map_or(usize::MAX, |text| text.len());
    if size > SOURCE_MAX {
        let allowed = format!("at most {SOURCE_MAX} bytes, all locales together");
        return Err(FieldError::new("locales", format!("{size} bytes"), allowed));
    }
    let found = source.locales.len();
    if found == 0 || found > LOCALES_MAX {
        let allowed = format!("1 to {LOCALES_MAX} locales, e.g. {{\"en\": {{\"title\": \"…\"}}}}");
        return Err(FieldError::new("locales", found.to_string(), allowed));
    }
    Ok(())
}

fn default_locale(source: &TemplateSource) -> Result<String, FieldError> {
    let known = || {
        let names: Vec<_> = source.locales.keys().map(|name| shorten(name)).collect();
        format!("one of the locales: {}", names.join(", "))
    };
    let wrong = |found: String| FieldError::new("default_locale", found, known());
    let keys: BTreeSet<_> =
        source.locales.keys().filter_map(|name| locale::normalise(name)).collect();
    match &source.default_locale {
        Some(name) => locale::normalise(name)
            .filter(|key| keys.contains(key))
            .ok_or_else(|| wrong(shorten(name))),
        None if source.locales.len() == 1 => Ok(keys.into_iter().next().unwrap_or_default()),
        None => Err(wrong("nothing".to_owned())),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;

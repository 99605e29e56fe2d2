//! The content of one locale, with its texts compiled. Texts with variables are rendered for each message;
//! everything else is copied. Knows the fields of content, but no channel.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use minijinja::Environment;
use postrider_core::FieldError;
use postrider_core::model::content::COMMON_FIELDS;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{engine, guard};

#[derive(Debug)]
pub(super) enum ContentPiece {
    /// JSON, as it is written out.
    Fixed(Box<str>),
    /// A text by its name in the engine.
    Text(Box<str>),
    List(Vec<ContentPiece>),
    Object(Vec<(String, ContentPiece)>),
}

/// What a template may cost: decides how and where it is rendered.
#[derive(Debug, Default)]
pub(super) struct TemplateCosts {
    /// The bytes of all texts.
    pub(super) bytes: usize,
    pub(super) has_loop: bool,
    /// The names of the texts that read whole texts at each step.
    pub(super) scanning: HashSet<Box<str>>,
    /// The bytes of the longest text in their expressions.
    pub(super) longest_constant: usize,
}

impl TemplateCosts {
    fn add(&mut self, name: &str, text: &str, traits: guard::TextTraits) {
        self.bytes += text.len();
        self.has_loop |= traits.has_loop;
        if traits.scans {
            self.scanning.insert(name.into());
            self.longest_constant = self.longest_constant.max(traits.longest_constant);
        }
    }
}

/// Reads one locale's content.
pub(super) struct LocaleReader<'a> {
    pub(super) locale: &'a str,
    /// The path that errors name.
    pub(super) at: String,
    pub(super) engine: &'a mut Environment<'static>,
    pub(super) costs: &'a mut TemplateCosts,
    pub(super) errors: &'a mut Vec<FieldError>,
}

impl LocaleReader<'_> {
    pub(super) fn fields(&mut self, fields: &Map<String, Value>) -> Vec<(String, ContentPiece)> {
        self.object("", fields)
    }

    /// The variables that the texts of this locale read.
    pub(super) fn variables(&self) -> BTreeSet<String> {
        let of_locale = |name: &str| name.split('/').next() == Some(self.locale);
        let texts = self.engine.templates().filter(|(name, _)| of_locale(name));
        let mut found: BTreeSet<String> =
            texts.flat_map(|(_, text)| text.undeclared_variables(true)).collect();
        found.remove("loop");
        found
    }

    fn object(&mut self, path: &str, fields: &Map<String, Value>) -> Vec<(String, ContentPiece)> {
        let mut pieces = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            pieces.push((name.clone(), self.piece(&path, value)));
        }
        pieces
    }

    fn piece(&mut self, path: &str, value: &Value) -> ContentPiece {
        match value {
            Value::String(text) if text.contains('{') => self.text(path, text),
            Value::Object(fields) => ContentPiece::Object(self.object(path, fields)),
            Value::Array(items) => {
                let numbered = items.iter().enumerate();
                ContentPiece::List(
                    numbered.map(|(n, v)| self.piece(&format!("{path}.{n}"), v)).collect(),
                )
            }
            fixed => ContentPiece::Fixed(fixed.to_string().into()),
        }
    }

    fn text(&mut self, path: &str, text: &str) -> ContentPiece {
        let name = format!("{}/{path}", self.locale);
        let compiled = guard::check(text, &engine::SYNTAX).and_then(|traits| {
            self.costs.add(&name, text, traits);
            let added = self.engine.add_template_owned(name.clone(), text.to_owned());
            added.map_err(|error| guard::TemplateFlaw::of(&error))
        });
        if let Err(wrong) = compiled {
            let field = format!("{}.{path}", self.at);
            let found = format!("line {}: {}", wrong.line, wrong.found);
            self.errors.push(FieldError::new(field, found, wrong.allowed));
        }
        ContentPiece::Text(name.into())
    }
}

/// Returns the text of that name as JSON.
pub(super) type TextWriter<'a> = dyn FnMut(&str, &mut String) + 'a;

/// Writes the content of a locale as JSON. A field that the caller gives replaces the template's.
pub(super) fn write(
    fields: &[(String, ContentPiece)],
    own: &str,
    say: &mut TextWriter<'_>,
) -> String {
    let mut own = fields_of(own).unwrap_or_default();
    let mut out = String::with_capacity(256);
    merged(fields, &mut own, &mut out, say, true);
    out
}

fn fields_of(json: &str) -> Option<BTreeMap<Cow<'_, str>, &RawValue>> {
    if json == "{}" {
        return None;
    }
    serde_json::from_str(json).ok()
}

fn merged(
    fields: &[(String, ContentPiece)],
    own: &mut BTreeMap<Cow<'_, str>, &RawValue>,
    out: &mut String,
    say: &mut TextWriter<'_>,
    is_top: bool,
) {
    out.push('{');
    for (name, piece) in fields {
        key(name, out);
        match (own.remove(name.as_str()), piece) {
            (None, piece) => piece.write(out, say),
            // Common fields are taken whole; of the others, each field counts.
            (Some(raw), ContentPiece::Object(inner))
                if is_top && !COMMON_FIELDS.contains(&name.as_str()) =>
            {
                match serde_json::from_str(raw.get()) {
                    Ok(mut own) => merged(inner, &mut own, out, say, false),
                    // Null, or not what it must be: the caller's word, which is checked with the rest.
                    Err(_) => out.push_str(raw.get()),
                }
            }
            (Some(raw), _) => out.push_str(raw.get()),
        }
    }
    for (name, raw) in own {
        key(name, out);
        out.push_str(raw.get());
    }
    out.push('}');
}

impl ContentPiece {
    fn write(&self, out: &mut String, say: &mut TextWriter<'_>) {
        match self {
            Self::Fixed(json) => out.push_str(json),
            Self::Text(name) => say(name, out),
            Self::List(items) => {
                out.push('[');
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    item.write(out, say);
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (name, piece) in fields {
                    key(name, out);
                    piece.write(out, say);
                }
                out.push('}');
            }
        }
    }
}

/// Writes the name of the next field, after a comma if it is not the first.
fn key(name: &str, out: &mut String) {
    if !out.ends_with('{') {
        out.push(',');
    }
    quote(name, out);
    out.push(':');
}

/// A text as JSON.
pub(super) fn quote(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

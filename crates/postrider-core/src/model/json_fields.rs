//! JSON objects read into types; what does not fit is told by field: what was found there and what is
//! expected. Names kinds of values and never the values themselves: an address is a secret.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::ports::channel::FieldError;

/// Deeper JSON than this is nobody's message, and costs whoever reads it by recursion their stack.
pub const DEPTH_MAX: usize = 64;
/// At most so many characters of a field's name are repeated in an error.
pub(crate) const NAME_SHOWN_MAX: usize = 64;

/// An object as a `T`. `whole` says what is allowed at its top: its fields, in words.
pub fn read<'de, T: Deserialize<'de>>(text: &'de str, whole: &str) -> Result<T, FieldError> {
    // Derived code would take a list of the fields' values as well.
    match text.trim_ascii_start().starts_with('{').then(|| serde_json::from_str(text)) {
        Some(Ok(value)) => Ok(value),
        _ => Err(misfit::<T>(text, whole)),
    }
}

/// Where and why `text` is not a `T`. Costs a second reading, with every step written down.
fn misfit<'de, T: Deserialize<'de>>(text: &'de str, whole: &str) -> FieldError {
    if !text.trim_ascii_start().starts_with('{') {
        let allowed = if whole.is_empty() { "an object" } else { whole };
        return FieldError::new("", kind_of_text(text), allowed);
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => FieldError::new("", "something behind it", whole),
        Err(error) => {
            let path = error.path().to_string();
            // What could not even be read as a name is told by where it stands.
            let path = path.trim_end_matches('?').trim_end_matches('.');
            describe(path, error.inner(), whole)
        }
    }
}

/// The field, what was found and what is allowed, from an error of the parser.
pub fn describe(path: &str, error: &serde_json::Error, whole: &str) -> FieldError {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(before, _)| before);
    let named = |prefix: &str| text.strip_prefix(prefix)?.split_once('`');
    if let Some((name, rest)) = named("unknown field `") {
        let nested = path.contains('.');
        let others = rest.trim_start_matches(", expected ").replace('`', "");
        return FieldError::new(
            below(path, name),
            "unknown field",
            if nested || whole.is_empty() { &others } else { whole },
        );
    }
    if let Some((name, _)) = named("duplicate field `") {
        return FieldError::new(below(path, name), "given twice", "given once");
    }
    if let Some((name, _)) = named("missing field `") {
        let required = "a value: the field is required";
        let allowed = if path.is_empty() && !whole.is_empty() { whole } else { required };
        return FieldError::new(below(path, name), "nothing", allowed);
    }
    if let Some((name, rest)) = named("unknown variant `") {
        let name: String = name.chars().take(32).collect();
        let others = rest.trim_start_matches(", expected ").replace('`', "");
        return FieldError::new(path, format!("{name:?}"), others);
    }
    let (found, expected) = text.split_once(", expected ").unwrap_or((text, ""));
    let allowed = match expected {
        "" => "valid JSON",
        other => plain(other),
    };
    FieldError::new(path, kind_of(found), allowed)
}

/// The path of a field, whether or not the path ends with it already.
fn below(path: &str, name: &str) -> String {
    let name: String = name.chars().take(NAME_SHOWN_MAX).collect();
    match path {
        "" => name,
        path if path == name || path.ends_with(&format!(".{name}")) => path.to_owned(),
        path => format!("{path}.{name}"),
    }
}

const HALF: &str = "half a character (\\u… without its other half)";

/// The parser's words for a value, without the value.
fn kind_of(found: &str) -> &str {
    let (how, what) = found.split_once(": ").unwrap_or(("", found));
    let is = |word: &str| what.starts_with(word);
    match how {
        "invalid type" if is("string") => "a string",
        "invalid type" if is("integer") || is("floating point") => "a number",
        "invalid type" if is("boolean") => "true or false",
        "invalid type" if is("null") || is("unit value") => "null",
        "invalid type" if is("sequence") => "a list",
        "invalid type" if is("map") => "an object",
        "invalid value" if is("integer") || is("floating point") => "a number out of range",
        "invalid type" | "invalid value" | "invalid length" => "something else",
        _ if found.contains("surrogate") || found.contains("hex escape") => HALF,
        _ => found,
    }
}

fn plain(expected: &str) -> &str {
    match expected {
        "i64" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        expected if expected.starts_with("struct ") => "an object",
        other => other,
    }
}

/// An object as a `T`. Derived code would take a list of its fields' values as well.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    struct ObjectVisitor<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(ObjectVisitor(PhantomData))
}

/// What kind of value this is, in a caller's words.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The same of valid JSON that nobody has read yet, however deep.
pub fn kind_of_text(json: &str) -> &'static str {
    match json.trim_ascii_start().bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b'n') => "null",
        Some(b't' | b'f') => "true or false",
        Some(_) => "a number",
        None => "nothing",
    }
}

/// Whether valid JSON is nested deeper than [`DEPTH_MAX`]. Recurses nowhere.
pub fn is_deep(json: &str) -> bool {
    let opens = |byte: &u8| matches!(byte, b'{' | b'[');
    if json.bytes().filter(|byte| opens(byte)).count() <= DEPTH_MAX {
        return false;
    }
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest > DEPTH_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_strings_only() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(!is_deep(&nested(DEPTH_MAX)));
        assert!(is_deep(&nested(DEPTH_MAX + 1)));
        assert!(is_deep(&nested(1_000_000)));
        assert!(!is_deep(&format!(r#"["{}\"[["]"#, "[".repeat(500))));
        assert!(!is_deep(&format!("[{}1]", "[],".repeat(500))));
    }
}

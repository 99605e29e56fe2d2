//! Reads parts of an answer of the API by their path. What is absent is empty.

use serde_json::Value;

/// Shorter access to the fields of an answer. A path has points between its names.
pub(super) trait JsonRead {
    fn at(&self, path: &str) -> &Value;
    /// The text at the path; empty if there is none.
    fn text(&self, path: &str) -> &str;
    /// The number at the path; 0 if there is none.
    fn number(&self, path: &str) -> u64;
    fn list(&self, path: &str) -> &[Value];
    /// Whether there is a value that says something.
    fn has(&self, path: &str) -> bool;
}

impl JsonRead for Value {
    fn at(&self, path: &str) -> &Value {
        path.split('.').fold(self, |value, name| &value[name])
    }

    fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    fn number(&self, path: &str) -> u64 {
        let found = self.at(path);
        found.as_u64().unwrap_or_else(|| found.as_f64().unwrap_or_default() as u64)
    }

    fn list(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map_or(&[], Vec::as_slice)
    }

    fn has(&self, path: &str) -> bool {
        match self.at(path) {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Bool(true) | Value::Number(_) | Value::Object(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_absent_is_empty() {
        let answer = json!({"a": {"b": "text", "n": 7, "f": 2.9}, "l": [1], "no": false});
        assert_eq!(
            (answer.text("a.b"), answer.number("a.n"), answer.number("a.f")),
            ("text", 7, 2)
        );
        assert_eq!((answer.text("a.x.y"), answer.number("x"), answer.list("x").len()), ("", 0, 0));
        assert!(answer.has("l") && answer.has("a") && !answer.has("no") && !answer.has("x"));
    }
}

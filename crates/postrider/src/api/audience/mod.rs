//! Whom to reach: recipients with their preferences, categories, suppressions, and what is known about addresses.
//! Decides nothing: the core's rules do.

pub(super) mod bodies;
pub(super) mod categories;
pub(super) mod facts;
pub(super) mod import;
pub(super) mod merging;
pub(super) mod preferences;
pub(super) mod profiles;
pub(super) mod recipients;
pub(super) mod suppressions;
pub(super) mod would_send;

use postrider_core::model::json_fields;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::problem::{ApiResult, Problem};

/// Applies a merge patch (RFC 7396): what it names is replaced, and `null` removes.
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else { return *into = patch };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Value::Object(fields) = into else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// A value as a body; an error names the field.
fn read<T: DeserializeOwned>(value: &Value) -> ApiResult<T> {
    json_fields::read(&value.to_string(), "").map_err(|error| {
        let field = if error.field.is_empty() { "body".to_owned() } else { error.field };
        Problem::field(field, error.found, error.allowed)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_replaces_what_it_names_and_null_removes() {
        let mut value =
            json!({"all": "yes", "channels": {"sms": "no", "email": "yes"}, "list": [1, 2]});
        merge(
            &mut value,
            json!({"all": null, "channels": {"sms": null, "push": "no"}, "list": [3]}),
        );
        assert_eq!(value, json!({"channels": {"email": "yes", "push": "no"}, "list": [3]}));
        merge(&mut value, json!({"channels": {"push": {"deep": {"gone": null, "stays": 1}}}}));
        assert_eq!(value["channels"]["push"], json!({"deep": {"stays": 1}}));
    }
}

//! Completes the description of the API: the errors that any call can end with, the content type of errors, ids of
//! operations that are unique, and objects that are made of others.

use serde_json::{Map, Value, json};

const PROBLEM: &str = "#/components/schemas/Problem";
const PROBLEM_TYPE: &str = "application/problem+json";

/// Errors of every call of `/v1`.
const ALWAYS: [(&str, &str); 6] = [
    ("400", "The request cannot be understood"),
    ("401", "The key is missing, wrong, revoked or expired"),
    ("403", "The key may not do this, or the tenant keeps as much as it may"),
    ("422", "A value cannot be accepted"),
    ("429", "Too many calls, or no room; Retry-After says when to come back"),
    ("503", "The server cannot do this at present; Retry-After says when to come back"),
];

/// Errors of calls with a body.
const WITH_BODY: [(&str, &str); 3] = [
    ("408", "The body took too long to arrive"),
    ("413", "The body is too large"),
    ("415", "The body has another content type"),
];

pub(super) fn complete(document: &mut Value) {
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.values_mut().for_each(allow_absent_parts);
        open_parts(schemas);
    }
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            operation["operationId"] = operation_id(method, path).into();
            let has_body = operation["requestBody"].is_object();
            let Some(responses) = operation["responses"].as_object_mut() else { continue };
            responses.values_mut().for_each(name_type);
            if !path.starts_with("/v1/") {
                continue;
            }
            add(responses, &ALWAYS);
            if has_body {
                add(responses, &WITH_BODY);
            }
            if path.contains('{') {
                add(responses, &[("404", "There is no such thing, or this key may not see it")]);
            }
        }
    }
}

/// Fields of an optional part stand beside the others, or are absent: they are never null.
fn allow_absent_parts(schema: &mut Value) {
    for part in schema.get_mut("allOf").and_then(Value::as_array_mut).into_iter().flatten() {
        let choices = part.get_mut("oneOf").and_then(Value::as_array_mut).map(std::mem::take);
        let Some(mut choices) = choices else { continue };
        choices.retain(|choice| choice["type"] != "null");
        choices.push(json!({"type": "object"}));
        *part = json!({"anyOf": choices});
    }
}

/// A request that takes no unknown fields is also a part of what is shown, beside other fields: there it forbids none.
fn open_parts(schemas: &mut Map<String, Value>) {
    let all = schemas.clone();
    let opened = |part: &Value| {
        let name = part["$ref"].as_str()?.rsplit('/').next()?;
        let mut open = all.get(name)?.clone();
        open.as_object_mut()?.remove("example");
        (open.as_object_mut()?.remove("additionalProperties")? == false).then_some(open)
    };
    for schema in schemas.values_mut() {
        for part in schema.get_mut("allOf").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(open) = opened(part) {
                *part = open;
            }
        }
    }
}

/// `post /v1/dead-letters/{id}/replay` is `post_dead_letters_id_replay`.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.trim_start_matches("/v1").split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    [method].into_iter().chain(words).collect::<Vec<_>>().join("_")
}

fn name_type(response: &mut Value) {
    let content = response.get_mut("content").and_then(Value::as_object_mut);
    let Some(content) = content else { return };
    let is_problem = |body: &Value| body["schema"]["$ref"] == PROBLEM;
    if let Some(body) = content.get("application/json").filter(|body| is_problem(body)).cloned() {
        content.remove("application/json");
        content.insert(PROBLEM_TYPE.to_owned(), body);
    }
}

fn add(responses: &mut Map<String, Value>, errors: &[(&str, &str)]) {
    for (status, description) in errors {
        let problem = || {
            let body = json!({PROBLEM_TYPE: {"schema": {"$ref": PROBLEM}}});
            json!({"description": description, "content": body})
        };
        responses.entry(*status).or_insert_with(problem);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::openapi;

    #[test]
    fn no_part_of_an_object_forbids_the_fields_of_another_part() {
        let document: Value = serde_json::from_str(&openapi::json()).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert_eq!(schemas["NewRecipient"]["additionalProperties"], false, "as a request");
        for (name, schema) in schemas {
            for part in schema["allOf"].as_array().into_iter().flatten() {
                let pointer = part["$ref"].as_str().map(|target| target.trim_start_matches('#'));
                let part = pointer.map_or(part, |pointer| document.pointer(pointer).unwrap());
                assert_ne!(part["additionalProperties"], false, "{name}: {part}");
            }
        }
    }

    #[test]
    fn every_operation_has_an_id_of_its_own_and_says_how_it_can_fail() {
        let document: Value = serde_json::from_str(&openapi::json()).unwrap();
        let mut ids = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id), "{method} {path}: {id} is there twice");
                let responses = operation["responses"].as_object().unwrap();
                if path.starts_with("/v1/") {
                    assert!(responses.contains_key("401"), "{method} {path}");
                }
                assert!(
                    responses
                        .values()
                        .all(|response| response.get("content") != Some(&Value::Null))
                );
                for (status, response) in responses.iter().filter(|(s, _)| s.starts_with('4')) {
                    let content = response["content"].as_object().unwrap();
                    assert!(content.contains_key(PROBLEM_TYPE), "{method} {path} {status}");
                }
            }
        }
    }
}

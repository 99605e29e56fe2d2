//! Checks a message of the caller's own as FCM HTTP v1 does: names, types, times and priorities. Does not look into the
//! notifications of the platforms, because Google adds fields there every year. Pure.

use postrider_core::{FieldError, model::json_fields};
use serde_json::{Map, Value};

use super::TRAITS;
use super::render::seconds;
use FcmFieldForm::{Data, Fields, Flag, Headers, Link, Object, Priority, Text, Ttl};

const PATH: &str = "fcm.message";
const TARGETS: [&str; 4] = ["token", "fid", "topic", "condition"];
const RESERVED: [&str; 3] = ["from", "message_type", "collapse_key"];
const PRIORITIES: [&str; 4] = ["NORMAL", "HIGH", "normal", "high"];

/// The value of a field.
#[derive(Clone, Copy)]
enum FcmFieldForm {
    Text,
    Flag,
    Object,
    Fields(FcmFields),
    /// Texts by name, without the names that FCM reserves.
    Data,
    /// Texts in one line, by name.
    Headers,
    Priority,
    Ttl,
    Link,
}

/// The fields of an object. FCM also takes every name in snake case, e.g. `fcm_options`.
type FcmFields = &'static [(&'static str, FcmFieldForm)];

const MESSAGE: FcmFields = &[
    ("name", Text),
    ("data", Data),
    ("notification", Fields(&[("title", Text), ("body", Text), ("image", Text)])),
    ("android", Fields(ANDROID)),
    ("webpush", Fields(WEBPUSH)),
    ("apns", Fields(APNS)),
    ("fcmOptions", Fields(&[("analyticsLabel", Text)])),
];
const ANDROID: FcmFields = &[
    ("collapseKey", Text),
    ("priority", Priority),
    ("ttl", Ttl),
    ("restrictedPackageName", Text),
    ("data", Data),
    ("notification", Object),
    ("fcmOptions", Fields(&[("analyticsLabel", Text)])),
    ("directBootOk", Flag),
    ("bandwidthConstrainedOk", Flag),
    ("restrictedSatelliteOk", Flag),
];
const WEBPUSH: FcmFields = &[
    ("headers", Headers),
    ("data", Data),
    ("notification", Object),
    ("fcmOptions", Fields(&[("link", Link), ("analyticsLabel", Text)])),
];
const APNS: FcmFields = &[
    ("headers", Headers),
    ("payload", Object),
    ("fcmOptions", Fields(&[("image", Text), ("analyticsLabel", Text)])),
    ("liveActivityToken", Text),
];

/// Everything that is wrong with a message of the caller's own.
pub(super) fn own(message: &Map<String, Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(target) = TARGETS.iter().find(|name| message.contains_key(**name)) {
        let allowed = "a message without a target; that is what `to` says";
        errors.push(FieldError::new(format!("{PATH}.{target}"), "a target", allowed));
    }
    check_fields(message, PATH, MESSAGE, &mut errors);
    errors
}

/// Everything that is wrong with `data` that was made of a message's common data.
pub(super) fn common_data(message: &Map<String, Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(Value::Object(data)) = message.get("data") {
        check_data(data, "data", &mut errors);
    }
    errors
}

fn check_fields(
    of: &Map<String, Value>,
    path: &str,
    known: FcmFields,
    errors: &mut Vec<FieldError>,
) {
    for (name, value) in of {
        let field = format!("{path}.{}", short(name));
        match known.iter().find(|(camel, _)| is_spelling_of(name, camel)) {
            Some((_, form)) => check_value(value, &field, *form, errors),
            None if path == PATH && TARGETS.contains(&name.as_str()) => {}
            None => {
                let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
                errors.push(FieldError::new(field, "unknown field", names.join(", ")));
            }
        }
    }
}

fn check_value(value: &Value, field: &str, form: FcmFieldForm, errors: &mut Vec<FieldError>) {
    match (form, value) {
        (Text, Value::String(_)) | (Flag, Value::Bool(_)) | (Object, Value::Object(_)) => return,
        (Fields(known), Value::Object(of)) => return check_fields(of, field, known, errors),
        (Data, Value::Object(data)) => return check_data(data, field, errors),
        (Headers, Value::Object(headers)) => return check_headers(headers, field, errors),
        (Priority, Value::String(text)) if PRIORITIES.contains(&text.as_str()) => return,
        (Ttl, Value::String(text)) if is_ttl(text) => return,
        (Link, Value::String(text)) if text.starts_with("https://") => return,
        _ => {}
    }
    let found = match (form, value) {
        (Priority | Ttl, Value::String(text)) => short(text),
        (Link, Value::String(_)) => "another scheme".to_owned(),
        _ => json_fields::kind(value).to_owned(),
    };
    let allowed = match form {
        Text => "a string",
        Flag => "true or false",
        Object | Fields(_) | Data | Headers => "an object",
        Priority => "NORMAL or HIGH",
        Ttl => "seconds as text, \"0s\" to \"2419200s\"",
        Link => "https://…",
    };
    errors.push(FieldError::new(field, found, allowed));
}

fn check_data(data: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (name, value) in data {
        let field = format!("{path}.{}", short(name));
        check_value(value, &field, Text, errors);
        let reserved = RESERVED.contains(&name.as_str())
            || name.starts_with("google.")
            || name.starts_with("gcm.");
        if reserved || name.is_empty() {
            let found = if reserved { "a reserved name" } else { "an empty name" };
            let allowed =
                "another name: FCM reserves from, message_type, collapse_key, google.* and gcm.*";
            errors.push(FieldError::new(field, found, allowed));
        }
    }
}

fn check_headers(headers: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (name, value) in headers {
        let field = format!("{path}.{}", short(name));
        check_value(value, &field, Text, errors);
        if value.as_str().is_some_and(|text| text.chars().any(char::is_control)) {
            errors.push(FieldError::new(field, "a control character", "one line of text"));
        }
    }
}

fn is_ttl(text: &str) -> bool {
    seconds(text).is_some_and(|ttl| ttl.as_secs_f64() <= f64::from(TRAITS.ttl_s_max))
}

fn is_spelling_of(name: &str, camel: &str) -> bool {
    let snake = camel.chars().flat_map(|c| {
        let underscore = c.is_ascii_uppercase().then_some('_');
        underscore.into_iter().chain([c.to_ascii_lowercase()])
    });
    name == camel || name.chars().eq(snake)
}

fn short(name: &str) -> String {
    name.chars().take(64).collect()
}

//! The names and types of FCM's `Message`, in both spellings, and the errors of Google's JSON parser. Knows no other
//! rule of FCM.

use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy)]
enum ProtoType {
    Text,
    Flag,
    /// `map<string, string>`
    Texts,
    /// Anything that is an object.
    Free,
    Message(&'static [(&'static str, ProtoType)]),
}

use ProtoType::{Flag, Free, Message, Text, Texts};

const OPTIONS: ProtoType = Message(&[("analyticsLabel", Text)]);
const MESSAGE: &[(&str, ProtoType)] = &[
    ("name", Text),
    ("token", Text),
    ("fid", Text),
    ("topic", Text),
    ("condition", Text),
    ("data", Texts),
    ("notification", Message(&[("title", Text), ("body", Text), ("image", Text)])),
    (
        "android",
        Message(&[
            ("collapseKey", Text),
            ("priority", Text),
            ("ttl", Text),
            ("restrictedPackageName", Text),
            ("data", Texts),
            ("notification", Free),
            ("fcmOptions", OPTIONS),
            ("directBootOk", Flag),
            ("bandwidthConstrainedOk", Flag),
            ("restrictedSatelliteOk", Flag),
        ]),
    ),
    (
        "webpush",
        Message(&[
            ("headers", Texts),
            ("data", Texts),
            ("notification", Free),
            ("fcmOptions", Message(&[("link", Text), ("analyticsLabel", Text)])),
        ]),
    ),
    (
        "apns",
        Message(&[
            ("headers", Texts),
            ("payload", Free),
            ("fcmOptions", Message(&[("analyticsLabel", Text), ("image", Text)])),
            ("liveActivityToken", Text),
        ]),
    ),
    ("fcmOptions", OPTIONS),
];

/// The wrong field and the parser's message.
pub(super) type ProtoError = (String, String);

pub(super) fn find_error(message: &Map<String, Value>) -> Option<ProtoError> {
    object("message", message, MESSAGE)
}

fn object(path: &str, of: &Map<String, Value>, known: &[(&str, ProtoType)]) -> Option<ProtoError> {
    of.iter().find_map(|(name, value)| {
        let camel = camel_case(name);
        let Some((_, kind)) = known.iter().find(|(known, _)| *known == camel) else {
            let error = format!("Unknown name \"{name}\" at '{path}': Cannot find field.");
            return Some((path.to_owned(), format!("Invalid JSON payload received. {error}")));
        };
        typed(&format!("{path}.{name}"), value, *kind)
    })
}

fn typed(path: &str, value: &Value, kind: ProtoType) -> Option<ProtoError> {
    let wrong = |path: &str, kind: &str, value: &Value| {
        let error = format!("Invalid value at '{path}' ({kind}), {value}");
        Some((path.to_owned(), error))
    };
    match (kind, value) {
        (_, Value::Null) | (Text, Value::String(_)) | (Flag, Value::Bool(_)) => None,
        (Free, Value::Object(_)) => None,
        (Message(known), Value::Object(fields)) => object(path, fields, known),
        (Texts, Value::Object(fields)) => {
            fields.iter().find(|(_, value)| !value.is_string()).and_then(|(name, value)| {
                wrong(&format!("{path}[{name}].value"), "TYPE_STRING", value)
            })
        }
        (Text, _) => wrong(path, "TYPE_STRING", value),
        (Flag, _) => wrong(path, "TYPE_BOOL", value),
        (Texts | Free | Message(_), _) => {
            let error = format!("Invalid JSON payload received. '{path}' is not an object.");
            Some((path.to_owned(), error))
        }
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|c| c.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error_of(message: Value) -> Option<String> {
        find_error(message.as_object().unwrap()).map(|(_, error)| error)
    }

    #[test]
    fn names_and_types_are_google_s_in_either_spelling() {
        assert_eq!(
            error_of(json!({"token": "x", "android": {"collapse_key": "k", "directBootOk": true}})),
            None
        );
        assert_eq!(
            error_of(json!({"android": {"prio": "HIGH"}})).unwrap(),
            "Invalid JSON payload received. Unknown name \"prio\" at 'message.android': Cannot find field."
        );
        assert_eq!(
            error_of(json!({"apns": {"headers": {"apns-priority": 5}}})).unwrap(),
            "Invalid value at 'message.apns.headers[apns-priority].value' (TYPE_STRING), 5"
        );
        assert!(error_of(json!({"notification": "x"})).is_some());
    }
}

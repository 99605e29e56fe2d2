//! FCM's `Message` as Google's parser of JSON sees it: which names there are, of which type, in both
//! spellings. What is wrong is told in that parser's words. Knows no rule of FCM beyond types.

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

/// The field that is wrong, and what the parser says of it.
pub(super) type ProtoError = (String, String);

pub(super) fn misfit(message: &Map<String, Value>) -> Option<ProtoError> {
    object("message", message, MESSAGE)
}

fn object(path: &str, of: &Map<String, Value>, known: &[(&str, ProtoType)]) -> Option<ProtoError> {
    of.iter().find_map(|(name, value)| {
        let camel = camel_case(name);
        let Some((_, kind)) = known.iter().find(|(known, _)| *known == camel) else {
            let told = format!("Unknown name \"{name}\" at '{path}': Cannot find field.");
            return Some((path.to_owned(), format!("Invalid JSON payload received. {told}")));
        };
        typed(&format!("{path}.{name}"), value, *kind)
    })
}

fn typed(path: &str, value: &Value, kind: ProtoType) -> Option<ProtoError> {
    let wrong = |path: &str, kind: &str, value: &Value| {
        let told = format!("Invalid value at '{path}' ({kind}), {value}");
        Some((path.to_owned(), told))
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
            let told = format!("Invalid JSON payload received. '{path}' is not an object.");
            Some((path.to_owned(), told))
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

    fn told(message: Value) -> Option<String> {
        misfit(message.as_object().unwrap()).map(|(_, told)| told)
    }

    #[test]
    fn names_and_types_are_google_s_in_either_spelling() {
        assert_eq!(
            told(json!({"token": "x", "android": {"collapse_key": "k", "directBootOk": true}})),
            None
        );
        assert_eq!(
            told(json!({"android": {"prio": "HIGH"}})).unwrap(),
            "Invalid JSON payload received. Unknown name \"prio\" at 'message.android': Cannot find field."
        );
        assert_eq!(
            told(json!({"apns": {"headers": {"apns-priority": 5}}})).unwrap(),
            "Invalid value at 'message.apns.headers[apns-priority].value' (TYPE_STRING), 5"
        );
        assert!(told(json!({"notification": "x"})).is_some());
    }
}

//! What a channel would send, for people who look at a content before they send it. Pure: the renderers
//! that send also make the preview, without a target and without a time.

use postrider_core::model::content::Content;
use serde_json::{Map, Value, json};

/// A content as one channel sends it.
#[derive(Debug, Clone, PartialEq)]
pub struct ContentPreview {
    /// What is sent, by the names of the channel's parts.
    pub parts: Map<String, Value>,
    pub bytes: usize,
    /// What the provider takes, where it counts bytes.
    pub bytes_max: Option<usize>,
}

impl ContentPreview {
    pub(crate) fn new(parts: Value, bytes: usize, bytes_max: Option<usize>) -> Self {
        let parts = match parts {
            Value::Object(parts) => parts,
            other => Map::from_iter([("body".to_owned(), other)]),
        };
        Self { parts, bytes, bytes_max }
    }

    /// A body and nothing else, of any length.
    pub(crate) fn body(text: &str) -> Self {
        let body: Value = serde_json::from_str(text).unwrap_or_else(|_| text.into());
        Self::new(json!({ "body": body }), text.len(), None)
    }
}

/// The fields that every channel renders.
pub(crate) fn common_fields(content: &Content<'_>) -> Value {
    let mut fields = Map::new();
    for (name, text) in [("title", &content.title), ("body", &content.body), ("url", &content.url)]
    {
        if let Some(text) = text {
            fields.insert(name.to_owned(), Value::from(&**text));
        }
    }
    if let Some(data) = content.data.and_then(|raw| serde_json::from_str(raw.get()).ok()) {
        fields.insert("data".to_owned(), data);
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::definition;
    use postrider_core::ChannelKind;

    const CONTENT: &str =
        r#"{"title":"Shipped","body":"Order 91 €","url":"https://a.example","data":{"n":1}}"#;

    fn parts(kind: ChannelKind) -> Value {
        let content = Content::parse(CONTENT).unwrap();
        let preview = definition(kind).unwrap().preview(&content).unwrap();
        assert!(preview.bytes > 0 && preview.bytes <= preview.bytes_max.unwrap_or(usize::MAX));
        Value::Object(preview.parts)
    }

    #[test]
    fn every_channel_shows_what_it_sends() {
        let sms = parts(crate::sms::KIND);
        assert_eq!((&sms["encoding"], &sms["segments"]), (&json!("gsm7"), &json!(1)));
        assert_eq!(sms["text"], "Shipped\nOrder 91 €\nhttps://a.example");
        assert_eq!(parts(crate::email::KIND)["subject"], "Shipped");
        assert_eq!(parts(crate::apns::KIND)["payload"]["aps"]["alert"]["title"], "Shipped");
        assert_eq!(parts(crate::fcm::KIND)["message"]["notification"]["title"], "Shipped");
        assert_eq!(parts(crate::chat::KIND)["discord"]["embeds"][0]["title"], "Shipped");
        assert_eq!(parts(crate::webhook::KIND)["body"]["content"]["data"]["n"], 1);
        assert_eq!(parts(crate::http::KIND)["body"]["title"], "Shipped");
        assert_eq!(parts(crate::webpush::KIND)["body"]["url"], "https://a.example");
    }
}

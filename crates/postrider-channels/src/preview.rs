//! What each channel would make of a content, for people who look at it before they send it. Pure: the
//! same renderers that send, without a target and without a time.

use postrider_core::ChannelKind;
use postrider_core::model::content::{Content, raw_bytes};
use postrider_core::policy::segments::{self, SmsEncoding};
use serde_json::{Map, Value, json};

use crate::chat::{self, Flavour};
use crate::{apns, email, fcm, sms, webpush};

/// A content as one channel sends it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// What is sent, by the names of the channel's parts.
    pub parts: Map<String, Value>,
    pub bytes: usize,
    /// What the provider takes, where it counts bytes.
    pub bytes_max: Option<usize>,
}

impl Shown {
    fn new(parts: Value, bytes: usize, bytes_max: Option<usize>) -> Self {
        let parts = match parts {
            Value::Object(parts) => parts,
            other => Map::from_iter([("body".to_owned(), other)]),
        };
        Self { parts, bytes, bytes_max }
    }

    /// A body by itself.
    fn body(text: &str, bytes_max: Option<usize>) -> Self {
        let body: Value = serde_json::from_str(text).unwrap_or_else(|_| text.into());
        Self::new(json!({ "body": body }), text.len(), bytes_max)
    }
}

/// Nothing where the channel could not send it at all; the intake says why.
pub fn shown(kind: ChannelKind, content: &Content<'_>) -> Option<Shown> {
    match kind {
        ChannelKind::Email => Some(of_email(content)),
        ChannelKind::Sms => Some(of_sms(content)),
        ChannelKind::Webpush => Some(of_webpush(content)),
        ChannelKind::Fcm => of_fcm(content),
        ChannelKind::Apns => of_apns(content),
        ChannelKind::Chat => Some(of_chat(content)),
        ChannelKind::Webhook => of_webhook(content),
        ChannelKind::Http => of_http(content),
    }
}

fn of_email(content: &Content<'_>) -> Shown {
    let mail = email::render(content);
    let html = mail.html.as_deref();
    let bytes = mail.text.len() + html.map_or(0, str::len);
    let parts = json!({"subject": mail.subject, "text": mail.text, "html": html});
    Shown::new(parts, bytes, None)
}

fn of_sms(content: &Content<'_>) -> Shown {
    let text = sms::render(content);
    let size = segments::of(&text);
    let encoding = match size.encoding {
        SmsEncoding::Gsm7 => "gsm7",
        SmsEncoding::Ucs2 => "ucs2",
    };
    let parts =
        json!({"text": text, "encoding": encoding, "units": size.units, "segments": size.count});
    Shown::new(parts, text.len(), None)
}

fn of_webpush(content: &Content<'_>) -> Shown {
    let bytes = webpush::plaintext_len(content);
    let parts = match content.webpush.as_ref().and_then(|own| own.raw.as_deref()) {
        Some(raw) => json!({ "body": raw }),
        None => json!({ "body": common(content) }),
    };
    Shown::new(parts, bytes, Some(webpush::PLAINTEXT_MAX))
}

fn of_fcm(content: &Content<'_>) -> Option<Shown> {
    let message = fcm::render::draft(content).ok()?;
    let bytes = fcm::render::payload_len(&message);
    Some(Shown::new(json!({ "message": message }), bytes, Some(fcm::render::PAYLOAD_MAX)))
}

fn of_apns(content: &Content<'_>) -> Option<Shown> {
    let draft = apns::render::draft(content).ok()?;
    let payload: Value = serde_json::from_slice(&draft.payload).unwrap_or_default();
    let parts = json!({"payload": payload, "push_type": draft.push_type.name});
    Some(Shown::new(parts, draft.payload.len(), Some(draft.push_type.payload_max())))
}

fn of_chat(content: &Content<'_>) -> Shown {
    if let Some(payload) = content.chat.as_ref().and_then(|own| own.payload) {
        return Shown::body(&raw_bytes(payload), None);
    }
    let (slack, discord) = (Flavour::Slack, Flavour::Discord);
    let parts = json!({
        "slack": chat::render(slack, content),
        "discord": chat::render(discord, content),
        "teams": chat::render(Flavour::Teams, content),
    });
    let bytes = parts["slack"].to_string().len();
    Shown::new(parts, bytes, None)
}

fn of_webhook(content: &Content<'_>) -> Option<Shown> {
    if let Some(payload) = content.webhook.as_ref().and_then(|own| own.payload) {
        return Some(Shown::body(&raw_bytes(payload), None));
    }
    let body =
        json!({"type": "message", "id": "msg_…", "delivery": "dlv_…", "content": common(content)});
    Some(Shown::body(&body.to_string(), None))
}

fn of_http(content: &Content<'_>) -> Option<Shown> {
    if let Some(body) = content.http.as_ref().and_then(|own| own.body) {
        return Some(Shown::body(&raw_bytes(body), None));
    }
    match content.is_bare() {
        true => Some(Shown::body("", None)),
        false => Some(Shown::body(&common(content).to_string(), None)),
    }
}

/// The fields that every channel renders.
fn common(content: &Content<'_>) -> Value {
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

    const CONTENT: &str =
        r#"{"title":"Shipped","body":"Order 91 €","url":"https://a.example","data":{"n":1}}"#;

    fn parts(kind: ChannelKind) -> Value {
        let content = Content::parse(CONTENT).unwrap();
        let shown = shown(kind, &content).unwrap();
        assert!(shown.bytes > 0 && shown.bytes <= shown.bytes_max.unwrap_or(usize::MAX));
        Value::Object(shown.parts)
    }

    #[test]
    fn every_channel_shows_what_it_sends() {
        let sms = parts(ChannelKind::Sms);
        assert_eq!((&sms["encoding"], &sms["segments"]), (&json!("gsm7"), &json!(1)));
        assert_eq!(sms["text"], "Shipped\nOrder 91 €\nhttps://a.example");
        assert_eq!(parts(ChannelKind::Email)["subject"], "Shipped");
        assert_eq!(parts(ChannelKind::Apns)["payload"]["aps"]["alert"]["title"], "Shipped");
        assert_eq!(parts(ChannelKind::Fcm)["message"]["notification"]["title"], "Shipped");
        assert_eq!(parts(ChannelKind::Chat)["discord"]["embeds"][0]["title"], "Shipped");
        assert_eq!(parts(ChannelKind::Webhook)["body"]["content"]["data"]["n"], 1);
        assert_eq!(parts(ChannelKind::Http)["body"]["title"], "Shipped");
        assert_eq!(parts(ChannelKind::Webpush)["body"]["url"], "https://a.example");
    }
}

//! What a message says: common fields that every channel renders, and per channel an override that
//! wins. Kept as JSON text; parsed by borrowing when it is needed.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::json_fields::object_or_null;
use crate::ports::channel::FieldError;

/// A message's content, borrowing from its JSON text.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a RawValue>,
    #[serde(
        borrow,
        default,
        deserialize_with = "object_or_null",
        skip_serializing_if = "Option::is_none"
    )]
    pub webpush: Option<WebpushContent<'a>>,
    #[serde(
        borrow,
        default,
        deserialize_with = "object_or_null",
        skip_serializing_if = "Option::is_none"
    )]
    pub webhook: Option<WebhookContent<'a>>,
    #[serde(
        borrow,
        default,
        deserialize_with = "object_or_null",
        skip_serializing_if = "Option::is_none"
    )]
    pub http: Option<HttpContent<'a>>,
    #[serde(
        borrow,
        default,
        deserialize_with = "object_or_null",
        skip_serializing_if = "Option::is_none"
    )]
    pub fcm: Option<FcmContent<'a>>,
    #[serde(
        borrow,
        default,
        deserialize_with = "object_or_null",
        skip_serializing_if = "Option::is_none"
    )]
    pub apns: Option<ApnsContent<'a>>,
    #[serde(
        borrow,
        default,
        deserialize_with = "object_or_null",
        skip_serializing_if = "Option::is_none"
    )]
    pub email: Option<EmailContent<'a>>,
    #[serde(
        borrow,
        default,
        deserialize_with = "object_or_null",
        skip_serializing_if = "Option::is_none"
    )]
    pub sms: Option<SmsContent<'a>>,
    #[serde(
        borrow,
        default,
        deserialize_with = "object_or_null",
        skip_serializing_if = "Option::is_none"
    )]
    pub chat: Option<ChatContent<'a>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebpushContent<'a> {
    /// The plaintext as it is encrypted, byte for byte; empty for a push without a body.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookContent<'a> {
    /// Replaces the webhook's body: a string byte for byte, anything else as the JSON text it came in.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<&'a RawValue>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpContent<'a> {
    /// The request's body: a string byte for byte, anything else as the JSON text it came in.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub body: Option<&'a RawValue>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FcmContent<'a> {
    /// A `Message` of FCM HTTP v1 without its target; `android.ttl` and `collapseKey` are added where it
    /// has none.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a RawValue>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApnsContent<'a> {
    /// The JSON object that Apple gets, `aps` included, as it came in.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<&'a RawValue>,
    /// `apns-push-type`; told from the payload where it is missing.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub push_type: Option<Cow<'a, str>>,
    /// `apns-priority`: 10, 5 or 1; by push type and class where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmailContent<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub html: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
    /// Where answers go; the account's own if absent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Cow<'a, str>>,
    /// Takes the POST of a one-click unsubscription (RFC 8058); the account's own if absent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub unsubscribe_url: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub unsubscribe_mailto: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmsContent<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatContent<'a> {
    /// Replaces the body that is posted: a string byte for byte, anything else as the JSON text it
    /// came in.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<&'a RawValue>,
}

impl<'a> Content<'a> {
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Whether any channel has a part of its own.
    pub fn has_overrides(&self) -> bool {
        self.webpush.is_some()
            || self.webhook.is_some()
            || self.http.is_some()
            || self.fcm.is_some()
            || self.apns.is_some()
            || self.email.is_some()
            || self.sms.is_some()
            || self.chat.is_some()
    }

    /// What every channel renders; the channels' own parts are none of a receiver's business.
    pub fn into_common(self) -> Self {
        let Self { title, body, url, data, .. } = self;
        Self { title, body, url, data, ..Self::default() }
    }

    /// The common data for those who have to take it apart; null where there is none.
    pub fn data_value(&self) -> Result<Value, FieldError> {
        let read = |raw: &RawValue| {
            serde_json::from_str(raw.get()).map_err(|_| {
                let found = "numbers or characters that nobody can read";
                FieldError::new("data", found, "numbers within bounds and whole characters")
            })
        };
        self.data.map_or(Ok(Value::Null), read)
    }

    /// Nothing in the common fields.
    pub fn is_bare(&self) -> bool {
        self.title.is_none() && self.body.is_none() && self.url.is_none() && self.data.is_none()
    }
}

/// A raw JSON value as the bytes of a request: a string's own text, anything else as it stands.
pub fn raw_bytes(value: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<Cow<'_, str>>(value.get()) {
        Ok(Cow::Borrowed(text)) => Cow::Borrowed(text),
        Ok(Cow::Owned(text)) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(value.get()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_payload_is_taken_byte_for_byte_and_json_as_it_stands() {
        let text = r#"{"webhook":{"payload":"{\"a\": 1}\n"},"http":{"body":{"a": [1,  2]}}}"#;
        let content = Content::parse(text).unwrap();
        let payload = content.webhook.and_then(|w| w.payload).unwrap();
        let body = content.http.and_then(|h| h.body).unwrap();
        assert_eq!(raw_bytes(payload), "{\"a\": 1}\n");
        assert_eq!(raw_bytes(body), r#"{"a": [1,  2]}"#);
    }

    #[test]
    fn an_unknown_field_is_an_error_that_names_it() {
        let error = Content::parse(r#"{"titel":"x"}"#).unwrap_err().to_string();
        assert!(error.contains("titel"), "{error}");
    }
}

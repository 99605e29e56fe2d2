//! Checks the URL of a chat webhook, and what is posted to it.

use postrider_core::model::content::{Content, raw_bytes};
use postrider_core::{ChannelIntake, CheckedAddress, FieldError, Target, model::json_fields};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{ChatContent, ChatHosts, ChatTarget, flaw};
use crate::address::{NetworkPolicy, check_url, is_blank, read};
use crate::definition::intake_of;
use crate::target::checked;

/// More than any of the services accepts.
const PAYLOAD_MAX: usize = 256 * 1024;

pub struct ChatIntake {
    pub policy: NetworkPolicy,
    pub hosts: ChatHosts,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatAddressRequest {
    #[serde(rename = "channel")]
    _channel: String,
    url: String,
}

impl ChannelIntake for ChatIntake {
    intake_of!(ChatTarget);

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        let written: ChatAddressRequest = read(json, "url")?;
        check_url("url", &written.url, self.policy)?;
        Ok(checked(ChatTarget { url: written.url.into() }))
    }

    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let words = [&content.title, &content.body, &content.url];
        if let Some(payload) = ChatContent::of(content)?.payload {
            read_payload(payload)?;
        } else if words.into_iter().flatten().all(|text| is_blank(text)) {
            let allowed = "title, body or url, or chat.payload";
            return Err(FieldError::new("body", "nothing to say", allowed).into());
        }
        Ok(())
    }

    fn check_for(&self, target: &Target, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let Some(payload) = ChatContent::of(content)?.payload else { return Ok(()) };
        let (value, len) = read_payload(payload)?;
        let flaw = flaw(self.hosts.of(&self.locator(target)), &value, len);
        flaw.map_or(Ok(()), |error| Err(error.into()))
    }

    fn own_body<'a>(&self, content: &Content<'a>) -> Option<&'a RawValue> {
        ChatContent::of(content).ok()?.payload
    }
}

/// The body that is posted, and its length. All services accept only objects.
fn read_payload(payload: &RawValue) -> Result<(Value, usize), FieldError> {
    let text = raw_bytes(payload);
    let wrong = |found: &str, allowed: &str| FieldError::new("chat.payload", found, allowed);
    if text.len() > PAYLOAD_MAX {
        return Err(wrong(&format!("{} bytes", text.len()), "at most 262144 bytes"));
    }
    let allowed = "a JSON object that the chat service accepts";
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_)) => Ok((value, text.len())),
        Ok(other) => Err(wrong(json_fields::kind(&other), allowed)),
        Err(_) if text.is_empty() => Err(wrong("an empty text", allowed)),
        Err(_) => Err(wrong("a text that is not JSON", allowed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_must_be_public_and_something_must_be_said() {
        let intake = ChatIntake { policy: NetworkPolicy::default(), hosts: ChatHosts::default() };
        let target = |url: &str| {
            intake.address(&serde_json::json!({"channel": "chat", "url": url}).to_string())
        };
        assert!(target("https://hooks.slack.com/services/T/B/x").is_ok());
        assert_eq!(target("https://127.0.0.1/x").unwrap_err()[0].field, "url");
        assert_eq!(target("http://hooks.slack.com/x").unwrap_err()[0].found, "http://");
        let check = |json: &str| intake.check(&Content::parse(json).unwrap());
        assert!(check(r#"{"body":"x"}"#).is_ok());
        assert!(check(r#"{"chat":{"payload":{"text":"x"}}}"#).is_ok());
        assert_eq!(check(r#"{"body":" "}"#).unwrap_err()[0].found, "nothing to say");
    }
}

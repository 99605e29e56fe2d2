//! A chat service's incoming webhook: its URL. Pure.

use std::sync::Arc;

use postrider_core::content::{Content, raw_bytes};
use postrider_core::{ChannelKind, FieldError, Intake, Target};
use serde::Deserialize;

use super::{NetworkPolicy, check_url, origin, shape_error};

/// More than any of the services takes.
const PAYLOAD_MAX: usize = 256 * 1024;

pub struct ChatIntake {
    policy: NetworkPolicy,
}

impl ChatIntake {
    pub fn new(policy: NetworkPolicy) -> Self {
        Self { policy }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "channel")]
    _channel: String,
    url: String,
}

impl Intake for ChatIntake {
    fn kind(&self) -> ChannelKind {
        ChannelKind::Chat
    }

    fn target(&self, address: &str) -> Result<Target, Vec<FieldError>> {
        let written: Written = serde_json::from_str(address).map_err(|e| shape_error(&e, "url"))?;
        check_url("url", &written.url, self.policy).map_err(|error| vec![error])?;
        Ok(Target::Chat { url: written.url.into() })
    }

    fn provider(&self, target: &Target) -> Arc<str> {
        origin(target.place())
    }

    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let wrong = |field: &str, found: String, allowed: &str| {
            Err(vec![FieldError::new(field, found, allowed)])
        };
        if let Some(payload) = content.chat.as_ref().and_then(|own| own.payload) {
            let len = raw_bytes(payload).len();
            return match len {
                0 => wrong("chat.payload", "nothing".to_owned(), "what the chat service takes"),
                1..=PAYLOAD_MAX => Ok(()),
                _ => wrong("chat.payload", format!("{len} bytes"), "at most 262144 bytes"),
            };
        }
        let words = [&content.title, &content.body, &content.url];
        if words.into_iter().flatten().all(|text| text.trim().is_empty()) {
            return wrong(
                "body",
                "nothing to say".to_owned(),
                "title, body or url, or chat.payload",
            );
        }
        Ok(())
    }

    fn ttl_s_max(&self) -> u32 {
        super::TTL_S_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_must_be_public_and_something_must_be_said() {
        let intake = ChatIntake::new(NetworkPolicy::default());
        let target = |url: &str| {
            intake.target(&serde_json::json!({"channel": "chat", "url": url}).to_string())
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

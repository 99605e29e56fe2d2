//! A topic's name, and the message that ntfy can show. Pure.

use postrider_core::model::content::Content;
use postrider_core::{ChannelIntake, CheckedAddress, FieldError};
use serde::Deserialize;

use super::{NtfyContent, NtfyTarget, render};
use crate::address::{Serves, is_blank, read};
use crate::definition::intake_of;
use crate::target::checked;

const TOPIC_MAX: usize = 64;
const MESSAGE_MAX: usize = 4_096;
/// A server reads twice its longest message, which includes the topic.
const FIELDS_MAX: usize = 2 * MESSAGE_MAX - 128;

pub struct NtfyIntake {
    pub serves: Serves,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NtfyAddressRequest {
    #[serde(rename = "channel")]
    _channel: String,
    topic: String,
}

impl ChannelIntake for NtfyIntake {
    intake_of!(NtfyTarget, serves);

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        let written: NtfyAddressRequest = read(json, "topic")?;
        check_topic(&written.topic).map_err(|found| {
            let allowed = "a topic of 1 to 64 letters, digits, - and _, without the server";
            vec![FieldError::new("topic", found, allowed)]
        })?;
        Ok(checked(NtfyTarget { topic: written.topic.into() }))
    }

    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let own = NtfyContent::of(content).map_err(|error| vec![error])?;
        let wrong_priority = own.priority.filter(|priority| !(1..=5).contains(priority));
        let field = if own.message.is_some() { "ntfy.message" } else { "body" };
        let draft = render::draft(content, own);
        let len = draft.message.len();
        let len_of_all = serde_json::Value::from(draft.fields).to_string().len();
        let error = if let Some(priority) = wrong_priority {
            FieldError::new("ntfy.priority", priority.to_string(), "1 to 5")
        } else if is_blank(&draft.message) {
            FieldError::new(field, "nothing to say", "ntfy.message, or title, body or url")
        } else if len > MESSAGE_MAX {
            FieldError::new(field, format!("{len} bytes"), "at most 4096 bytes")
        } else if len_of_all > FIELDS_MAX {
            let allowed = format!("at most {FIELDS_MAX} bytes of JSON in all");
            FieldError::new("ntfy", format!("{len_of_all} bytes"), allowed)
        } else {
            return Ok(());
        };
        Err(vec![error])
    }
}

/// The error does not repeat the topic.
fn check_topic(topic: &str) -> Result<(), &'static str> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    match topic.len() {
        0 => Err("nothing"),
        1..=TOPIC_MAX if topic.bytes().all(is_allowed) => Ok(()),
        1..=TOPIC_MAX => Err("other characters"),
        _ => Err("more than 64 characters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::first_error;
    use serde_json::{Value, json};

    fn intake() -> NtfyIntake {
        NtfyIntake { serves: std::sync::Arc::new(|_| true) }
    }

    #[test]
    fn a_topic_has_64_characters_at_most_and_is_never_repeated() {
        let address =
            |topic: &str| intake().address(&json!({"channel": "ntfy", "topic": topic}).to_string());
        for topic in ["a", "Shop_News-1", &"x".repeat(64)] {
            let read = address(topic).unwrap();
            assert_eq!((read.locator.as_str(), &*read.provider), (topic, "ntfy"));
            let stored = format!(r#"{{"channel":"ntfy","topic":"{topic}"}}"#);
            assert_eq!(read.target.as_json(), stored);
        }
        for topic in ["", "ntfy.sh/shop", "shop news", "shöp", &"x".repeat(65)] {
            let error = address(topic).unwrap_err().remove(0);
            assert_eq!(error.field, "topic");
            assert!(topic.is_empty() || !error.found.contains(topic), "{error:?}");
        }
    }

    #[test]
    fn a_message_has_1_to_4096_bytes_and_a_priority_of_1_to_5() {
        let check = |content: Value| first_error(&intake(), &content);
        let is = |field: &str, found: &str| Err((field.to_owned(), found.to_owned()));
        let own = |own: Value| json!({"title": "x", "ntfy": own});
        assert_eq!(check(json!({"body": "x".repeat(4096)})), Ok(()));
        assert_eq!(check(json!({"body": "ü".repeat(2049)})), is("body", "4098 bytes"));
        assert_eq!(check(json!({"body": " "})), is("body", "nothing to say"));
        assert_eq!(check(own(json!({"message": ""}))), is("ntfy.message", "nothing to say"));
        assert_eq!(check(own(json!({"priority": 5}))), Ok(()));
        assert_eq!(check(own(json!({"priority": 6}))), is("ntfy.priority", "6"));
        let large = check(own(json!({"message": "x", "title": "x".repeat(8100)})));
        assert_eq!(large.unwrap_err().0, "ntfy");
    }
}

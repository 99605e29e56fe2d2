//! A chat's id, and the text that Telegram can show. Pure.

use postrider_core::model::content::Content;
use postrider_core::{ChannelIntake, CheckedAddress, FieldError};
use serde::Deserialize;

use super::{TelegramContent, TelegramTarget, render};
use crate::address::{Serves, is_blank, read};
use crate::definition::intake_of;
use crate::target::checked;

const TEXT_MAX: usize = 4_096;
/// With markup, which Telegram does not count.
const MARKED_UP_MAX: usize = 4 * TEXT_MAX;
const CHAT_ALLOWED: &str = "a chat's number, e.g. 123456789 or -1001234567890, or a public name: @ and 5 to 32 letters, \
                            digits and _";

pub struct TelegramIntake {
    pub serves: Serves,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TelegramAddressRequest {
    #[serde(rename = "channel")]
    _channel: String,
    chat_id: ChatIdRequest,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number or a text")]
enum ChatIdRequest {
    Number(i64),
    Text(String),
}

impl ChannelIntake for TelegramIntake {
    intake_of!(TelegramTarget, serves);

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        let written: TelegramAddressRequest = read(json, "chat_id")?;
        let chat_id = match written.chat_id {
            ChatIdRequest::Number(number) => read_chat(&number.to_string()),
            ChatIdRequest::Text(text) => read_chat(text.trim()),
        };
        let chat_id =
            chat_id.map_err(|found| vec![FieldError::new("chat_id", found, CHAT_ALLOWED)])?;
        let target = TelegramTarget { chat_id: chat_id.into(), moved_to: None };
        Ok(checked(target))
    }

    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let own = TelegramContent::of(content).map_err(|error| vec![error])?;
        let field = if own.text.is_some() { "telegram.text" } else { "body" };
        if own.parse_mode.is_some() && own.text.is_none() {
            let found = "a parse_mode without telegram.text";
            let allowed = "a text that is marked up, in telegram.text";
            return Err(vec![FieldError::new("telegram.parse_mode", found, allowed)]);
        }
        let max = if own.parse_mode.is_some() { MARKED_UP_MAX } else { TEXT_MAX };
        let text = render::draft(content, own).text;
        let (found, allowed) = match text.chars().count() {
            _ if is_blank(&text) => {
                ("nothing to say".to_owned(), "telegram.text, or title, body or url".to_owned())
            }
            len if len <= max => return Ok(()),
            len => (format!("{len} characters"), format!("at most {max} characters")),
        };
        Err(vec![FieldError::new(field, found, allowed)])
    }
}

/// The id as it is stored. The error does not repeat it.
fn read_chat(text: &str) -> Result<String, &'static str> {
    if let Some(name) = text.strip_prefix('@') {
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        return match name.len() {
            5..=32 if name.bytes().all(is_allowed) => Ok(text.to_ascii_lowercase()),
            5..=32 => Err("a name with other characters"),
            _ => Err("a name that is too short or too long"),
        };
    }
    match text.parse::<i64>() {
        Ok(0) => Err("0"),
        Ok(number) => Ok(number.to_string()),
        Err(_) => Err("neither a number nor a name with @"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::first_error;
    use serde_json::{Value, json};

    fn intake() -> TelegramIntake {
        TelegramIntake { serves: std::sync::Arc::new(|_| true) }
    }

    fn address(chat_id: Value) -> Result<CheckedAddress, Vec<FieldError>> {
        intake().address(&json!({"channel": "telegram", "chat_id": chat_id}).to_string())
    }

    #[test]
    fn a_chat_is_a_number_or_a_public_name() {
        for (written, stored) in [
            (json!(123_456_789), "123456789"),
            (json!(-1_001_234_567_890_i64), "-1001234567890"),
            (json!(" -100 ".trim()), "-100"),
            (json!("@Shop_News"), "@shop_news"),
        ] {
            let read = address(written).unwrap();
            assert_eq!((read.locator.as_str(), &*read.provider), (stored, "telegram"));
            assert_eq!(
                read.target.as_json(),
                format!(r#"{{"channel":"telegram","chat_id":"{stored}"}}"#)
            );
        }
        for written in [json!(0), json!("shop_news"), json!("@abc"), json!("@shop news"), json!("")]
        {
            let error = address(written.clone()).unwrap_err().remove(0);
            assert_eq!(error.field, "chat_id", "{written}");
            assert!(error.found == "0" || !error.found.contains("shop"), "{error:?}");
        }
        assert!(address(json!(true)).is_err());
    }

    #[test]
    fn a_text_has_1_to_4096_characters_and_markup_is_not_counted() {
        let check = |content: Value| first_error(&intake(), &content);
        let is = |field: &str, found: &str| Err((field.to_owned(), found.to_owned()));
        assert_eq!(check(json!({"body": "ü".repeat(4096)})), Ok(()));
        assert_eq!(check(json!({"body": "x".repeat(4097)})), is("body", "4097 characters"));
        assert_eq!(check(json!({"body": " "})), is("body", "nothing to say"));
        let own = |own: Value| json!({"title": "x", "telegram": own});
        assert_eq!(check(own(json!({"text": ""}))), is("telegram.text", "nothing to say"));
        let marked_up = json!({"text": "x".repeat(5000), "parse_mode": "HTML"});
        assert_eq!(check(own(marked_up)), Ok(()));
        let without = "a parse_mode without telegram.text";
        assert_eq!(check(own(json!({"parse_mode": "HTML"}))), is("telegram.parse_mode", without));
        let unknown = json!({"telegram": {"parse_mode": "BBCode"}}).to_string();
        let unknown = Content::parse(&unknown).unwrap();
        assert!(intake().check(&unknown).is_err());
    }
}

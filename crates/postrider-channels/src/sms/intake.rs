//! Checks a phone number, and the text of a message.

use postrider_core::model::content::Content;
use postrider_core::{ChannelIntake, CheckedAddress, FieldError};
use serde::Deserialize;

use super::{SmsContent, SmsTarget, render};
use crate::address::{Serves, is_blank, read};
use crate::definition::intake_of;
use crate::target::checked;

/// The longest text that gateways accept.
const TEXT_MAX: usize = 1_600;

pub struct SmsIntake {
    pub serves: Serves,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SmsAddressRequest {
    #[serde(rename = "channel")]
    _channel: String,
    phone: String,
}

impl ChannelIntake for SmsIntake {
    intake_of!(SmsTarget, serves);

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        let written: SmsAddressRequest = read(json, "phone")?;
        let phone = normalise(&written.phone).map_err(|found| {
            let allowed = "a number in E.164: a plus sign, the country's code and the rest, 7 to 15 \
                           digits in all, e.g. +4915112345678";
            FieldError::new("phone", found, allowed)
        })?;
        Ok(checked(SmsTarget { phone: phone.into() }))
    }

    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let own = SmsContent::of(content)?;
        let field = if own.text.is_some() { "sms.text" } else { "body" };
        let text = render(content, own);
        let odd = |c: &char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        let len = text.chars().count();
        let error = if is_blank(&text) {
            FieldError::new(field, "nothing to say", "sms.text, or title, body or url")
        } else if let Some(c) = text.chars().find(odd) {
            let found = format!("the control character U+{:04X}", u32::from(c));
            FieldError::new(field, found, "text without control characters")
        } else if len > TEXT_MAX {
            FieldError::new(field, format!("{len} characters"), "at most 1600 characters")
        } else {
            return Ok(());
        };
        Err(error.into())
    }
}

/// The number without the characters that people write between digits. The error never repeats it.
fn normalise(phone: &str) -> Result<String, &'static str> {
    let number: String = phone.trim().chars().filter(|c| !" -().\u{a0}".contains(*c)).collect();
    let digits = number.strip_prefix('+').ok_or("no plus sign at the beginning")?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("something that is no digit");
    }
    match digits.len() {
        0..=6 => Err("too few digits"),
        7..=15 if digits.starts_with('0') => Err("a zero behind the plus sign"),
        7..=15 => Ok(number),
        _ => Err("more than 15 digits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intake() -> SmsIntake {
        SmsIntake { serves: std::sync::Arc::new(|_| true) }
    }

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for written in ["+4915112345678", "+49 151 1234-5678", " +49 (151) 123.45678 "] {
            let json = serde_json::json!({"channel": "sms", "phone": written}).to_string();
            let read = intake().address(&json).unwrap();
            assert_eq!(read.locator, "+4915112345678");
            assert_eq!(read.target.as_json(), r#"{"channel":"sms","phone":"+4915112345678"}"#);
        }
    }

    #[test]
    fn what_is_no_number_is_refused_and_never_repeated() {
        for bad in
            ["", "015112345678", "+49", "+0015112345678", "+1234567890123456", "+49151abc4567"]
        {
            let json = serde_json::json!({"channel": "sms", "phone": bad}).to_string();
            let errors = intake().address(&json).unwrap_err();
            assert_eq!(errors[0].field, "phone");
            assert!(errors[0].allowed.contains("E.164"));
            assert!(bad.is_empty() || !errors[0].found.contains(bad));
        }
    }

    #[test]
    fn an_empty_or_long_text_is_refused() {
        let check = |json: &str| intake().check(&Content::parse(json).unwrap());
        assert!(check(r#"{"sms":{"text":"hi"}}"#).is_ok());
        assert_eq!(check(r#"{"sms":{"text":" "}}"#).unwrap_err()[0].field, "sms.text");
        assert_eq!(check("{}").unwrap_err()[0].field, "body");
        let long = format!(r#"{{"body":"{}"}}"#, "ü".repeat(1601));
        assert_eq!(check(&long).unwrap_err()[0].found, "1601 characters");
        assert!(check(r#"{"body":"a\u0007b"}"#).unwrap_err()[0].found.contains("U+0007"));
    }
}

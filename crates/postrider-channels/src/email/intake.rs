//! Checks an e-mail address, and the content of a mail. Only the server knows whether the mailbox exists.

use postrider_core::model::content::Content;
use postrider_core::{ChannelIntake, CheckedAddress, FieldError};
use serde::Deserialize;
use url::Host;

use super::{EmailContent, EmailTarget, is_atext};
use crate::address::{NetworkPolicy, Serves, check_url, is_blank, read};
use crate::definition::intake_of;
use crate::target::checked;

const LOCAL_MAX: usize = 64;
const ADDRESS_MAX: usize = 254;
const NAME_MAX: usize = 200;
const SUBJECT_MAX: usize = 900;
/// Keeps the header's line below 998 octets.
const UNSUBSCRIBE_MAX: usize = 900;
const PARTS_MAX: usize = 5 << 20;

pub struct EmailIntake {
    pub policy: NetworkPolicy,
    pub serves: Serves,
    /// Whether any account can send to letters outside of ASCII before the @.
    pub international: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmailAddressRequest {
    #[serde(rename = "channel")]
    _channel: String,
    email: String,
    name: Option<String>,
}

impl ChannelIntake for EmailIntake {
    intake_of!(EmailTarget, serves);

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        let written: EmailAddressRequest = read(json, "email, and optionally name")?;
        let email = match normalise(&written.email, self.policy.allow_private_targets) {
            Ok(email) if !email.is_ascii() && !self.international => {
                Err("letters outside of ASCII before the @, which no account here can send")
            }
            email => email,
        };
        let name_error =
            written.name.as_ref().and_then(|name| check_line("name", name, NAME_MAX).err());
        match (email, name_error) {
            (Ok(email), None) => {
                let name = written.name.filter(|name| !name.trim().is_empty()).map(Into::into);
                Ok(checked(EmailTarget { email: email.into(), name }))
            }
            (email, name_error) => {
                let email_error = email.err().map(|found| wrong_address("email", found));
                Err(email_error.into_iter().chain(name_error).collect())
            }
        }
    }

    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        let own = EmailContent::of(content)?;
        let subject = own.subject.as_deref();
        let named = subject.map(|text| ("email.subject", text));
        if let Some((field, text)) = named.or(content.title.as_deref().map(|t| ("title", t))) {
            errors.extend(check_line(field, text, SUBJECT_MAX).err());
        }
        let parts = [
            ("email.text", own.text.as_deref()),
            ("email.html", own.html.as_deref()),
            ("body", content.body.as_deref()),
        ];
        let parts = || parts.iter().filter_map(|(field, part)| Some((*field, (*part)?)));
        let said = parts().map(|(_, part)| part).chain(subject).chain(content.title.as_deref());
        if said.into_iter().all(is_blank) {
            let allowed = "title, body, or email.subject with email.text or email.html";
            errors.push(FieldError::new("email", "nothing to say", allowed));
        }
        for (field, _) in parts().filter(|(_, part)| part.contains('\0')) {
            let found = "the control character U+0000";
            errors.push(FieldError::new(field, found, "text without it"));
        }
        let size: usize = parts().map(|(_, part)| part.len()).sum();
        if size > PARTS_MAX {
            let largest = parts().max_by_key(|(_, part)| part.len());
            let field = largest.map_or("email", |(field, _)| field);
            let found = format!("{size} bytes of text and HTML in all");
            errors.push(FieldError::new(field, found, format!("at most {PARTS_MAX} bytes")));
        }
        self.check_addresses(&own, &mut errors);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

impl EmailIntake {
    fn check_addresses(&self, own: &EmailContent<'_>, errors: &mut Vec<FieldError>) {
        for (field, address) in [
            ("email.reply_to", own.reply_to.as_deref()),
            ("email.unsubscribe_mailto", own.unsubscribe_mailto.as_deref()),
        ] {
            // They are written into a header unchanged.
            let wrong = |address: &str| match address.is_ascii() {
                true => normalise(address, self.policy.allow_private_targets).err(),
                false => Some("letters outside of ASCII (a domain can be written as xn--…)"),
            };
            errors.extend(address.and_then(wrong).map(|found| wrong_address(field, found)));
        }
        if let Some(url) = own.unsubscribe_url.as_deref() {
            errors.extend(check_unsubscribe("email.unsubscribe_url", url, self.policy).err());
        }
    }
}

/// Checks a URL for `List-Unsubscribe`: https (RFC 8058), short, and without characters that end its brackets.
pub(super) fn check_unsubscribe(
    field: &str,
    url: &str,
    policy: NetworkPolicy,
) -> Result<(), FieldError> {
    let allowed =
        "an https:// URL of at most 900 printable ASCII characters without < > , or blanks";
    let found = if url.len() > UNSUBSCRIBE_MAX {
        format!("{} bytes", url.len())
    } else if url.contains(['<', '>', ',']) {
        "a bracket or comma".to_owned()
    } else if url.starts_with("http:") {
        "http://".to_owned()
    } else {
        return check_url(field, url, policy).map(|_| ());
    };
    Err(FieldError::new(field, found, allowed))
}

/// Checks a text for one header field.
pub(crate) fn check_line(field: &str, text: &str, max: usize) -> Result<(), FieldError> {
    if let Some(found) = text.chars().find(|c| c.is_control()) {
        let name = match found {
            '\r' | '\n' => "a line break".to_owned(),
            other => format!("the control character U+{:04X}", u32::from(other)),
        };
        return Err(FieldError::new(field, name, "one line of text without control characters"));
    }
    let len = text.chars().count();
    if len > max {
        let allowed = format!("at most {max} characters");
        return Err(FieldError::new(field, format!("{len} characters"), allowed));
    }
    Ok(())
}

fn wrong_address(field: &str, found: &'static str) -> FieldError {
    FieldError::new(field, found, "one address such as ada@example.org, without name or brackets")
}

/// The address with its domain in normal form. The error never repeats the address.
pub(super) fn normalise(address: &str, allow_local: bool) -> Result<String, &'static str> {
    if address.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("a blank, line break or control character");
    }
    if address.chars().any(is_invisible) {
        return Err("an invisible character");
    }
    let (local, domain) = address.rsplit_once('@').ok_or("no @")?;
    let atom =
        |part: &str| !part.is_empty() && part.chars().all(|c| !c.is_ascii() || is_atext(c as u8));
    if local.starts_with('"') {
        return Err("a name in quotes before the @");
    }
    if local.contains('@') {
        return Err("more than one @");
    }
    if local.len() > LOCAL_MAX {
        return Err("more than 64 bytes before the @");
    }
    if !local.split('.').all(atom) {
        return Err("an invalid name before the @");
    }
    // The URL parser would decode %2e.
    if domain.contains('%') {
        return Err("a % after the @");
    }
    let Ok(Host::Domain(domain)) = Host::parse(domain) else {
        return Err("no domain after the @");
    };
    let label = |label: &str| {
        let hyphens = label.starts_with('-') || label.ends_with('-');
        let known = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        (1..=63).contains(&label.len()) && !hyphens && known
    };
    if !domain.split('.').all(label) || !(domain.contains('.') || allow_local) {
        return Err("no domain after the @");
    }
    let address = format!("{local}@{domain}");
    if address.len() > ADDRESS_MAX { Err("more than 254 bytes") } else { Ok(address) }
}

/// Characters that are not shown, or that change the direction of text: they can make one address look like another.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intake() -> EmailIntake {
        EmailIntake {
            policy: NetworkPolicy::default(),
            serves: std::sync::Arc::new(|_| true),
            international: true,
        }
    }

    fn refused(content: &str) -> Vec<(String, String)> {
        let content = Content::parse(content).unwrap();
        let errors = intake().check(&content).err().unwrap_or_default();
        errors.into_iter().map(|e| (e.field, e.found)).collect()
    }

    #[test]
    fn addresses_are_read_and_their_domain_gets_one_spelling() {
        for (written, read) in [
            ("ada@example.org", "ada@example.org"),
            ("Ada.L+x@EXAMPLE.org", "Ada.L+x@example.org"),
            ("a@bücher.example", "a@xn--bcher-kva.example"),
            ("дмитрий@example.org", "дмитрий@example.org"),
            ("o'neil@sub.example.co.uk", "o'neil@sub.example.co.uk"),
        ] {
            assert_eq!(normalise(written, false).as_deref(), Ok(read));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_never_repeated() {
        for bad in [
            "",
            "ada",
            "ada@",
            "@example.org",
            "ada@localhost",
            "a..b@example.org",
            ".a@example.org",
            "a b@example.org",
            "Ada <ada@example.org>",
            "ada@example.org,bob@example.org",
            "ada@example.org\r\nBcc: all@example.org",
            "ada\n@example.org",
            "ada@[127.0.0.1]",
            "ada@127.0.0.1",
            "ada@exa_mple.org",
            "ada@-example.org",
            "a\"b@example.org",
            "<ada@example.org>",
        ] {
            let json = serde_json::json!({"channel": "email", "email": bad}).to_string();
            let errors = intake().address(&json).unwrap_err();
            assert_eq!(errors[0].field, "email", "{bad:?}");
            assert!(bad.len() < 4 || !errors[0].found.contains(bad), "{errors:?}");
        }
        assert!(normalise(&format!("{}@example.org", "a".repeat(65)), false).is_err());
        assert!(normalise("ada@localhost", true).is_ok());
    }

    #[test]
    fn a_header_cannot_be_smuggled_in_by_name_or_subject() {
        let json = r#"{"channel":"email","email":"a@b.example","name":"x\r\nBcc: y@z.example"}"#;
        let errors = intake().address(json).unwrap_err();
        assert_eq!((&*errors[0].field, &*errors[0].found), ("name", "a line break"));
        assert_eq!(
            refused(r#"{"body":"x","email":{"subject":"x\nBcc: y@z.example"}}"#),
            [("email.subject".into(), "a line break".into())]
        );
        assert_eq!(refused(r#"{"title":"x\u0000","body":"y"}"#)[0].0, "title");
        assert_eq!(
            refused(r#"{"title":"x","email":{"reply_to":"a@b.example\r\nX: y"}}"#)[0].0,
            "email.reply_to"
        );
        let url =
            r#"{"title":"x","email":{"unsubscribe_url":"https://a.example/>,<mailto:x@y.z"}}"#;
        assert_eq!(refused(url)[0].0, "email.unsubscribe_url");
        let plain = r#"{"title":"x","email":{"unsubscribe_url":"http://a.example/"}}"#;
        assert_eq!(refused(plain)[0].1, "http://");
    }

    #[test]
    fn an_empty_or_huge_mail_is_refused() {
        assert_eq!(refused(r#"{"url":"https://a.example"}"#)[0].1, "nothing to say");
        let huge = format!(r#"{{"title":"x","body":"{}"}}"#, "x".repeat(PARTS_MAX + 1));
        assert_eq!(refused(&huge)[0].0, "body");
        let long = format!(r#"{{"title":"{}"}}"#, "x".repeat(901));
        assert_eq!(refused(&long), [("title".into(), "901 characters".into())]);
        assert!(refused(r#"{"title":"x"}"#).is_empty());
    }
}

//! Builds a mail: header fields, and a body of text or of text and HTML. A delivery always yields the same bytes, so
//! that a receiver can drop a repeat.

use std::fmt::Write;

use postrider_core::model::time::civil_from_days;
use postrider_core::{DeliveryId, Timestamp};

use super::body::Encoding;
use super::header;

/// An optional name, and an address that was already checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mailbox<'a> {
    pub name: Option<&'a str>,
    pub address: &'a str,
}

/// How a reader unsubscribes (RFC 8058): a URL that takes a POST, or an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    pub url: Option<&'a str>,
    pub mailto: Option<&'a str>,
}

/// The parts of a mail.
#[derive(Debug, Clone)]
pub struct MailDraft<'a> {
    pub delivery: DeliveryId,
    /// When the message was accepted, so that it is the same in every attempt.
    pub date: Timestamp,
    pub from: Mailbox<'a>,
    pub to: Mailbox<'a>,
    pub reply_to: Option<Mailbox<'a>>,
    pub subject: &'a str,
    pub text: &'a str,
    pub html: Option<&'a str>,
    pub unsubscribe: Unsubscribe<'a>,
    pub feedback_id: Option<&'a str>,
}

/// A mail with separate fields, for signing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Name and value. A value may be folded, and has no line break at its end.
    pub fields: Vec<(&'static str, String)>,
    /// Ends with a line break; every line break is CRLF.
    pub body: String,
}

impl MailDraft<'_> {
    pub fn build(&self) -> Mail {
        let mut fields = self.fields();
        let body = match self.html {
            None => single(&mut fields, "text/plain", self.text),
            Some(html) => alternative(&mut fields, self.delivery, self.text, html),
        };
        Mail { fields, body }
    }

    /// All fields except those of the body.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = Vec::with_capacity(14);
        let mailbox =
            |name: &str, m: Mailbox<'_>| header::mailbox(name.len() + 2, m.name, m.address);
        fields.push(("Date", date(self.date)));
        fields.push(("From", mailbox("From", self.from)));
        fields.push(("To", mailbox("To", self.to)));
        if let Some(reply_to) = self.reply_to {
            fields.push(("Reply-To", mailbox("Reply-To", reply_to)));
        }
        fields.push(("Subject", header::unstructured("Subject: ".len(), self.subject)));
        fields.push(("Message-ID", message_id(self.delivery, self.from.address)));
        fields.push(("MIME-Version", "1.0".to_owned()));
        fields.push(("Auto-Submitted", "auto-generated".to_owned()));
        self.push_unsubscribe(&mut fields);
        if let Some(id) = self.feedback_id {
            fields.push(("Feedback-ID", header::unstructured("Feedback-ID: ".len(), id)));
        }
        fields
    }

    fn push_unsubscribe(&self, fields: &mut Vec<(&'static str, String)>) {
        let Unsubscribe { url, mailto } = self.unsubscribe;
        let value = match (url, mailto) {
            (None, None) => return,
            (Some(url), None) => format!("<{url}>"),
            (None, Some(mailto)) => format!("<mailto:{mailto}>"),
            (Some(url), Some(mailto)) => format!("<{url}>,\r\n <mailto:{mailto}>"),
        };
        fields.push(("List-Unsubscribe", value));
        if url.is_some() {
            fields.push(("List-Unsubscribe-Post", "List-Unsubscribe=One-Click".to_owned()));
        }
    }
}

impl Mail {
    /// The whole mail, with the signatures before the other fields.
    pub fn write(&self, signatures: &[String]) -> Vec<u8> {
        let fields: usize =
            self.fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        let signed: usize = signatures.iter().map(String::len).sum();
        let mut out = String::with_capacity(fields + signed + self.body.len() + 2);
        signatures.iter().for_each(|field| out.push_str(field));
        for (name, value) in &self.fields {
            out.push_str(name);
            out.push_str(": ");
            out.push_str(value);
            out.push_str("\r\n");
        }
        out.push_str("\r\n");
        out.push_str(&self.body);
        out.into_bytes()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        field.map(|(_, value)| value.as_str())
    }
}

/// The same in every attempt, so that a receiver can detect a repeat (RFC 1047).
pub fn message_id(delivery: DeliveryId, from: &str) -> String {
    let domain = from.rsplit_once('@').map_or("postrider.invalid", |(_, domain)| domain);
    format!("<{delivery}@{domain}>")
}

fn single(fields: &mut Vec<(&'static str, String)>, kind: &str, text: &str) -> String {
    let encoding = Encoding::for_text(text);
    fields.push(("Content-Type", format!("{kind}; charset=utf-8")));
    fields.push(("Content-Transfer-Encoding", encoding.name().to_owned()));
    let mut body = String::with_capacity(text.len() + text.len() / 8 + 2);
    encoding.push(&mut body, text);
    body
}

/// Plain text first: a mail client shows the last part that it understands.
fn alternative(
    fields: &mut Vec<(&'static str, String)>,
    delivery: DeliveryId,
    text: &str,
    html: &str,
) -> String {
    // No encoded line has "=_": quoted-printable writes it as "=3D_", and base64 has no underscore.
    let boundary = format!("=_{delivery}");
    fields.push(("Content-Type", format!("multipart/alternative;\r\n boundary=\"{boundary}\"")));
    let mut body = String::with_capacity((text.len() + html.len()) * 5 / 4 + 320);
    for (kind, part) in [("text/plain", text), ("text/html", html)] {
        let encoding = match Encoding::for_text(part) {
            Encoding::SevenBit if part.contains("--=_") => Encoding::QuotedPrintable,
            encoding => encoding,
        };
        let _ = write!(
            body,
            "--{boundary}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Transfer-Encoding: {}\r\n\r\n",
            encoding.name()
        );
        encoding.push(&mut body, part);
    }
    let _ = write!(body, "--{boundary}--\r\n");
    body
}

/// RFC 5322, in UTC.
fn date(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = at.0.div_euclid(86_400_000);
    let s = at.as_secs().rem_euclid(86_400);
    let (year, month, day) = civil_from_days(days);
    let weekday = DAYS[days.rem_euclid(7) as usize];
    let month = MONTHS[month as usize - 1];
    format!(
        "{weekday}, {day} {month} {year} {:02}:{:02}:{:02} +0000",
        s / 3600,
        s / 60 % 60,
        s % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft<'a>() -> MailDraft<'a> {
        MailDraft {
            delivery: DeliveryId(9),
            date: Timestamp(1_794_732_668_000),
            from: Mailbox { name: Some("Shop"), address: "news@shop.example" },
            to: Mailbox { name: None, address: "ada@example.org" },
            reply_to: None,
            subject: "Shipped",
            text: "Order 91 is on its way",
            html: None,
            unsubscribe: Unsubscribe::default(),
            feedback_id: None,
        }
    }

    #[test]
    fn a_plain_mail_has_the_headers_that_a_sender_must_set() {
        let mail = String::from_utf8(draft().build().write(&[])).unwrap();
        assert_eq!(
            mail,
            "Date: Sun, 15 Nov 2026 08:51:08 +0000\r\n\
             From: Shop <news@shop.example>\r\n\
             To: ada@example.org\r\n\
             Subject: Shipped\r\n\
             Message-ID: <dlv_00000000000000000000000009@shop.example>\r\n\
             MIME-Version: 1.0\r\n\
             Auto-Submitted: auto-generated\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\
             Content-Transfer-Encoding: 7bit\r\n\
             \r\n\
             Order 91 is on its way\r\n"
        );
    }

    #[test]
    fn text_and_html_are_alternatives_and_unsubscribing_takes_one_click() {
        let unsubscribe = Unsubscribe {
            url: Some("https://shop.example/u/abc"),
            mailto: Some("u+abc@shop.example"),
        };
        let mail = MailDraft { html: Some("<p>Grüße</p>"), unsubscribe, ..draft() }.build();
        assert_eq!(
            mail.field("list-unsubscribe"),
            Some("<https://shop.example/u/abc>,\r\n <mailto:u+abc@shop.example>")
        );
        assert_eq!(mail.field("List-Unsubscribe-Post"), Some("List-Unsubscribe=One-Click"));
        let parts: Vec<_> = mail.body.split("--=_dlv_00000000000000000000000009").collect();
        assert_eq!(parts.len(), 4, "{}", mail.body);
        assert!(parts[1].contains("text/plain") && parts[1].contains("7bit"));
        assert!(parts[2].contains("text/html") && parts[2].contains("<p>Gr=C3=BC=C3=9Fe</p>"));
        assert_eq!(parts[3], "--\r\n");
    }

    #[test]
    fn a_text_that_holds_the_boundary_does_not_end_its_part() {
        let text = "x\n--=_dlv_00000000000000000000000009--\ny";
        let mail = MailDraft { text, html: Some("<p>x</p>"), ..draft() }.build();
        assert_eq!(mail.body.matches("--=_dlv_").count(), 3, "{}", mail.body);
    }

    #[test]
    fn every_attempt_is_the_same_mail() {
        assert_eq!(draft().build(), draft().build());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]
        /// RFC 5321 4.5.3.1.6, and that no line break stands alone: that is how mails are smuggled.
        #[test]
        fn no_line_is_longer_than_a_server_takes_and_every_one_ends_with_both_characters(
            subject in "(\\PC|x{300}){0,40}", name in "\\PC{0,200}",
            text in "(\\PC|\r|\n|\t|[.]|[a ]{600}){0,60}", html in "(\\PC|\r|\n|[<=>]|x{999}){0,30}",
        ) {
            let url = format!("https://shop.example/{}", "u".repeat(870));
            let mail = MailDraft {
                subject: &subject,
                to: Mailbox { name: Some(&name), address: "ada@example.org" },
                text: &text,
                html: Some(&html),
                unsubscribe: Unsubscribe { url: Some(&url), mailto: Some("u@shop.example") },
                ..draft()
            };
            let mail = mail.build().write(&[]);
            proptest::prop_assert!(mail.is_ascii());
            let text = String::from_utf8(mail).unwrap();
            for line in text.split("\r\n") {
                proptest::prop_assert!(line.len() <= 998, "{} octets", line.len());
                proptest::prop_assert!(!line.contains(['\r', '\n']), "{line:?}");
            }
            proptest::prop_assert!(text.ends_with("\r\n"));
        }
    }
}

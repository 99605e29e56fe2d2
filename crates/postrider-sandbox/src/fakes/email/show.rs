//! Mails as the inbox shows them, whichever way they came, and the DKIM records of the sender's domain.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::dkim::{self, DkimRecords};
use super::mime;
use crate::Sandbox;
use crate::answer::FakeAnswer;
use crate::fakes::{ControlCall, FakeCall, FakeCheckResult, FakeProvider, RejectedRequest};
use crate::inbox::view::{InboxCheck, InboxForm, InboxMail, InboxView, ShownMessage, cut, text_of};

const SELECTOR: &str = "sandbox";

/// Delivers nothing: it knows the records of the senders' domains.
#[derive(Default)]
pub(super) struct FakeMailDomain {
    records: DkimRecords,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DkimRecordRequest {
    record: String,
}

impl FakeProvider for FakeMailDomain {
    fn serves(&self, _: &str) -> bool {
        false
    }

    fn check(&self, _: &FakeCall<'_>) -> FakeCheckResult {
        Err(RejectedRequest::request(FakeAnswer::empty(404)))
    }

    fn control(&self, call: &ControlCall<'_>) -> Option<anyhow::Result<FakeAnswer>> {
        let (&Method::PUT, ["dkim", name]) = (&call.parts.method, call.path) else { return None };
        let put = || {
            let request: DkimRecordRequest = serde_json::from_slice(call.body)?;
            self.records.put(name, &request.record)?;
            Ok(FakeAnswer::json(200, &json!({ "name": name })))
        };
        Some(put())
    }
}

impl Sandbox {
    /// A new DKIM key for this domain: its selector, and the private key as PEM. The inbox verifies with it.
    pub(super) fn make_dkim_key(&self, domain: &str) -> anyhow::Result<(&'static str, String)> {
        let (pem, record) = dkim::make_key()?;
        if let Some(fake) = self.state.fake::<FakeMailDomain>() {
            fake.records.put(&format!("{SELECTOR}._domainkey.{domain}"), &record)?;
        }
        Ok((SELECTOR, pem))
    }
}

pub(super) fn show(shown: &ShownMessage<'_>) -> InboxView {
    let request = shown.request;
    match request.uri.as_str() {
        "smtp:" => show_mail(shown, &request.body),
        uri if uri.starts_with("/v3/mail/send") => show_sendgrid(&shown.json()),
        _ => {
            let call = shown.json();
            let mail = call["Content"]["Raw"]["Data"].as_str();
            let mail = mail.and_then(|data| BASE64_STANDARD.decode(data).ok());
            show_mail(shown, &mail.unwrap_or_default())
        }
    }
}

fn show_mail(shown: &ShownMessage<'_>, mail: &[u8]) -> InboxView {
    let read = mime::read(mail);
    let field = |name: &str| {
        let known = read.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        known.map_or_else(String::new, |(_, value)| value.clone())
    };
    let domain = shown.state.fake::<FakeMailDomain>();
    let dkim = domain.map(|domain| domain.records.verify(mail, shown.at_s)).unwrap_or_default();
    let (subject, from, to) = (field("subject"), field("from"), field("to"));
    let headers = read.headers.iter().map(|(name, value)| (name.clone(), cut(value))).collect();
    let mail = InboxMail {
        from,
        to,
        text: read.text.as_deref().map(cut),
        has_html: read.html.is_some(),
        links: read.html.as_deref().map(mime::links).unwrap_or_default(),
        html: read.html,
        headers,
        attachments: read.attachments,
        dkim,
    };
    with_subject(&subject, mail)
}

fn show_sendgrid(call: &Value) -> InboxView {
    let person = |value: &Value| match value["name"].as_str() {
        Some(name) => format!("{name} <{}>", text_of(&value["email"])),
        None => text_of(&value["email"]),
    };
    let parts = call["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let part = |kind: &str| {
        let found = parts.iter().find(|part| part["type"] == kind);
        found.and_then(|part| part["value"].as_str()).map(str::to_owned)
    };
    let headers = call["headers"].as_object().into_iter().flatten();
    let (text, html) = (part("text/plain"), part("text/html"));
    let mail = InboxMail {
        from: person(&call["from"]),
        to: person(&call["personalizations"][0]["to"][0]),
        text,
        has_html: html.is_some(),
        links: html.as_deref().map(mime::links).unwrap_or_default(),
        html,
        headers: headers.map(|(name, value)| (name.clone(), text_of(value))).collect(),
        attachments: Vec::new(),
        dkim: vec![InboxCheck::unknown("SendGrid signs when it sends the mail on")],
    };
    with_subject(&text_of(&call["subject"]), mail)
}

fn with_subject(subject: &str, mail: InboxMail) -> InboxView {
    let title = if subject.is_empty() { "(no subject)" } else { subject };
    let preview = mail.text.clone().unwrap_or_default();
    InboxView::new(title, &preview, InboxForm::Mail(Box::new(mail)))
}

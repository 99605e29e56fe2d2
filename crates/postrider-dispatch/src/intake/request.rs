//! A message as a caller writes it: JSON, borrowed, every field checked on its own so that an error
//! names the field, what was found and what is allowed. Resolves no address and knows no channel.

use std::borrow::Cow;

use postrider_core::model::message::Priority;
use postrider_core::model::trace::TraceParent;
use postrider_core::policy::backoff::RetryPolicy;
use postrider_core::{FieldError, Timestamp, model::json_fields};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::below;
use super::refusal::IntakeRefusal;
use super::template::TemplateRef;

pub(super) const TEXT_MAX: usize = 256;
const LABELS_MAX: usize = 16;
/// Alternative addresses of one message.
const FALLBACK_MAX: usize = 4;
const SEND_AHEAD_DAYS_MAX: i64 = 366;

/// The fields of a message, not read yet: `R` is a raw value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageFields<R> {
    to: Option<R>,
    class: Option<R>,
    content: Option<R>,
    template: Option<R>,
    ttl_s: Option<R>,
    collapse_key: Option<R>,
    send_at: Option<R>,
    idempotency_key: Option<R>,
    priority: Option<R>,
    tags: Option<R>,
    campaign: Option<R>,
    campaign_run: Option<R>,
    dedupe: Option<R>,
    retry: Option<R>,
    compliance: Option<R>,
    traceparent: Option<R>,
    category: Option<R>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AudienceFields<'a> {
    #[serde(borrow)]
    address: Option<&'a RawValue>,
    #[serde(borrow)]
    recipient: Option<Cow<'a, str>>,
    #[serde(borrow)]
    recipients: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    topic: Option<&'a RawValue>,
    #[serde(borrow)]
    fallback: Option<Vec<&'a RawValue>>,
}

/// One address as a caller writes it.
pub(super) enum AddressRef<'a> {
    /// An inline address, as JSON.
    Inline(&'a str),
    /// A registered address, `adr_…`.
    Registered(Cow<'a, str>),
}

impl<'a> AddressRef<'a> {
    fn of(raw: &'a RawValue) -> Self {
        match serde_json::from_str::<Cow<'a, str>>(raw.get()) {
            Ok(id) => Self::Registered(id),
            Err(_) => Self::Inline(raw.get()),
        }
    }
}

/// Who a message is for.
pub(super) enum Audience<'a> {
    /// One address, and where to go instead while its provider's breaker is open.
    Address {
        address: AddressRef<'a>,
        fallback: Vec<AddressRef<'a>>,
    },
    Recipients(Vec<Cow<'a, str>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Dedupe {
    None,
    Content,
}

pub(super) struct SubmittedMessage<'a> {
    pub(super) to: Audience<'a>,
    pub(super) class: Option<Cow<'a, str>>,
    /// A JSON object's text.
    pub(super) content: &'a str,
    pub(super) template: Option<TemplateRef<'a>>,
    pub(super) ttl_s: Option<i64>,
    pub(super) send_at: Option<Timestamp>,
    pub(super) collapse_key: Option<Box<str>>,
    pub(super) idempotency_key: Option<Box<str>>,
    pub(super) priority: Option<Priority>,
    pub(super) tags: Vec<Box<str>>,
    pub(super) campaign: Option<Box<str>>,
    pub(super) campaign_run: Option<Box<str>>,
    pub(super) dedupe: Option<Dedupe>,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) compliance: Vec<Box<str>>,
    /// Wins over the header of the call.
    pub(super) traceparent: Option<Box<str>>,
    pub(super) category: Option<Box<str>>,
}

impl<'a> SubmittedMessage<'a> {
    pub(super) fn parse(body: &'a [u8], now: Timestamp) -> Result<Self, IntakeRefusal> {
        let fields = fields_of(body)?;
        let mut read = FieldReader { errors: Vec::new() };
        let to = read.audience(fields.to);
        let request = Self {
            class: read.text("class", fields.class).map(|c| Cow::Owned(c.into())),
            content: read.object("content", fields.content),
            template: read.template(fields.template),
            ttl_s: read.typed("ttl_s", fields.ttl_s, "a whole number of seconds, 0 or more"),
            send_at: read.send_at(fields.send_at, now),
            collapse_key: read.text("collapse_key", fields.collapse_key),
            idempotency_key: read.text("idempotency_key", fields.idempotency_key),
            priority: read.typed("priority", fields.priority, "\"low\", \"normal\" or \"high\""),
            tags: read.labels("tags", fields.tags),
            campaign_run: read.campaign_run(fields.campaign_run, fields.campaign.is_some()),
            campaign: read.text("campaign", fields.campaign),
            dedupe: read.typed("dedupe", fields.dedupe, "\"content\" or \"none\""),
            retry: read.retry(fields.retry),
            compliance: read.labels("compliance", fields.compliance),
            traceparent: read.traceparent(fields.traceparent),
            category: read.text("category", fields.category),
            to: to.unwrap_or(Audience::Recipients(Vec::new())),
        };
        if read.errors.is_empty() { Ok(request) } else { Err(IntakeRefusal::invalid(read.errors)) }
    }
}

/// Reads field by field and collects what is wrong.
struct FieldReader {
    errors: Vec<FieldError>,
}

impl FieldReader {
    fn wrong(&mut self, field: &str, found: impl Into<String>, allowed: impl Into<String>) {
        self.errors.push(FieldError::new(field, found, allowed));
    }

    fn typed<'a, T: Deserialize<'a>>(
        &mut self,
        field: &str,
        raw: Option<&'a RawValue>,
        allowed: &str,
    ) -> Option<T> {
        let raw = raw.filter(|raw| raw.get() != "null")?;
        serde_json::from_str(raw.get())
            .map_err(|_| self.wrong(field, shorten(raw.get()), allowed))
            .ok()
    }

    fn read<'a, T: Deserialize<'a>>(
        &mut self,
        field: &str,
        raw: &'a RawValue,
        allowed: &str,
    ) -> Option<T> {
        let misfit = |error| self.errors.extend(below(field, vec![error]));
        json_fields::read(raw.get(), allowed).map_err(misfit).ok()
    }

    fn text(&mut self, field: &str, raw: Option<&RawValue>) -> Option<Box<str>> {
        let allowed = format!("a string of 1 to {TEXT_MAX} bytes without control characters");
        let text: Box<str> = self.typed(field, raw, &allowed)?;
        if !is_short_text(&text) {
            self.wrong(field, format!("{} bytes: {:?}", text.len(), shorten(&text)), allowed);
            return None;
        }
        Some(text)
    }

    fn traceparent(&mut self, raw: Option<&RawValue>) -> Option<Box<str>> {
        const ALLOWED: &str = "a traceparent of W3C, e.g. \"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"";
        let text: Box<str> = self.typed("traceparent", raw, ALLOWED)?;
        if TraceParent::parse(&text).is_none() {
            self.wrong("traceparent", format!("{:?}", shorten(&text)), ALLOWED);
            return None;
        }
        Some(text)
    }

    fn campaign_run(&mut self, raw: Option<&RawValue>, has_campaign: bool) -> Option<Box<str>> {
        let run = self.text("campaign_run", raw)?;
        if !has_campaign {
            self.wrong("campaign_run", shorten(&run), "nothing without a campaign");
        }
        Some(run)
    }

    fn labels(&mut self, field: &str, raw: Option<&RawValue>) -> Vec<Box<str>> {
        let allowed = format!("at most {LABELS_MAX} strings of 1 to {TEXT_MAX} bytes");
        let labels: Vec<Box<str>> = self.typed(field, raw, &allowed).unwrap_or_default();
        if labels.len() > LABELS_MAX || !labels.iter().all(|label| is_short_text(label)) {
            let written = shorten(raw.map_or("", RawValue::get));
            self.wrong(field, format!("{} strings: {written}", labels.len()), allowed);
        }
        labels
    }

    fn object<'a>(&mut self, field: &str, raw: Option<&'a RawValue>) -> &'a str {
        let text = raw.map(RawValue::get).filter(|text| *text != "null").unwrap_or("{}");
        if !text.starts_with('{') {
            let allowed =
                r#"an object, e.g. {"title": "Shipped", "body": "Order 91 is on its way"}"#;
            self.wrong(field, json_fields::kind_of_text(text), allowed);
        }
        text
    }

    fn template<'a>(&mut self, raw: Option<&'a RawValue>) -> Option<TemplateRef<'a>> {
        let raw = raw.filter(|raw| raw.get() != "null")?;
        TemplateRef::read(raw).map_err(|error| self.errors.push(error)).ok()
    }

    fn send_at(&mut self, raw: Option<&RawValue>, now: Timestamp) -> Option<Timestamp> {
        let allowed = format!(
            "a time such as \"2026-12-01T08:00:00Z\", at most {SEND_AHEAD_DAYS_MAX} days ahead"
        );
        let text: Cow<'_, str> = self.typed("send_at", raw, &allowed)?;
        let at = text.parse::<jiff::Timestamp>().ok().map(|at| Timestamp(at.as_millisecond()));
        let latest = now.0 + SEND_AHEAD_DAYS_MAX * 86_400_000;
        if at.is_none_or(|at| at.0 > latest) {
            self.wrong("send_at", shorten(&text), allowed);
            return None;
        }
        at
    }

    fn retry(&mut self, raw: Option<&RawValue>) -> Option<RetryPolicy> {
        let raw = raw.filter(|raw| raw.get() != "null")?;
        let policy: RetryPolicy = self.read("retry", raw, "")?;
        self.errors.extend(below("retry", policy.validate().err().unwrap_or_default()));
        Some(policy)
    }

    fn audience<'a>(&mut self, raw: Option<&'a RawValue>) -> Option<Audience<'a>> {
        const ALLOWED: &str = "one of {\"address\": {…}} or {\"address\": \"adr_…\"}, {\"recipient\": \"…\"}, {\"recipients\": […]}";
        let Some(raw) = raw else {
            self.wrong("to", "nothing", ALLOWED);
            return None;
        };
        let to: AudienceFields<'a> = self.read("to", raw, ALLOWED)?;
        if to.topic.is_some() {
            let allowed = "topics are not supported by this version; name the recipients";
            self.wrong("to.topic", "a topic", allowed);
            return None;
        }
        let fallback = to.fallback.unwrap_or_default();
        if fallback.len() > FALLBACK_MAX || (!fallback.is_empty() && to.address.is_none()) {
            let found = format!("{} addresses", fallback.len());
            let allowed = format!("at most {FALLBACK_MAX} addresses, and only beside `address`");
            self.wrong("to.fallback", found, allowed);
            return None;
        }
        match (to.address, to.recipient, to.recipients) {
            (Some(address), None, None) => Some(Audience::Address {
                address: AddressRef::of(address),
                fallback: fallback.into_iter().map(AddressRef::of).collect(),
            }),
            (None, Some(one), None) => Some(Audience::Recipients(vec![one])),
            (None, None, Some(many)) if !many.is_empty() => Some(Audience::Recipients(many)),
            (None, None, Some(_)) => {
                self.wrong("to.recipients", "an empty list", "at least one recipient");
                None
            }
            _ => {
                self.wrong("to", "none or several of address, recipient, recipients", ALLOWED);
                None
            }
        }
    }
}

/// Whether a text that a caller chose is 1 to [`TEXT_MAX`] bytes long and printable.
pub(super) fn is_short_text(text: &str) -> bool {
    (1..=TEXT_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// The start of a text, for an error.
pub(super) fn shorten(text: &str) -> String {
    const SHOWN: usize = 64;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The fields of a body. A body that is not JSON is another error than one that is not a message.
fn fields_of(body: &[u8]) -> Result<MessageFields<&RawValue>, IntakeRefusal> {
    let broken = |error: &dyn std::fmt::Display| IntakeRefusal::invalid_json(error.to_string());
    let text = std::str::from_utf8(body).map_err(|e| broken(&e))?;
    json_fields::read(text, "").map_err(|mut misfit| {
        if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
            return broken(&error);
        }
        if misfit.field.is_empty() {
            misfit.field = "(body)".to_owned();
        }
        IntakeRefusal::invalid(vec![misfit])
    })
}

//! Request bodies that the intake parses, described for OpenAPI. Parses nothing itself.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::channel_schema::{ContentRequest, DestinationRequest};

/// A message.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NewMessage, example = json!({
    "to": {"address": {"channel": "webhook", "url": "https://example.com/hooks/orders"}},
    "content": {"title": "Shipped", "body": "Order 91 is on its way"},
    "class": "transactional", "ttl_s": 3600, "idempotency_key": "ord-91:shipped"
}))]
pub(crate) struct MessageRequest {
    pub to: DestinationRequest,
    /// A configured class; `transactional` if absent.
    pub class: Option<String>,
    /// The content. With a template, these fields win over the template.
    pub content: Option<ContentRequest>,
    /// Fills in the content from a template. Fields of `content` win.
    pub template: Option<TemplateRefRequest>,
    /// Seconds; the class's TTL if absent. 0 means: now or never.
    pub ttl_s: Option<u32>,
    pub collapse_key: Option<String>,
    /// Not before this time (RFC 3339). The TTL counts from here.
    #[schema(format = DateTime)]
    pub send_at: Option<String>,
    /// Makes a repeat harmless for 24 h or the TTL, whichever is longer.
    pub idempotency_key: Option<String>,
    /// `low`, `normal` or `high`: how urgent the provider is told that it is; as the class says if absent. In which
    /// order Postrider itself sends follows the class alone.
    pub priority: Option<String>,
    pub tags: Option<Vec<String>>,
    /// Without an idempotency key, a campaign reaches each address of a recipient once within the window of
    /// idempotency keys. Of a list, those whom it reached before are left out.
    pub campaign: Option<String>,
    /// Which run of the campaign this is: another run reaches everybody again.
    pub campaign_run: Option<String>,
    /// `content`: the same content to the same address within the window is a duplicate.
    pub dedupe: Option<String>,
    /// A retry policy for this message alone.
    pub retry: Option<RetryRequest>,
    pub compliance: Option<Vec<String>>,
    /// The trace that the message belongs to (W3C Trace Context). Wins over the header of the call, so that each line
    /// of a batch can have its own.
    pub traceparent: Option<String>,
    /// What it is about: a category of the tenant. Preferences and unsubscribes are by category.
    pub category: Option<String>,
}

/// The name, locale and variables of a template.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TemplateWish, example = json!({"name": "shipped", "locale": "de-AT", "variables": {"order": {"number": 91}}}))]
pub(crate) struct TemplateRefRequest {
    pub name: String,
    /// `de-AT` falls back to `de`, then to the template's default.
    pub locale: Option<String>,
    #[schema(value_type = Object)]
    pub variables: Option<Value>,
}

/// A template. Every string in its content may use variables, in Jinja's syntax. Values in `email.html`
/// are escaped.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NewTemplate, example = json!({
    "default_locale": "en",
    "locales": {
        "en": {"title": "Order {{ order.number }} shipped", "email": {"html": "<p>Hello {{ name }}</p>"}},
        "de": {"title": "Bestellung {{ order.number }} ist unterwegs"}
    }
}))]
pub(crate) struct TemplateRequest {
    /// Optional if there is only one locale.
    pub default_locale: Option<String>,
    /// If true (the default), a missing variable refuses the message. Otherwise it is rendered as nothing.
    pub strict: Option<bool>,
    /// By locale.
    pub locales: BTreeMap<String, ContentRequest>,
}

/// How often and how patiently to retry.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Retry)]
pub(crate) struct RetryRequest {
    pub retries: Option<u32>,
    pub base_ms: Option<u64>,
    pub factor: Option<f64>,
    pub cap_ms: Option<u64>,
    /// `exponential`, `linear`, `fixed` or `schedule`
    pub kind: Option<String>,
    /// `none`, `additive`, `proportional`, `full`, `doubling`, `equal` or `decorrelated`
    pub jitter: Option<String>,
    /// The most that `additive` jitter adds; 1000 if absent.
    pub jitter_ms: Option<u64>,
    /// The largest share of the wait that `proportional` jitter adds; 0.3 if absent.
    pub jitter_share: Option<f64>,
    pub schedule_ms: Option<Vec<u64>>,
}

//! Request bodies that the intake parses, described for OpenAPI. Parses nothing itself.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A message.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
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
    /// `low`, `normal` or `high`; the class's own if absent.
    pub priority: Option<String>,
    pub tags: Option<Vec<String>>,
    pub campaign: Option<String>,
    /// `content`: the same content to the same address within the window is a duplicate.
    pub dedupe: Option<String>,
    /// A retry policy for this message alone.
    pub retry: Option<RetryRequest>,
    pub compliance: Option<Vec<String>>,
}

/// The name, locale and variables of a template.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"name": "shipped", "locale": "de-AT", "variables": {"order": {"number": 91}}}))]
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
#[schema(example = json!({
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

/// Exactly one of `address`, `recipient` and `recipients`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DestinationRequest {
    /// An inline address, or the id of a registered one (`adr_…`).
    #[schema(value_type = Object)]
    pub address: Option<Value>,
    /// All active addresses registered under this name.
    pub recipient: Option<String>,
    pub recipients: Option<Vec<String>>,
    /// Up to four other addresses beside `address`, inline or `adr_…`. They are used one after the other
    /// while a provider's breaker is open. Needs a class with `when_open` = `fall_back`.
    #[schema(value_type = Vec<Object>)]
    pub fallback: Option<Vec<Value>>,
}

/// Where a message goes. Which fields are needed depends on the channel: `webpush` takes endpoint
/// and keys, `webhook` url and secrets, `http` method, url, headers and credential, `fcm` token or fid,
/// `apns` token, topic and environment, `email` email and name, `sms` phone, `chat` url.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AddressRequest {
    /// `webpush`, `webhook`, `http`, `fcm`, `apns`, `email`, `sms` or `chat`
    pub channel: String,
    /// The owner of the address. Only in the registry.
    pub recipient: Option<String>,
    pub endpoint: Option<String>,
    pub keys: Option<SubscriptionKeysRequest>,
    pub url: Option<String>,
    pub secrets: Option<Vec<String>>,
    pub method: Option<String>,
    pub headers: Option<BTreeMap<String, String>>,
    /// `env:NAME` or `file:PATH`, as the operator listed it for this origin in `http.credentials`. It is
    /// read at each attempt and never stored.
    pub credential: Option<String>,
    /// `fcm` and `apns`: the device's token.
    pub token: Option<String>,
    /// `fcm`: the Firebase installation id, instead of a token.
    pub fid: Option<String>,
    /// `fcm`: the project of the app, if there are several projects.
    pub project: Option<String>,
    /// `apns`: the app's bundle id.
    pub topic: Option<String>,
    /// `apns`: `production` or `sandbox`.
    pub environment: Option<String>,
    pub email: Option<String>,
    /// `email`: the recipient's name.
    pub name: Option<String>,
    /// `sms`: E.164, `+15550100`.
    pub phone: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubscriptionKeysRequest {
    pub p256dh: String,
    pub auth: String,
}

/// Common fields, and fields for one channel, which win over the common ones.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContentRequest {
    pub title: Option<String>,
    pub body: Option<String>,
    pub url: Option<String>,
    #[schema(value_type = Object)]
    pub data: Option<Value>,
    /// `{"raw": "…"}`: the plaintext, byte for byte.
    #[schema(value_type = Object)]
    pub webpush: Option<Value>,
    /// `{"payload": …}`: the body, byte for byte.
    #[schema(value_type = Object)]
    pub webhook: Option<Value>,
    /// `{"body": …}`: the body, byte for byte.
    #[schema(value_type = Object)]
    pub http: Option<Value>,
    /// `{"message": …}`: a `Message` of FCM HTTP v1 without its target.
    #[schema(value_type = Object)]
    pub fcm: Option<Value>,
    /// `{"payload": …, "push_type": "alert", "priority": 10}`: the payload as Apple gets it.
    #[schema(value_type = Object)]
    pub apns: Option<Value>,
    /// `{"subject": "…", "html": "…", "text": "…"}`
    #[schema(value_type = Object)]
    pub email: Option<Value>,
    /// `{"text": "…"}`
    #[schema(value_type = Object)]
    pub sms: Option<Value>,
    /// `{"payload": …}`: the body, byte for byte.
    #[schema(value_type = Object)]
    pub chat: Option<Value>,
}

/// How often and how patiently to retry.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RetryRequest {
    pub retries: Option<u32>,
    pub base_ms: Option<u64>,
    pub factor: Option<f64>,
    pub cap_ms: Option<u64>,
    /// `exponential`, `linear`, `fixed` or `schedule`
    pub kind: Option<String>,
    /// `none`, `additive`, `proportional`, `full`, `doubling`, `equal` or `decorrelated`
    pub jitter: Option<String>,
    pub schedule_ms: Option<Vec<u64>>,
}

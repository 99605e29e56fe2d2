//! Webhooks after the Standard Webhooks specification. Every attempt is signed anew with every valid secret. Follows no
//! redirect.

mod body;
mod content;
mod intake;
mod settings;
mod sign;
mod target;

use std::borrow::Cow;
use std::sync::Arc;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use postrider_core::{
    Attempt, ChannelKind, ChannelTraits, Outcome, Report, StrikeKind, TenantId, Timestamp,
};

pub use content::WebhookContent;
pub use intake::WebhookIntake;
pub use settings::WebhookSection;
use sign::sign_ed25519;
pub use sign::{WebhookSecret, sign};
pub use target::WebhookTarget;

use crate::deliver::{Ended, Protocol, Wiring, impl_channel, misconfigured};
use crate::pool::{Endpoint, JSON, Request, own_headers};
use crate::target::target_of;

pub const KIND: ChannelKind = ChannelKind::new("webhook");
pub const TRAITS: ChannelTraits = ChannelTraits::PLAIN;

/// Where the secrets of a tenant's webhooks come from.
pub trait WebhookSecrets: Send + Sync {
    /// Every secret that receivers may still check with, newest first.
    fn secrets(&self, tenant: &TenantId) -> Vec<Arc<WebhookSecret>>;
}

pub struct WebhookChannel {
    pub wiring: Wiring,
    pub secrets: Arc<dyn WebhookSecrets>,
    /// Addresses without secrets of their own get one each, made from the tenant's.
    pub secret_per_address: bool,
    /// Signs also with Ed25519.
    pub ed25519: bool,
}

impl_channel!(WebhookChannel);

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// When the message expires, in seconds since 1970, for receivers that store it first.
pub(crate) const EXPIRES: HeaderName = HeaderName::from_static("postrider-expires");
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A webhook that lacks only its timestamp and signature.
pub(crate) struct WebhookCall {
    endpoint: Endpoint,
    secrets: Vec<Arc<WebhookSecret>>,
    /// Those that also sign with Ed25519.
    ed25519: Vec<Arc<WebhookSecret>>,
    id: String,
    body: Bytes,
}

impl Protocol for WebhookChannel {
    type Ready = WebhookCall;

    fn prepare(&self, attempt: &Attempt) -> Result<WebhookCall, Ended> {
        let WebhookTarget { url, secrets } = target_of(attempt)?;
        let endpoint = self.wiring.endpoint(&url)?;
        let tenant = &attempt.message.tenant;
        let ed25519 = if self.ed25519 { self.secrets.secrets(tenant) } else { Vec::new() };
        let secrets = self.secrets_for(tenant, &url, &secrets)?;
        let body = body::render(attempt)?;
        Ok(WebhookCall { endpoint, secrets, ed25519, id: attempt.delivery.to_string(), body })
    }

    async fn send(&self, attempt: &Attempt, call: WebhookCall) -> Result<Report, Ended> {
        let request = |now| Request {
            method: Method::POST,
            headers: headers(attempt, &call, now),
            body: call.body.clone(),
        };
        let called =
            self.wiring.call_on("webhook", attempt, &call.endpoint, &call.body, &[], request);
        Ok(with_strike(called.await.unwrap_or_else(|ended| *ended)))
    }
}

/// A failure counts as a strike: an endpoint that only fails for days becomes suspect.
fn with_strike(mut report: Report) -> Report {
    let is_failure =
        !matches!(report.outcome, Outcome::Accepted | Outcome::Reconnect | Outcome::Expired);
    if is_failure {
        report.terms.strike.get_or_insert(StrikeKind::Failing);
    }
    report
}

impl WebhookChannel {
    /// The endpoint's own secrets, else the tenant's. An unsigned webhook is never sent.
    fn secrets_for(
        &self,
        tenant: &TenantId,
        url: &str,
        own: &[Cow<'_, str>],
    ) -> Result<Vec<Arc<WebhookSecret>>, Ended> {
        let secrets = if own.is_empty() {
            let shared = self.secrets.secrets(tenant);
            match self.secret_per_address {
                true => shared.iter().map(|secret| Arc::new(secret.for_address(url))).collect(),
                false => shared,
            }
        } else {
            own.iter().filter_map(|text| WebhookSecret::parse(text).ok()).map(Arc::new).collect()
        };
        if secrets.is_empty() {
            let detail = "there is no secret to sign this webhook with";
            return Err(misconfigured("webhook_secret_missing", detail));
        }
        Ok(secrets)
    }
}

fn headers(attempt: &Attempt, call: &WebhookCall, now: Timestamp) -> HeaderMap {
    let mut headers = own_headers(JSON);
    headers.insert(TIMESTAMP, HeaderValue::from(now.as_secs()));
    headers.insert(EXPIRES, HeaderValue::from(attempt.expires_at.as_secs()));
    let mut signature = sign(&call.secrets, &call.id, now.as_secs(), &call.body);
    sign_ed25519(&mut signature, &call.ed25519, &call.id, now.as_secs(), &call.body);
    if let Ok(signature) = HeaderValue::try_from(signature) {
        headers.insert(SIGNATURE, signature);
    }
    if let Ok(id) = HeaderValue::try_from(call.id.as_str()) {
        headers.insert(ID, id.clone());
        headers.insert(IDEMPOTENCY_KEY, id);
    }
    let trace = attempt.traceparent();
    if let Some(trace) = trace.and_then(|text| HeaderValue::try_from(&*text).ok()) {
        headers.insert(TRACEPARENT, trace);
    }
    headers
}

//! Web Push: RFC 8030 with RFC 8291 encryption and RFC 8292 identification.
//!
//! Never reuses an encrypted body, never rebuilds an endpoint, never follows a redirect.

mod content;
mod encrypt;
mod intake;
mod keys;
mod render;
mod service;
mod settings;
mod target;
mod vapid;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::{
    Attempt, ChannelKind, ChannelTraits, KeyId, Outcome, Report, TenantId, Timestamp,
};

pub use content::WebpushContent;
pub use encrypt::{EncryptError, Padding, PlainPayload, encrypt_batch};
pub use intake::WebpushIntake;
pub use keys::{SubscriptionKeys, VapidKey, VapidSubject};
pub(crate) use render::{PLAINTEXT_MAX, plaintext_len};
pub use settings::WebpushSection;
pub use target::WebpushTarget;
pub use vapid::{VapidToken, VapidTokens};
pub use wire::topic;
pub(crate) use wire::{AGENT, urgency};

use crate::deliver::{Ended, Protocol, Reading, Wiring, ended, impl_channel, misconfigured};
use crate::pool::{Endpoint, Request};
use crate::target::target_of;
use crate::{Error, scrub};
use render::render;
use service::Service;

pub const KIND: ChannelKind = ChannelKind::new("webpush");
pub const TRAITS: ChannelTraits = ChannelTraits::PLAIN;

/// Where VAPID keys come from.
pub trait VapidKeys: Send + Sync {
    /// The key that a subscription was made with, or the tenant's active one.
    fn key(&self, tenant: &TenantId, id: Option<KeyId>) -> Option<Arc<VapidKey>>;
}

pub struct WebPushChannel {
    wiring: Wiring,
    keys: Arc<dyn VapidKeys>,
    tokens: VapidTokens,
    padding: Padding,
}

impl WebPushChannel {
    /// A push service may write to `subject` about us: `mailto:` or `https:`.
    pub fn new(wiring: Wiring, keys: Arc<dyn VapidKeys>, subject: &str) -> Result<Self, Error> {
        let tokens = VapidTokens::new(VapidSubject::parse(subject)?);
        Ok(Self { wiring, keys, tokens, padding: Padding::default() })
    }
}

impl_channel!(WebPushChannel);

const BAD_TOPIC: &str = "BadWebPushTopic";

/// Where a subscription refuses a key that works for others, says so: it needs to be made anew, and is
/// lost where it was registered with that very key.
fn whose_key(code: String, push: &WebpushCall, now: Timestamp) -> String {
    if !push.token.works(now) || !service::is_key_mismatch(&code) {
        return code;
    }
    match push.made_with == Some(push.token.key()) {
        true => "key_mismatch.proven",
        false => "key_mismatch.resubscribe",
    }
    .to_owned()
}

/// An attempt whose body is encrypted and whose token is at hand.
pub(crate) struct WebpushCall {
    endpoint: Endpoint,
    url: String,
    /// The key that the subscription names.
    made_with: Option<KeyId>,
    service: Service,
    token: Arc<VapidToken>,
    body: Bytes,
}

impl Protocol for WebPushChannel {
    type Ready = WebpushCall;

    fn prepare(&self, attempts: &[Attempt]) -> Vec<Result<WebpushCall, Ended>> {
        let mut plain = Vec::with_capacity(attempts.len());
        let mut address = |attempt| {
            let (push, text) = self.address(attempt)?;
            let has_body = text.is_some();
            plain.extend(text);
            Ok((push, has_body))
        };
        let pushes: Vec<Result<_, Ended>> = attempts.iter().map(&mut address).collect();
        let mut bodies = encrypt_batch(&plain, self.padding).into_iter();
        let mut encrypt = |push: Result<(WebpushCall, bool), Ended>| {
            let (mut push, has_body) = push?;
            if has_body {
                let body = bodies.next().unwrap_or(Err(EncryptError::Crypto));
                push.body = body.map_err(|error| ended(Outcome::DropMessage, error.code()))?;
            }
            Ok(push)
        };
        pushes.into_iter().map(&mut encrypt).collect()
    }

    async fn send(&self, attempt: &Attempt, push: WebpushCall) -> Report {
        Report { key: Some(push.token.key()), ..self.push(attempt, &push).await }
    }
}

impl WebPushChannel {
    /// One call; a second one where the service does not like how the first was to be replaced.
    async fn push(&self, attempt: &Attempt, push: &WebpushCall) -> Report {
        let report = self.exchange(attempt, push, true).await;
        let has_topic = attempt.message.envelope.collapse_key.is_some();
        if !has_topic || report.code.as_deref() != Some(BAD_TOPIC) {
            return report;
        }
        tracing::warn!(delivery = %attempt.delivery, "a topic was refused; sent again without it");
        self.exchange(attempt, push, false).await
    }

    async fn exchange(&self, attempt: &Attempt, push: &WebpushCall, has_topic: bool) -> Report {
        let (token, has_body) = (&push.token, !push.body.is_empty());
        let request = |now| Request {
            method: ::http::Method::POST,
            headers: wire::headers(attempt, token, push.service, now, has_body, has_topic),
            body: push.body.clone(),
        };
        let response = match self.wiring.exchange(attempt, &push.endpoint, request).await {
            Ok(response) => response,
            Err(ended) => return push.service.unanswered(*ended),
        };
        let now = self.wiring.clock.now();
        let code = push.service.code(&response);
        if response.status.is_success() {
            token.worked(now);
        }
        let reading = Reading {
            service: push.service.name(),
            code: code.map(|code| whose_key(code, push, now)),
            token_age: Some(now.since(token.signed_at())),
            retry_after: None,
            provider_id: scrub::header(&response.headers, push.service.id_header()),
            hide: &[&push.url],
        };
        self.wiring.judge(&response, reading)
    }

    /// All of a push but its ciphertext, and what is to be encrypted, if anything is.
    fn address(&self, attempt: &Attempt) -> Result<(WebpushCall, Option<PlainPayload>), Ended> {
        let WebpushTarget { endpoint: url, p256dh, auth, vapid_key } = target_of(attempt)?;
        if service::is_dead(&url) {
            let report = Report::new(Outcome::Gone).code("dead_endpoint");
            return Err(Box::new(Report { is_certain: true, ..report }));
        }
        let endpoint = self.wiring.endpoint(&url)?;
        let now = self.wiring.clock.now();
        let key = self.keys.key(&attempt.message.tenant, vapid_key).ok_or_else(|| {
            let detail = "the VAPID key that this subscription was made with is not here";
            misconfigured("vapid_key_missing", detail)
        })?;
        let token = self
            .tokens
            .get(&key, endpoint.origin(), now, attempt.resign)
            .map_err(|_| misconfigured("vapid_sign", "no VAPID token could be signed"))?;
        let plaintext = render(attempt, now)?;
        let keys = SubscriptionKeys::parse(&p256dh, &auth)
            .map_err(|_| ended(Outcome::DropMessage, "bad_keys"))?;
        let service = Service::of(endpoint.origin().host());
        let (url, made_with) = (url.into_owned(), vapid_key);
        let push = WebpushCall { endpoint, url, made_with, service, token, body: Bytes::new() };
        let plain = PlainPayload { ua_public: keys.p256dh, auth: keys.auth, plaintext };
        Ok((push, (!plain.plaintext.is_empty()).then_some(plain)))
    }
}

//! Web Push: RFC 8030 with RFC 8291 encryption and RFC 8292 identification.
//!
//! Does not reuse an encrypted body, does not change an endpoint, follows no redirect.

mod content;
mod encrypt;
mod intake;
mod keys;
mod render;
mod service;
mod settings;
mod target;
mod token_cache;
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
pub use keys::{VapidKey, VapidSubject};
pub(crate) use render::{PLAINTEXT_MAX, plaintext_len};
pub use settings::WebpushSection;
pub use target::WebpushTarget;
pub use vapid::{VapidToken, VapidTokens};
pub use wire::topic;
pub(crate) use wire::urgency;

use crate::deliver::{Ended, Protocol, Reading, Wiring, ended, impl_channel, misconfigured};
use crate::pool::{Endpoint, Request};
use crate::target::target_of;
use crate::{Error, ReceiptLinks, scrub};
use keys::SubscriptionKeys;
use service::Service;

pub const KIND: ChannelKind = ChannelKind::new("webpush");
pub const TRAITS: ChannelTraits =
    ChannelTraits { wide_hosts: &service::LARGE, ..ChannelTraits::PLAIN };

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
    receipts: Option<Arc<dyn ReceiptLinks>>,
}

impl WebPushChannel {
    /// `subject` is our contact for push services: `mailto:` or `https:`.
    pub fn new(wiring: Wiring, keys: Arc<dyn VapidKeys>, subject: &str) -> Result<Self, Error> {
        let tokens = VapidTokens::new(VapidSubject::parse(subject)?);
        Ok(Self { wiring, keys, tokens, padding: Padding::default(), receipts: None })
    }

    /// Adds the URL for receipts to each push.
    pub fn with_receipts(self, receipts: Option<Arc<dyn ReceiptLinks>>) -> Self {
        Self { receipts, ..self }
    }
}

impl_channel!(WebPushChannel);

const BAD_TOPIC: &str = "BadWebPushTopic";

/// The code, or another one if a subscription refuses a key that other subscriptions accept: it belongs to another key,
/// or it is lost, if it was registered with this very key.
fn whose_key(code: String, push: &WebpushCall, now: Timestamp) -> String {
    if !push.token.works(now) || !service::is_key_mismatch(&code) {
        return code;
    }
    match push.made_with == Some(push.token.key) {
        true => "key_mismatch.proven",
        false => "key_mismatch.resubscribe",
    }
    .to_owned()
}

/// A push with its token.
pub(crate) struct WebpushCall {
    endpoint: Endpoint,
    /// The key that the subscription names.
    made_with: Option<KeyId>,
    service: Service,
    token: Arc<VapidToken>,
    /// None for a push without a body, and once it is encrypted.
    plain: Option<PlainPayload>,
    /// Encrypted.
    body: Bytes,
}

impl Protocol for WebPushChannel {
    type Ready = WebpushCall;

    fn prepare(&self, attempt: &Attempt) -> Result<WebpushCall, Ended> {
        let WebpushTarget { endpoint: url, p256dh, auth, vapid_key } = target_of(attempt)?;
        if service::is_dead(&url) {
            let report = Report::new(Outcome::Gone).code("dead_endpoint");
            return Err(Box::new(Report { is_certain: true, ..report }));
        }
        let endpoint = self.wiring.endpoint(&url)?;
        let now = self.wiring.clock.wall();
        let key = self.keys.key(&attempt.message.tenant, vapid_key).ok_or_else(|| {
            let detail = "the VAPID key that this subscription was made with is not here";
            misconfigured("vapid_key_missing", detail)
        })?;
        let token = self
            .tokens
            .get(&key, endpoint.origin(), now, attempt.resign)
            .map_err(|_| misconfigured("vapid_sign", "no VAPID token could be signed"))?;
        let plaintext = render::render(attempt, now, self.receipts.as_ref())?;
        let keys = SubscriptionKeys::parse(&p256dh, &auth)
            .map_err(|_| ended(Outcome::DropMessage, "bad_keys"))?;
        let service = Service::of(endpoint.origin().host());
        let plain = PlainPayload { ua_public: keys.p256dh, auth: keys.auth, plaintext };
        let plain = (!plain.plaintext.is_empty()).then_some(plain);
        let (made_with, body) = (vapid_key, Bytes::new());
        Ok(WebpushCall { endpoint, made_with, service, token, plain, body })
    }

    fn complete(&self, batch: &mut [Result<WebpushCall, Ended>]) {
        let plain = |(at, push): (usize, &mut Result<WebpushCall, Ended>)| {
            Some((at, push.as_mut().ok()?.plain.take()?))
        };
        let (places, plain): (Vec<_>, Vec<_>) =
            batch.iter_mut().enumerate().filter_map(plain).unzip();
        for (at, body) in places.into_iter().zip(encrypt_batch(&plain, self.padding)) {
            match (body, &mut batch[at]) {
                (Ok(body), Ok(push)) => push.body = body,
                (Err(error), push) => *push = Err(ended(Outcome::DropMessage, error.code())),
                (Ok(_), Err(_)) => {}
            }
        }
    }

    async fn send(&self, attempt: &Attempt, push: WebpushCall) -> Result<Report, Ended> {
        Ok(Report { key: Some(push.token.key), ..self.push(attempt, &push).await })
    }
}

impl WebPushChannel {
    /// One call, and a second one without a topic if the service refuses the topic.
    async fn push(&self, attempt: &Attempt, push: &WebpushCall) -> Report {
        let report = self.exchange(attempt, push, true).await;
        let has_topic = attempt.message.envelope.collapse_key.is_some();
        if !has_topic || report.code.as_deref() != Some(BAD_TOPIC) {
            return report;
        }
        tracing::warn!(delivery = %attempt.delivery, "the push service refused the topic; sent again without it");
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
        let now = self.wiring.clock.wall();
        let code = push.service.code(&response);
        if response.status.is_success() {
            token.worked(now);
        }
        let reading = Reading {
            service: push.service.name(),
            code: code.map(|code| whose_key(code, push, now)),
            token_age: Some(now.since(token.signed_at)),
            provider_id: scrub::header(&response.headers, push.service.id_header()),
            secret_url: Some(&push.endpoint),
            ..Reading::default()
        };
        self.wiring.judge(&response, reading)
    }
}

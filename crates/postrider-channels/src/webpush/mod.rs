//! Web Push: RFC 8030 with RFC 8291 encryption and RFC 8292 identification.
//!
//! Never reuses an encrypted body, never rebuilds an endpoint, never follows a redirect.

mod encrypt;
mod keys;
mod render;
mod service;
mod vapid;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use postrider_core::{
    Attempt, Channel, ChannelKind, Finished, KeyId, Outcome, Report, Target, TenantId,
};
use serde::{Deserialize, Serialize};

pub use encrypt::{EncryptError, Padding, Plain, encrypt_batch};
pub use keys::{SubscriptionKeys, VapidKey, VapidSubject};
pub use render::{PLAINTEXT_MAX, plaintext_len, render};
pub use vapid::{Token, Tokens};
pub(crate) use wire::AGENT;
pub use wire::topic;

use crate::deliver::{self, Protocol, Reading, Wiring};
use crate::pool::{Endpoint, Request};
use crate::{Error, scrub};
use service::Service;

/// Where VAPID keys come from.
pub trait VapidKeys: Send + Sync {
    /// The key that a subscription was made with, or the tenant's active one.
    fn key(&self, tenant: &TenantId, id: Option<KeyId>) -> Option<Arc<VapidKey>>;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebPushConfig {
    /// Whom a push service may write to about us: `mailto:` or `https:`.
    pub subject: String,
    pub padding: Padding,
}

impl Default for WebPushConfig {
    fn default() -> Self {
        Self { subject: "mailto:postrider@example.com".to_owned(), padding: Padding::default() }
    }
}

pub struct WebPushChannel {
    wiring: Wiring,
    keys: Arc<dyn VapidKeys>,
    tokens: Tokens,
    padding: Padding,
}

impl WebPushChannel {
    pub fn new(
        wiring: Wiring,
        keys: Arc<dyn VapidKeys>,
        config: &WebPushConfig,
    ) -> Result<Self, Error> {
        let tokens = Tokens::new(VapidSubject::parse(&config.subject)?);
        Ok(Self { wiring, keys, tokens, padding: config.padding })
    }
}

#[async_trait]
impl Channel for WebPushChannel {
    fn kind(&self) -> ChannelKind {
        ChannelKind::Webpush
    }

    async fn deliver(&self, batch: Vec<Attempt>, done: &(dyn Fn(Finished) + Send + Sync)) {
        deliver::deliver(self, batch, done).await;
    }
}

/// An attempt whose body is encrypted and whose token is at hand.
pub(crate) struct Push {
    endpoint: Endpoint,
    service: Service,
    token: Arc<Token>,
    body: Bytes,
}

/// An attempt of which all is known but the ciphertext.
struct Addressed {
    endpoint: Endpoint,
    service: Service,
    token: Arc<Token>,
    plain: Option<Plain>,
}

impl Protocol for WebPushChannel {
    type Ready = Push;

    fn prepare(&self, attempts: &[Attempt]) -> Vec<Result<Push, Report>> {
        let mut addressed: Vec<_> = attempts.iter().map(|a| self.address(a)).collect();
        let plain: Vec<Plain> =
            addressed.iter_mut().flatten().filter_map(|push| push.plain.clone()).collect();
        let mut bodies = encrypt_batch(&plain, self.padding).into_iter();
        let finish = |push: Addressed| {
            let body = match push.plain {
                None => Bytes::new(),
                Some(_) => {
                    bodies.next().unwrap_or(Err(EncryptError::Crypto)).map_err(unencrypted)?
                }
            };
            let Addressed { endpoint, service, token, .. } = push;
            Ok(Push { endpoint, service, token, body })
        };
        let mut finish = finish;
        addressed.into_iter().map(|push| push.and_then(&mut finish)).collect()
    }

    async fn send(&self, attempt: &Attempt, push: Push) -> Report {
        let signed_at = push.token.signed_at();
        let request = |now| Request {
            method: ::http::Method::POST,
            headers: wire::headers(attempt, &push.token, push.service, now, !push.body.is_empty()),
            body: push.body.clone(),
        };
        let response = match self.wiring.exchange(attempt, &push.endpoint, request).await {
            Ok(response) => response,
            Err(report) => return report,
        };
        let reading = Reading {
            service: push.service.name(),
            code: push.service.code(&response),
            token_age: Some(self.wiring.clock.now().since(signed_at)),
            provider_id: scrub::header(&response.headers, push.service.id_header()),
            hide: &[attempt.target.url()],
        };
        self.wiring.judge(attempt, &response, reading)
    }
}

impl WebPushChannel {
    fn address(&self, attempt: &Attempt) -> Result<Addressed, Report> {
        let Target::Webpush { endpoint: url, p256dh, auth, vapid_key } = &*attempt.target else {
            return Err(Report::new(Outcome::DropMessage).code("wrong_channel"));
        };
        if service::is_dead(url) {
            return Err(Report::new(Outcome::Gone).code("dead_endpoint"));
        }
        let endpoint = self.wiring.endpoint(url)?;
        let message = &attempt.message;
        let key = self.keys.key(&message.tenant, *vapid_key).ok_or_else(|| {
            Report::new(Outcome::Config)
                .code("vapid_key_missing")
                .detail("the VAPID key that this subscription was made with is not here")
        })?;
        let token = self
            .tokens
            .get(&key, endpoint.origin(), self.wiring.clock.now(), attempt.resign)
            .map_err(|_| Report::new(Outcome::Config).code("vapid_sign"))?;
        let plaintext = render(attempt, self.wiring.clock.now())
            .map_err(|_| Report::new(Outcome::DropMessage).code("bad_content"))?;
        let plain = if plaintext.is_empty() {
            None
        } else {
            let keys = SubscriptionKeys::parse(p256dh, auth)
                .map_err(|_| Report::new(Outcome::DropMessage).code("bad_keys"))?;
            Some(Plain { ua_public: keys.p256dh, auth: keys.auth, plaintext })
        };
        let service = Service::of(endpoint.origin().host());
        Ok(Addressed { endpoint, service, token, plain })
    }
}

fn unencrypted(error: EncryptError) -> Report {
    let code = match error {
        EncryptError::TooLong => "payload_too_large",
        EncryptError::BadKey => "bad_keys",
        EncryptError::Crypto => "crypto",
    };
    Report::new(Outcome::DropMessage).code(code)
}

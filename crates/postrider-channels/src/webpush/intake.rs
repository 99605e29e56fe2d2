//! A browser's push subscription, as `PushSubscription.toJSON()` gives it.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_core::model::content::Content;
use postrider_core::model::json_fields::object;
use postrider_core::{ChannelIntake, CheckedAddress, FieldError, KeyId, Target};
use serde::Deserialize;

use super::keys::{decode_exact, decode_point};
use super::{PLAINTEXT_MAX, WebpushContent, WebpushTarget, plaintext_len};
use crate::ReceiptLinks;
use crate::address::{NetworkPolicy, check_url, read, shown};
use crate::definition::intake_of;
use crate::target::checked;

pub struct WebpushIntake {
    pub policy: NetworkPolicy,
    /// What adds the URL for receipts to each push, if one is added.
    pub receipts: Option<Arc<dyn ReceiptLinks>>,
}

impl WebpushIntake {
    fn check_endpoint(&self, endpoint: &str) -> Result<(), FieldError> {
        let url = check_url("endpoint", endpoint, self.policy)?;
        // Push services listen on the default port. Other ports would let a caller scan a host.
        if url.port().is_some() && !self.policy.allow_private_targets {
            return Err(FieldError::new("endpoint", "a port of its own", "the default port, 443"));
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subscription {
    #[serde(rename = "channel")]
    _channel: String,
    endpoint: String,
    #[serde(deserialize_with = "object")]
    keys: SubscriptionKeysRequest,
    /// Browsers send it, almost always as null. We do not need it.
    #[serde(rename = "expirationTime")]
    _expiration_time: Option<f64>,
    /// `PushManager.supportedContentEncodings`, where the page passes it on.
    encodings: Option<Vec<String>>,
    /// The one of them that the page chose.
    #[serde(rename = "contentEncoding")]
    encoding: Option<String>,
    vapid_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubscriptionKeysRequest {
    p256dh: String,
    auth: String,
}

const SHAPE: &str = "endpoint, keys {p256dh, auth}, and optionally vapid_key, encodings, \
                     contentEncoding, expirationTime";
const ENCODING: &str = "aes128gcm";

impl ChannelIntake for WebpushIntake {
    intake_of!(WebpushTarget);

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        let sub: Subscription = read(json, SHAPE)?;
        let mut errors = Vec::from_iter(self.check_endpoint(&sub.endpoint).err());
        let p256dh = decode_point(&sub.keys.p256dh).map_err(|found| {
            let allowed = "a point on P-256: 65 bytes, uncompressed, base64url (subscription.toJSON().keys.p256dh)";
            errors.push(FieldError::new("keys.p256dh", found, allowed));
        });
        let auth = decode_exact::<16>(&sub.keys.auth).map_err(|found| {
            let allowed = "16 bytes, base64url (subscription.toJSON().keys.auth)";
            errors.push(FieldError::new("keys.auth", found, allowed));
        });
        if sub.encodings.is_some_and(|list| !list.iter().any(|e| e == ENCODING)) {
            let allowed =
                "a list with aes128gcm; the browser must be updated, aesgcm is no longer sent";
            errors.push(FieldError::new("encodings", "no aes128gcm", allowed));
        }
        if let Some(other) = sub.encoding.filter(|chosen| chosen != ENCODING) {
            let allowed =
                "aes128gcm; aesgcm is no longer sent, subscribe again with a newer browser";
            errors.push(FieldError::new("contentEncoding", shown(&other), allowed));
        }
        let vapid_key = sub.vapid_key.as_deref().map(str::parse::<KeyId>).transpose();
        let vapid_key = vapid_key.map_err(|_| {
            let allowed = "the id of a VAPID key, key_…";
            errors.push(FieldError::new("vapid_key", "something else", allowed));
        });
        match (p256dh, auth, vapid_key) {
            (Ok(p256dh), Ok(auth), Ok(vapid_key)) if errors.is_empty() => {
                let target = WebpushTarget {
                    endpoint: sub.endpoint.into(),
                    p256dh: URL_SAFE_NO_PAD.encode(p256dh).into(),
                    auth: URL_SAFE_NO_PAD.encode(auth).into(),
                    vapid_key,
                };
                Ok(checked(target))
            }
            _ => Err(errors),
        }
    }

    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let own = WebpushContent::of(content).map_err(|error| vec![error])?;
        let len = plaintext_len(content, &own, self.receipts.as_ref());
        if len <= PLAINTEXT_MAX {
            return Ok(());
        }
        let field = if own.raw.is_some() { "webpush.raw" } else { "" };
        let allowed = format!("at most {PLAINTEXT_MAX} bytes before encryption (4096 after)");
        Err(vec![FieldError::new(field, format!("{len} bytes"), allowed)])
    }

    fn method<'a>(&self, _target: &'a Target) -> Cow<'a, str> {
        "POST".into()
    }
}

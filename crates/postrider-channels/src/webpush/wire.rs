//! The headers of a push request.

use ::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue};
use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_core::model::class::Urgency;
use postrider_core::model::message::Priority;
use postrider_core::policy::ttl;
use postrider_core::{Attempt, TenantId, Timestamp};

use super::TRAITS;
use super::service::Service;
use super::vapid::VapidToken;
use crate::pool::AGENT;

const TTL: HeaderName = HeaderName::from_static("ttl");
const URGENCY: HeaderName = HeaderName::from_static("urgency");
const TOPIC: HeaderName = HeaderName::from_static("topic");
const WNS_CACHE_POLICY: HeaderName = HeaderName::from_static("x-wns-cache-policy");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const AES128GCM: HeaderValue = HeaderValue::from_static("aes128gcm");

pub(super) fn headers(
    attempt: &Attempt,
    token: &VapidToken,
    service: Service,
    now: Timestamp,
    has_body: bool,
    has_topic: bool,
) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    let ttl_s = remaining_ttl_s(attempt, now);
    headers.insert(TTL, HeaderValue::from(ttl_s));
    headers.insert(URGENCY, HeaderValue::from_static(urgency(attempt).name()));
    headers.insert(CONTENT_TYPE, OCTETS);
    if has_body {
        headers.insert(CONTENT_ENCODING, AES128GCM);
    }
    headers.insert(AUTHORIZATION, token.authorization.clone());
    headers.insert(USER_AGENT, AGENT);
    if let Some(key) = attempt.message.envelope.collapse_key.as_ref().filter(|_| has_topic) {
        let topic = topic(&attempt.message.tenant, key);
        if let Ok(topic) = HeaderValue::try_from(topic) {
            headers.insert(TOPIC, topic);
        }
    }
    if service == Service::Wns {
        let policy = if ttl_s == 0 { "no-cache" } else { "cache" };
        headers.insert(WNS_CACHE_POLICY, HeaderValue::from_static(policy));
    }
    headers
}

/// What is left of the message's TTL, in whole seconds. A TTL of 0 ("now or never") stays 0, until a replay gives the
/// message a longer one.
fn remaining_ttl_s(attempt: &Attempt, now: Timestamp) -> u32 {
    let left = ttl::remaining_s(attempt.is_one_shot, attempt.expires_at, now);
    left.min(TRAITS.ttl_s_max)
}

/// The message's own priority, else its class's urgency.
pub(crate) fn urgency(attempt: &Attempt) -> Urgency {
    match attempt.message.envelope.priority {
        Some(Priority::Low) => Urgency::Low,
        Some(Priority::Normal) => Urgency::Normal,
        Some(Priority::High) => Urgency::High,
        None => attempt.class.urgency,
    }
}

/// A collapse key as a topic that every push service accepts: 32 characters of a hash.
pub fn topic(tenant: &TenantId, collapse_key: &str) -> String {
    let mut hash = Context::new(&SHA256);
    hash.update(tenant.as_str().as_bytes());
    hash.update(&[0]);
    hash.update(collapse_key.as_bytes());
    URL_SAFE_NO_PAD.encode(&hash.finish().as_ref()[..24])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_legal_everywhere_and_differs_between_tenants() {
        let one = topic(&TenantId::new("a"), "ord-91");
        assert_eq!(one.len(), 32);
        assert!(one.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
        assert_eq!(one, topic(&TenantId::new("a"), "ord-91"));
        assert_ne!(one, topic(&TenantId::new("b"), "ord-91"));
        assert_ne!(topic(&TenantId::new("ab"), "c"), topic(&TenantId::new("a"), "bc"));
    }
}

//! The headers of a notification.

use ::http::header::AUTHORIZATION;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use postrider_core::model::class::Urgency;
use postrider_core::{Attempt, DeliveryId};

use super::render::{self, ApnsDraft};
use super::token::ApnsToken;
use crate::pool::{JSON, own_headers};
use crate::webpush::urgency;

const TOPIC: HeaderName = HeaderName::from_static("apns-topic");
pub(super) const PUSH_TYPE: HeaderName = HeaderName::from_static("apns-push-type");
const ID: HeaderName = HeaderName::from_static("apns-id");
pub(super) const EXPIRATION: HeaderName = HeaderName::from_static("apns-expiration");
pub(super) const PRIORITY: HeaderName = HeaderName::from_static("apns-priority");
const COLLAPSE_ID: HeaderName = HeaderName::from_static("apns-collapse-id");

pub(super) fn headers(
    attempt: &Attempt,
    draft: &ApnsDraft,
    topic: &str,
    token: Option<&ApnsToken>,
) -> HeaderMap {
    let mut headers = common_headers(&draft.push_type.topic(topic), token);
    headers.insert(PUSH_TYPE, HeaderValue::from_static(draft.push_type.name));
    headers.insert(PRIORITY, priority(attempt, draft));
    headers.insert(EXPIRATION, changing(HeaderValue::from(expiration(attempt))));
    if let Ok(id) = HeaderValue::try_from(uuid(attempt.delivery)) {
        headers.insert(ID, changing(id));
    }
    if let Some(key) = &attempt.message.envelope.collapse_key {
        let id = render::collapse_id(&attempt.message.tenant, key);
        if let Ok(id) = HeaderValue::try_from(id) {
            headers.insert(COLLAPSE_ID, changing(id));
        }
    }
    headers
}

/// The headers of notifications and of the check of an account.
pub(super) fn common_headers(topic: &str, token: Option<&ApnsToken>) -> HeaderMap {
    let mut headers = own_headers(JSON);
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, token.authorization.clone());
    }
    if let Ok(topic) = HeaderValue::try_from(topic) {
        headers.insert(TOPIC, topic);
    }
    headers
}

/// A value that differs between requests. It stays out of HTTP/2's table of repeated headers, which is small.
fn changing(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// When the message expires, in seconds since 1970. For "now or never", Apple wants 0.
fn expiration(attempt: &Attempt) -> i64 {
    if attempt.is_one_shot { 0 } else { attempt.expires_at.as_secs() }
}

fn priority(attempt: &Attempt, draft: &ApnsDraft) -> HeaderValue {
    let by_urgency = match urgency(attempt) {
        // The only one that Apple takes for background pushes.
        _ if draft.push_type.is_background() => 5,
        Urgency::High | Urgency::Normal => 10,
        Urgency::VeryLow => 1,
        Urgency::Low => 5,
    };
    HeaderValue::from(draft.priority.unwrap_or(by_urgency))
}

/// The delivery's id as a UUID. It is the same in all attempts, so that Apple's records can be matched.
pub(super) fn uuid(id: DeliveryId) -> String {
    let hex = format!("{:032x}", id.0);
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_canonical_uuid() {
        let id = uuid(DeliveryId(0x0192_f3a4_5b6c_7d8e_9fa0_b1c2_d3e4_f506));
        assert_eq!(id, "0192f3a4-5b6c-7d8e-9fa0-b1c2d3e4f506");
        assert_eq!(uuid(DeliveryId(9)), "00000000-0000-0000-0000-000000000009");
    }
}

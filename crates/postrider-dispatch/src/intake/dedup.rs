//! Under which key a message is a repeat, and what must be the same for it to be one.

use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256, digest};
use postrider_core::model::content::{Content, raw_bytes};
use postrider_core::ports::store::{DedupKey, NewDelivery};
use postrider_core::{ChannelKind, Target, TenantId};

use super::Submission;
use super::request::{Dedupe, Request};

const WINDOW_MIN: Duration = Duration::from_secs(86_400);

pub(super) fn key(
    tenant: &TenantId,
    own: Option<&str>,
    request: &Request<'_>,
    submission: &Submission,
    content: &str,
    deliveries: &[NewDelivery],
    ttl_s: u32,
) -> Option<DedupKey> {
    let window = WINDOW_MIN.max(Duration::from_secs(u64::from(ttl_s)));
    let keyed = |kind: &str, parts: &[&[u8]]| hash(tenant, kind, parts);
    if let Some(own) = own {
        return Some(DedupKey { window, ..own_key(tenant, own, submission) });
    }
    if let Some(campaign) = &request.campaign {
        let mut parts: Vec<&[u8]> = Vec::with_capacity(deliveries.len() + 1);
        for delivery in deliveries {
            parts.push(delivery.recipient.as_ref().map_or(&delivery.hash.0[..], |r| r.as_bytes()));
        }
        parts.sort_unstable();
        parts.dedup();
        parts.push(campaign.as_bytes());
        // One message per campaign and recipient, whatever it says: never a conflict.
        return Some(DedupKey { key: keyed("campaign", &parts), fingerprint: [0; 16], window });
    }
    let by_content = match request.dedupe {
        Some(dedupe) => dedupe == Dedupe::Content,
        None => deliveries.iter().all(|d| d.lane.channel == ChannelKind::Http),
    };
    let [delivery] = deliveries else { return None };
    by_content.then(|| {
        let (method, url) = method_and_url(&delivery.target);
        let body = body_of(content, delivery.lane.channel);
        let key = keyed("content", &[method.as_bytes(), url.as_bytes(), body.as_bytes()]);
        DedupKey { key, fingerprint: [0; 16], window }
    })
}

/// The key of a caller who names one. It needs nothing but the request itself.
pub(super) fn own_key(tenant: &TenantId, own: &str, submission: &Submission) -> DedupKey {
    DedupKey {
        key: hash(tenant, "key", &[own.as_bytes()]),
        fingerprint: fingerprint(&submission.body),
        window: WINDOW_MIN,
    }
}

fn hash(tenant: &TenantId, kind: &str, parts: &[&[u8]]) -> [u8; 16] {
    let mut context = Context::new(&SHA256);
    for part in [tenant.as_str().as_bytes(), kind.as_bytes()].iter().chain(parts) {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    half(context.finish().as_ref())
}

/// The request as it was meant: the order of fields and white space do not count.
fn fingerprint(body: &[u8]) -> [u8; 16] {
    let canonical = serde_json::from_slice::<serde_json::Value>(body).ok().map(|mut value| {
        if let Some(object) = value.as_object_mut() {
            object.remove("idempotency_key");
        }
        value.to_string()
    });
    half(digest(&SHA256, canonical.as_deref().map_or(body, str::as_bytes)).as_ref())
}

fn method_and_url(target: &Target) -> (String, String) {
    let method = match target {
        Target::Http { method, .. } => method.to_ascii_uppercase(),
        // What names no method is told apart by its channel: one text may be a place in two of them.
        Target::Webpush { .. } | Target::Webhook { .. } => "POST".to_owned(),
        other => other.channel().name().to_owned(),
    };
    let place = target.place();
    let url = url::Url::parse(place).map_or_else(|_| place.to_owned(), Into::into);
    (method, url)
}

/// The part of the content that the channel would send.
fn body_of(content: &str, channel: ChannelKind) -> String {
    let parsed = Content::parse(content).ok();
    let raw = parsed.as_ref().and_then(|c| match channel {
        ChannelKind::Http => c.http.as_ref()?.body,
        ChannelKind::Webhook => c.webhook.as_ref()?.payload,
        ChannelKind::Fcm => c.fcm.as_ref()?.message,
        ChannelKind::Apns => c.apns.as_ref()?.payload,
        ChannelKind::Chat => c.chat.as_ref()?.payload,
        ChannelKind::Webpush | ChannelKind::Email | ChannelKind::Sms => None,
    });
    raw.map_or_else(|| content.to_owned(), |raw| raw_bytes(raw).into_owned())
}

fn half(hash: &[u8]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    half
}

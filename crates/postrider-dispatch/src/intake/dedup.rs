//! Under which key a message is a repeat, and what must be the same for it to be one.

use std::borrow::Cow;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256, digest};
use postrider_core::model::content::{Content, raw_bytes};
use postrider_core::ports::store::{Admission, DedupKey, NewDelivery, StoreResult};
use postrider_core::{ChannelIntake, ChannelKind, MessageId, TenantId};

use super::request::{Dedupe, SubmittedMessage};
use super::{MessageIntake, Submission};

/// The window of a key that is only looked for.
const ANY_WINDOW: Duration = Duration::from_secs(86_400);

/// A message that may be a repeat.
pub(super) struct DedupSubject<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) own_key: Option<&'a str>,
    pub(super) request: &'a SubmittedMessage<'a>,
    pub(super) submission: &'a Submission,
    /// The content as JSON text.
    pub(super) text: &'a str,
    pub(super) content: &'a Content<'a>,
    pub(super) deliveries: &'a [NewDelivery],
    pub(super) ttl_s: u32,
    /// How long its key is kept at the least.
    pub(super) window: Duration,
}

/// By which keys a message, or each of its deliveries, is a repeat.
#[derive(Default)]
pub(super) struct DedupKeys {
    pub(super) message: Option<DedupKey>,
    /// One for each delivery, or none at all.
    pub(super) members: Vec<DedupKey>,
}

impl<'a> DedupSubject<'a> {
    pub(super) fn keys(
        &self,
        channel: impl Fn(ChannelKind) -> Option<&'a dyn ChannelIntake>,
    ) -> DedupKeys {
        let campaign = self.request.campaign.as_deref().filter(|_| self.own_key.is_none());
        let Some(campaign) = campaign else {
            return DedupKeys { message: self.key(channel), members: Vec::new() };
        };
        let mut members: Vec<_> =
            self.deliveries.iter().map(|delivery| self.campaign_key(campaign, delivery)).collect();
        let message = if members.len() == 1 { members.pop() } else { None };
        DedupKeys { message, members }
    }

    fn window(&self) -> Duration {
        self.window.max(Duration::from_secs(u64::from(self.ttl_s)))
    }

    fn key(
        &self,
        channel: impl Fn(ChannelKind) -> Option<&'a dyn ChannelIntake>,
    ) -> Option<DedupKey> {
        let window = self.window();
        if let Some(own) = self.own_key {
            return Some(DedupKey { window, ..own_key(self.tenant, own, self.submission) });
        }
        let never_conflicts = |key| Some(DedupKey { key, fingerprint: [0; 16], window });
        let by_content = match self.request.dedupe {
            Some(dedupe) => dedupe == Dedupe::Content,
            None => self.deliveries.iter().all(|delivery| {
                channel(delivery.lane.channel).is_some_and(|c| c.traits().dedupes_content)
            }),
        };
        if !by_content {
            return None;
        }
        let mut keys = Vec::with_capacity(self.deliveries.len());
        for delivery in self.deliveries {
            let channel = channel(delivery.lane.channel)?;
            let method = channel.method(&delivery.target);
            let locator = channel.locator(&delivery.target);
            let body = channel.own_body(self.content).map_or(Cow::Borrowed(self.text), raw_bytes);
            keys.push(content_key(self.tenant, &method, &locator, &body));
        }
        match keys.as_mut_slice() {
            [key] => never_conflicts(*key),
            keys => {
                // The order of the addresses does not count.
                keys.sort_unstable();
                let parts: Vec<&[u8]> = keys.iter().map(<[u8; 16]>::as_slice).collect();
                never_conflicts(hash(self.tenant, "contents", &parts))
            }
        }
    }

    /// One message per campaign, run, recipient and address, whatever it says: never a conflict.
    fn campaign_key(&self, campaign: &str, delivery: &NewDelivery) -> DedupKey {
        let run = self.request.campaign_run.as_deref();
        let key = campaign_key(self.tenant, campaign, run, delivery);
        DedupKey { key, fingerprint: [0; 16], window: self.window() }
    }
}

fn campaign_key(
    tenant: &TenantId,
    campaign: &str,
    run: Option<&str>,
    delivery: &NewDelivery,
) -> [u8; 16] {
    let recipient = delivery.recipient.as_deref().unwrap_or_default();
    let parts = [campaign, run.unwrap_or_default(), recipient].map(str::as_bytes);
    // The id of a registered address stays the same when its hash changes.
    let address = delivery.address.map_or(delivery.hash.0, |id| id.0.to_be_bytes());
    hash(tenant, "campaign member", &[parts[0], parts[1], parts[2], &address])
}

/// The key of a message that is known by what is sent, and where.
fn content_key(tenant: &TenantId, method: &str, locator: &str, body: &str) -> [u8; 16] {
    let url = url::Url::parse(locator).map_or_else(|_| locator.to_owned(), Into::into);
    hash(tenant, "content", &[method.as_bytes(), url.as_bytes(), body.as_bytes()])
}

/// The key of a caller who names one. It needs nothing but the request itself.
pub(super) fn own_key(tenant: &TenantId, own: &str, submission: &Submission) -> DedupKey {
    DedupKey { fingerprint: fingerprint(&submission.body), ..any_of_key(tenant, own) }
}

/// Some message under this key, whatever it says.
fn any_of_key(tenant: &TenantId, own: &str) -> DedupKey {
    let key = hash(tenant, "key", &[own.as_bytes()]);
    DedupKey { key, fingerprint: [0; 16], window: ANY_WINDOW }
}

impl MessageIntake {
    /// The message that was accepted under this key, while the key is remembered.
    pub async fn message_of_key(
        &self,
        tenant: &TenantId,
        own: &str,
    ) -> StoreResult<Option<MessageId>> {
        let found = self.store.repeats(vec![any_of_key(tenant, own)]).await?.pop().flatten();
        Ok(found.map(|admission| match admission {
            Admission::Accepted { message, .. }
            | Admission::Duplicate { message, .. }
            | Admission::Conflict { message }
            | Admission::RepeatedMembers { message, .. } => message,
        }))
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
            // A repeat is another call, which may be part of another trace.
            object.remove("traceparent");
        }
        value.to_string()
    });
    half(digest(&SHA256, canonical.as_deref().map_or(body, str::as_bytes)).as_ref())
}

fn half(hash: &[u8]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(key: [u8; 16]) -> String {
        key.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Keys are stored: a repeat must be recognised across an upgrade.
    #[test]
    fn keys_are_the_same_as_in_earlier_versions() {
        let tenant = TenantId::new("acme");
        let submission = Submission {
            body: br#"{"b":1,"a":[1, 2],"idempotency_key":"k1"}"#.as_slice().into(),
            idempotency_key: None,
            traceparent: None,
        };
        let own = own_key(&tenant, "k1", &submission);
        assert_eq!(hex(own.key), "80064263fed2d2988134cbc98355f094");
        assert_eq!(hex(own.fingerprint), "94a786c3662bc7beeb598efa7d8cb58d");
        let key = |method, locator, body| hex(content_key(&tenant, method, locator, body));
        let put = key("PUT", "https://API.example.com:443/x?y=1", r#"{"b":  2}"#);
        assert_eq!(put, "725d1e362f76caeeb481a1c355e6f707");
        let no_url = key("sms", "+4915112345678", r#"{"title":"Hi"}"#);
        assert_eq!(no_url, "13fa465a7170602452211b94f9828619");
    }
}

//! `[webpush]`, and what the program knows about Web Push.

use async_trait::async_trait;
use postrider_core::model::content::{Content, read_part};
use postrider_core::{FieldError, KeyId};
use serde_json::json;

use super::{
    KIND, PLAINTEXT_MAX, VapidKey, WebPushChannel, WebpushContent, WebpushIntake, plaintext_len,
};
use crate::Error;
use crate::accounts::health::Finding;
use crate::definition::{
    AddressField, BuiltChannel, ChannelDefinition, ChannelFacts, ChannelParts, FieldForm,
};
use crate::preview::{ContentPreview, common_fields};
use crate::settings::{ChannelLimits, SecretText, channel_section};

channel_section! {
    /// Web Push.
    WebpushSection as "webpush" {
        /// Whom a push service can write to about our traffic: mailto: or https:.
        subject: String = "mailto:postrider@example.com".to_owned(),
        /// The VAPID private key of the tenant `default`, as `web-push generate-vapid-keys` prints
        /// it. Also VAPID_PRIVATE_KEY. Without one, the first start makes a key pair.
        vapid_private_key: Option<SecretText> = None,
    }
    limits + per_address "Requests" " to one origin" =
        ChannelLimits { concurrency: 1024, ..ChannelLimits::USUAL }
}

const KEYS: FieldForm = FieldForm::Object { name: "SubscriptionKeys", fields: &["p256dh", "auth"] };

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<WebpushContent<'_>>(KIND, raw).map(drop),
    accounts: None,
    address_fields: &[
        AddressField::text("endpoint", "the subscription's endpoint"),
        AddressField { name: "keys", about: "the subscription's keys", form: KEYS, required: true },
    ],
    // The keys of the example in RFC 8291.
    address_example: r#"{"channel": "webpush", "endpoint": "https://push.example.com/subscriptions/91", "keys": {
        "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg"}}"#,
    content_about: "`{\"raw\": \"…\"}`: the plaintext, byte for byte.",
    send_option: None,
};

#[async_trait]
impl ChannelDefinition for WebpushSection {
    fn check(&self) -> Result<(), FieldError> {
        let subject = self.subject.as_str();
        let contact = subject.strip_prefix("mailto:").map(|m| m.contains('@'));
        let contact = contact.unwrap_or_else(|| subject.starts_with("https://"));
        if !contact || subject.contains("localhost") {
            let allowed = "a mailto: or https: contact that push services can reach, e.g. \
                           mailto:ops@example.com";
            return Err(FieldError::new("subject", format!("{subject:?}"), allowed));
        }
        match self.concurrency {
            0 => Err(FieldError::new("concurrency", "0", "at least 1")),
            _ => Ok(()),
        }
    }

    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        let own = WebpushContent::of(content).ok()?;
        let bytes = plaintext_len(content, &own, None);
        let parts = match own.raw.as_deref() {
            Some(raw) => json!({ "body": raw }),
            None => json!({ "body": common_fields(content) }),
        };
        Some(ContentPreview::new(parts, bytes, Some(PLAINTEXT_MAX)))
    }

    fn examine_settings(&self) -> Vec<Finding> {
        vec![self.examine_key(), examine_subject(&self.subject)]
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let channel = WebPushChannel::new(parts.wiring, parts.vapid_keys, &self.subject)?;
        let (policy, receipts) = (parts.network, parts.receipts);
        let channel = channel.with_receipts(receipts.clone());
        Ok(BuiltChannel::without_accounts(channel, WebpushIntake { policy, receipts }))
    }
}

impl WebpushSection {
    fn examine_key(&self) -> Finding {
        match &self.vapid_private_key {
            None => Finding::ok("vapid", "kept in the store; the first start makes a key pair"),
            Some(key) => match VapidKey::from_raw_private(KeyId(0), key.reveal()) {
                Ok(_) => Finding::ok("vapid", "the configured private key is one"),
                Err(error) => Finding::fail(
                    "vapid",
                    format!("webpush.vapid_private_key: {error}"),
                    "give the private key as web-push generate-vapid-keys prints it: 32 bytes in base64url",
                ),
            },
        }
    }
}

/// Warns about domains at which nobody can be reached.
fn examine_subject(subject: &str) -> Finding {
    let host = subject.trim_start_matches("mailto:").trim_start_matches("https://");
    let host = host.rsplit('@').next().unwrap_or_default().split(['/', ':', '?']).next();
    let host = host.unwrap_or_default().to_ascii_lowercase();
    let placeholder =
        ["example.com", "example.org", "example.net", "localhost"].iter().any(|known| {
            host == *known || host.strip_suffix(known).is_some_and(|rest| rest.ends_with('.'))
        }) || [".example", ".invalid", ".test", ".local"].iter().any(|end| host.ends_with(end));
    match placeholder {
        false => Finding::ok("vapid_subject", "push services can write to it"),
        true => Finding::warn(
            "vapid_subject",
            format!("webpush.subject = {subject:?} is a placeholder"),
            "set webpush.subject to an address of yours: push services write there, and Apple refuses what is no real contact",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::health::Verdict;

    #[test]
    fn a_contact_that_nobody_can_write_to_is_a_warning() {
        for (subject, verdict) in [
            ("mailto:postrider@example.com", Verdict::Warn),
            ("mailto:ops@mail.example.org", Verdict::Warn),
            ("https://shop.test/contact", Verdict::Warn),
            ("mailto:ops@notexample.com", Verdict::Ok),
            ("https://shop.postrider.dev/contact", Verdict::Ok),
        ] {
            assert_eq!(examine_subject(subject).verdict, verdict, "{subject}");
        }
    }
}

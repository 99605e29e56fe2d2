//! `[apns]`, and what the program knows about the Apple Push Notification service.

use async_trait::async_trait;
use postrider_core::model::content::{Content, read_part};
use serde_json::{Value, json};

use super::{ApnsAccount, ApnsChannel, ApnsContent, ApnsIntake, KIND, render};
use crate::Error;
use crate::definition::{
    AccountGuide, AddressField, BuiltChannel, ChannelDefinition, ChannelFacts, ChannelParts,
    SendOption, SendOptionField,
};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, channel_section};

channel_section! {
    /// The Apple Push Notification service.
    ApnsSection as "apns" {}
    limits "Notifications" ", all accounts together" =
        ChannelLimits { concurrency: 1024, timeout_s: 20, ..ChannelLimits::USUAL }
}

const ACCOUNTS: &str = "\
# apns: credential is the signing key (.p8) of team_id and key_id, or, without those, a PEM file with
# certificate and key; topics are the bundle ids that it may send to (all if empty).
# [accounts.apple]
# channel = \"apns\"
# tenant = \"*\"
# credential = \"file:/run/secrets/AuthKey_ABCDE12345.p8\"
# team_id = \"FGHIJ67890\"
# key_id = \"ABCDE12345\"
# topics = [\"com.example.app\"]
";

const TOPIC: SendOptionField = SendOptionField {
    name: "topic",
    value_name: "BUNDLE",
    help: "The app's bundle id, for --apns",
    is_required: true,
};
const ENVIRONMENT: SendOptionField = SendOptionField {
    name: "environment",
    value_name: "PLACE",
    help: "Where the Apple device was registered: production or sandbox; found out if not given",
    is_required: false,
};

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<ApnsContent<'_>>(KIND, raw).map(drop),
    accounts: Some(AccountGuide::of::<ApnsAccount>(ACCOUNTS)),
    address_fields: &[
        AddressField::text("token", "the device's token"),
        AddressField::text("topic", "the app's bundle id"),
        AddressField::optional_text("environment", "`production` or `sandbox`"),
    ],
    address_example: r#"{"channel": "apns", "token": "a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4", "topic": "com.example.shop"}"#,
    content_about: "`{\"payload\": …, \"push_type\": \"alert\", \"priority\": 10}`: the payload as Apple gets it.",
    send_option: Some(SendOption {
        value_name: "TOKEN",
        help: "To an Apple device by its token, with --topic",
        field: "token",
        more: &[TOPIC, ENVIRONMENT],
        example: Some("--apns TOKEN --topic com.example.app --title Shipped"),
    }),
};

#[async_trait]
impl ChannelDefinition for ApnsSection {
    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        let draft = render::draft(content, &ApnsContent::of(content).ok()?).ok()?;
        let payload: Value = serde_json::from_slice(&draft.payload).unwrap_or_default();
        let parts = json!({"payload": payload, "push_type": draft.push_type.name});
        let bytes_max = Some(draft.push_type.payload_max());
        Some(ContentPreview::new(parts, draft.payload.len(), bytes_max))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let accounts = parts.read_accounts()?;
        let channel = ApnsChannel::new(parts.wiring, accounts, parts.breaker);
        channel.load().await;
        let accounts = channel.accounts().clone();
        let intake = ApnsIntake { serves: accounts.serving() };
        Ok(BuiltChannel::with_accounts(channel, intake, accounts))
    }
}

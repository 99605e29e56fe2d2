//! `[apns]`, and what the program knows about the Apple Push Notification service.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ChannelKind;
use postrider_core::model::content::{Content, PartCheck};
use serde_json::{Value, json};

use super::{ApnsAccount, ApnsChannel, ApnsIntake, KIND, check_part, render};
use crate::accounts::check_fields;
use crate::definition::{
    AccountGuide, AddressField, BuiltChannel, ChannelDefinition, ChannelParts, SendOption,
    SendOptionField,
};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, SectionInfo, limits};
use crate::{Error, section};

section! {
    /// The Apple Push Notification service.
    ApnsSection as "apns" {
        /// Requests in flight, through all accounts together.
        concurrency: usize = 400,
        /// Notifications per second, all accounts together; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 20,
    }
}

const ACCOUNTS: &str = "\
# apns: credential is the signing key (.p8) of team_id and key_id, or, without those, a PEM file with
# certificate and key; topics are the bundle ids that it may send to (all if empty).
# [accounts.apple]
# channel = \"apns\"
# credential = \"file:/run/secrets/AuthKey_ABCDE12345.p8\"
# team_id = \"FGHIJ67890\"
# key_id = \"ABCDE12345\"
# topics = [\"com.example.app\"]
";

#[async_trait]
impl ChannelDefinition for ApnsSection {
    fn kind(&self) -> ChannelKind {
        KIND
    }

    fn part_check(&self) -> PartCheck {
        check_part
    }

    fn section(&self) -> SectionInfo {
        Self::INFO
    }

    fn limits(&self) -> ChannelLimits {
        limits!(self)
    }

    fn services(&self) -> &'static [&'static str] {
        &["apns"]
    }

    fn accounts(&self) -> Option<AccountGuide> {
        let check = check_fields::<ApnsAccount>;
        Some(AccountGuide { reference: ACCOUNTS, usual_rate: None, check })
    }

    fn address_fields(&self) -> Vec<AddressField> {
        vec![
            AddressField::text("token", "the device's token"),
            AddressField::text("topic", "the app's bundle id"),
            AddressField::text("environment", "`production` or `sandbox`"),
        ]
    }

    fn content_about(&self) -> &'static str {
        "`{\"payload\": …, \"push_type\": \"alert\", \"priority\": 10}`: the payload as Apple gets it."
    }

    fn send_option(&self) -> Option<SendOption> {
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
        Some(SendOption {
            value_name: "TOKEN",
            help: "To an Apple device by its token, with --topic",
            field: "token",
            more: &[TOPIC, ENVIRONMENT],
            example: Some("--apns TOKEN --topic com.example.app --title Shipped"),
        })
    }

    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        let draft = render::draft(content).ok()?;
        let payload: Value = serde_json::from_slice(&draft.payload).unwrap_or_default();
        let parts = json!({"payload": payload, "push_type": draft.push_type.name});
        let bytes_max = Some(draft.push_type.payload_max());
        Some(ContentPreview::new(parts, draft.payload.len(), bytes_max))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let accounts = parts.read_accounts()?;
        let channel = ApnsChannel::new(parts.wiring, accounts, parts.breaker);
        // The watch and `doctor` report a credential that cannot be read; the others work without it.
        let _ = channel.load().await;
        let accounts = channel.accounts().clone();
        Ok(BuiltChannel {
            channel: Arc::new(channel),
            intake: Arc::new(ApnsIntake::new(accounts.clone())),
            accounts: Some(accounts),
        })
    }
}

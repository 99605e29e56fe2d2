//! `[fcm]`, and what the program knows about Firebase Cloud Messaging.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ChannelKind;
use postrider_core::model::content::{Content, PartCheck};
use postrider_core::policy::limiter::Rate;
use serde_json::json;

use super::{FcmAccount, FcmChannel, FcmIntake, KIND, check_part, render};
use crate::accounts::check_fields;
use crate::definition::{
    AccountGuide, AddressField, BuiltChannel, ChannelDefinition, ChannelParts, SendOption,
};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, SectionInfo, limits};
use crate::{Error, section};

section! {
    /// Firebase Cloud Messaging.
    FcmSection as "fcm" {
        /// Requests in flight, through all accounts together.
        concurrency: usize = 400,
        /// Messages per second, all accounts together; 0 for no limit. Google allows a project 10 000,
        /// counted by the minute.
        rate_per_s: f64 = 8_000.0,
        /// How many of them may come at once.
        rate_burst: u32 = 400,
        /// After a rest, the rate grows from a tenth to the whole within this time; Google asks for at
        /// least a minute.
        rate_ramp_s: u32 = 60,
        /// An attempt without an answer ends after this long; Google asks for at least 10 s.
        timeout_s: u64 = 30,
    }
}

const ACCOUNTS: &str = "\
# fcm: credential is a service account's JSON key; project, endpoint where they differ from its own.
# rate_per_s is 8000 with a ramp of 60 s where it is not named.
# [accounts.firebase]
# channel = \"fcm\"
# credential = \"file:/run/secrets/firebase.json\"
";

/// 600 000 per minute and project, some of it left for others; a ramp of at least a minute.
const USUAL_RATE: Rate = Rate { per_s: 8_000.0, burst: 400, ramp_s: 60 };

#[async_trait]
impl ChannelDefinition for FcmSection {
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
        &["fcm"]
    }

    fn accounts(&self) -> Option<AccountGuide> {
        let check = check_fields::<FcmAccount>;
        Some(AccountGuide { reference: ACCOUNTS, usual_rate: Some(USUAL_RATE), check })
    }

    fn address_fields(&self) -> Vec<AddressField> {
        vec![
            AddressField::text("token", "the device's token"),
            AddressField::text("fid", "the Firebase installation id, instead of a token"),
            AddressField::text("project", "the project of the app, if there are several projects"),
        ]
    }

    fn content_about(&self) -> &'static str {
        "`{\"message\": …}`: a `Message` of FCM HTTP v1 without its target."
    }

    fn send_option(&self) -> Option<SendOption> {
        Some(SendOption {
            value_name: "TOKEN",
            help: "To a device by its FCM registration token",
            field: "token",
            more: &[],
            example: Some("--fcm TOKEN --title Shipped --body 'Order 91'"),
        })
    }

    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        let message = render::draft(content).ok()?;
        let bytes = render::payload_len(&message);
        let parts = json!({ "message": message });
        Some(ContentPreview::new(parts, bytes, Some(render::PAYLOAD_MAX)))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let accounts = parts.read_accounts()?;
        let channel = FcmChannel::new(parts.wiring, accounts, parts.breaker);
        // The watch and `doctor` report a credential that cannot be read; the others work without it.
        let _ = channel.load().await;
        let accounts = channel.accounts().clone();
        Ok(BuiltChannel {
            channel: Arc::new(channel),
            intake: Arc::new(FcmIntake::new(accounts.clone())),
            accounts: Some(accounts),
        })
    }
}

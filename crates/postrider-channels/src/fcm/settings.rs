//! `[fcm]`, and what the program knows about Firebase Cloud Messaging.

use async_trait::async_trait;
use postrider_core::model::content::{Content, read_part};
use postrider_core::policy::limiter::Rate;
use serde_json::json;

use super::{FcmAccount, FcmChannel, FcmContent, FcmIntake, KIND, render};
use crate::Error;
use crate::definition::{
    AccountGuide, AddressField, BuiltChannel, ChannelDefinition, ChannelFacts, ChannelParts,
    SendOption,
};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, channel_section};

channel_section! {
    /// Firebase Cloud Messaging. Google allows a project 10 000 messages per second, counted by the minute. It asks
    /// for a ramp of at least a minute and a timeout of at least 10 s.
    FcmSection as "fcm" {}
    limits "Messages" ", all accounts together" = ChannelLimits {
        concurrency: 1024,
        rate_per_s: USUAL_RATE.per_s,
        rate_burst: USUAL_RATE.burst,
        rate_ramp_s: USUAL_RATE.ramp_s,
        ..ChannelLimits::USUAL
    }
}

const ACCOUNTS: &str = "\
# fcm: credential is a service account's JSON key; project, endpoint where they differ from its own.
# rate_per_s is 8000 with a ramp of 60 s where it is not named.
# [accounts.firebase]
# channel = \"fcm\"
# tenant = \"*\"
# credential = \"file:/run/secrets/firebase.json\"
";

/// 600 000 per minute and project, some of it left for others; a ramp of at least a minute.
const USUAL_RATE: Rate = Rate { per_s: 8_000.0, burst: 400, ramp_s: 60 };

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<FcmContent<'_>>(KIND, raw).map(drop),
    accounts: Some(AccountGuide {
        usual_rate: Some(USUAL_RATE),
        ..AccountGuide::of::<FcmAccount>(ACCOUNTS)
    }),
    address_fields: &[
        AddressField::optional_text("token", "the device's token"),
        AddressField::optional_text("fid", "the Firebase installation id, instead of a token"),
        AddressField::optional_text(
            "project",
            "the project of the app, if there are several projects",
        ),
    ],
    address_example: r#"{"channel": "fcm", "token": "dEv1ce-t0ken:APA91b"}"#,
    content_about: "`{\"message\": …}`: a `Message` of FCM HTTP v1 without its target.",
    send_option: Some(SendOption {
        value_name: "TOKEN",
        help: "To a device by its FCM registration token",
        field: "token",
        more: &[],
        example: Some("--fcm TOKEN --title Shipped --body 'Order 91'"),
    }),
};

#[async_trait]
impl ChannelDefinition for FcmSection {
    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        let message = render::draft(content, &FcmContent::of(content).ok()?).ok()?;
        let bytes = render::payload_len(&message);
        let parts = json!({ "message": message });
        Some(ContentPreview::new(parts, bytes, Some(render::PAYLOAD_MAX)))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let accounts = parts.read_accounts()?;
        let channel = FcmChannel::new(parts.wiring, accounts, parts.breaker);
        channel.load().await;
        let accounts = channel.accounts().clone();
        let intake = FcmIntake { serves: accounts.serving() };
        Ok(BuiltChannel::with_accounts(channel, intake, accounts))
    }
}

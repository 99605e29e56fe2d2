//! `[webhook]`, and what the program knows about webhooks.

use async_trait::async_trait;
use postrider_core::ChannelKind;
use postrider_core::model::content::{Content, PartCheck, raw_bytes};
use serde_json::json;

use super::{KIND, WebhookChannel, WebhookContent, WebhookIntake, check_part};
use crate::definition::{
    AddressField, BuiltChannel, ChannelDefinition, ChannelParts, FieldForm, SendOption,
};
use crate::preview::{ContentPreview, common_fields};
use crate::settings::{ChannelLimits, SectionInfo, limits};
use crate::{Error, section};

section! {
    /// Webhooks.
    WebhookSection as "webhook" {
        /// Requests in flight per origin.
        concurrency: usize = 100,
        /// Requests per second to one origin; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// Requests per second to one origin with one tenant's credential; 0 for no limit.
        rate_per_credential_s: f64 = 0.0,
        /// Requests per second to one address, one at a time; 0 for no limit.
        rate_per_address_s: f64 = 0.0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 30,
        /// A replaced secret goes on signing beside the new one for this long.
        secret_overlap_s: u64 = 86_400,
    }
}

#[async_trait]
impl ChannelDefinition for WebhookSection {
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
        limits!(self, + per_address)
    }

    fn services(&self) -> &'static [&'static str] {
        &["webhook"]
    }

    fn address_fields(&self) -> Vec<AddressField> {
        const SECRETS: AddressField = AddressField {
            name: "secrets",
            about: "the endpoint's own secrets, newest first",
            form: FieldForm::TextList,
        };
        vec![AddressField::text("url", "where to send"), SECRETS]
    }

    fn content_about(&self) -> &'static str {
        "`{\"payload\": …}`: the body, byte for byte."
    }

    fn send_option(&self) -> Option<SendOption> {
        Some(SendOption {
            value_name: "URL",
            help: "To a webhook's URL",
            field: "url",
            more: &[],
            example: Some("--webhook https://example.com/hook --title Shipped --body 'Order 91'"),
        })
    }

    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        if let Some(payload) = WebhookContent::of(content).ok()?.payload {
            return Some(ContentPreview::body(&raw_bytes(payload)));
        }
        let content = common_fields(content);
        let body =
            json!({"type": "message", "id": "msg_…", "delivery": "dlv_…", "content": content});
        Some(ContentPreview::body(&body.to_string()))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let channel = WebhookChannel::new(parts.wiring, parts.webhook_secrets);
        Ok(BuiltChannel::without_accounts(channel, WebhookIntake::new(parts.network)))
    }
}

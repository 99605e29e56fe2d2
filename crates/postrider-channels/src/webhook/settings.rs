//! `[webhook]`, and what the program knows about webhooks.

use async_trait::async_trait;
use postrider_core::model::content::{Content, raw_bytes, read_part};
use serde_json::json;

use super::{KIND, WebhookChannel, WebhookContent, WebhookIntake};
use crate::Error;
use crate::definition::{
    AddressField, BuiltChannel, ChannelDefinition, ChannelFacts, ChannelParts, FieldForm,
    SendOption,
};
use crate::preview::{ContentPreview, common_fields};
use crate::settings::{ChannelLimits, channel_section};

channel_section! {
    /// Webhooks.
    WebhookSection as "webhook" {
        /// A replaced secret goes on signing beside the new one for this long.
        secret_overlap_s: u64 = 86_400,
        /// Every address has a secret of its own, made from the tenant's, so that no receiver can forge a webhook to
        /// another one. False: all addresses of a tenant share its secret.
        secret_per_address: bool = true,
        /// Sign also with Ed25519 (`v1a`), which receivers can check but not make. Costs some 20 µs per call.
        ed25519: bool = false,
    }
    limits + per_address "Requests" " to one origin" = ChannelLimits::USUAL
}

const SECRETS: AddressField = AddressField {
    name: "secrets",
    about: "the endpoint's own secrets, newest first",
    form: FieldForm::TextList,
    required: false,
};

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<WebhookContent<'_>>(KIND, raw).map(drop),
    accounts: None,
    address_fields: &[AddressField::text("url", "where to send"), SECRETS],
    address_example: r#"{"channel": "webhook", "url": "https://example.com/hooks"}"#,
    content_about: "`{\"payload\": …}`: the body, byte for byte.",
    send_option: Some(SendOption {
        value_name: "URL",
        help: "To a webhook's URL",
        field: "url",
        more: &[],
        example: Some("--webhook https://example.com/hook --title Shipped --body 'Order 91'"),
    }),
};

#[async_trait]
impl ChannelDefinition for WebhookSection {
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
        let channel = WebhookChannel {
            wiring: parts.wiring,
            secrets: parts.webhook_secrets,
            secret_per_address: self.secret_per_address,
            ed25519: self.ed25519,
        };
        Ok(BuiltChannel::without_accounts(channel, WebhookIntake { policy: parts.network }))
    }
}

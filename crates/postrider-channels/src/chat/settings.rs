//! `[chat]`, and what the program knows about chat messages.

use async_trait::async_trait;
use postrider_core::model::content::{Content, raw_bytes, read_part};
use serde_json::json;

use super::{ChatChannel, ChatContent, ChatHosts, ChatIntake, ChatService, KIND, render};
use crate::Error;
use crate::definition::{
    AddressField, BuiltChannel, ChannelDefinition, ChannelFacts, ChannelParts, SendOption,
};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, channel_section};

channel_section! {
    /// Chat messages by incoming webhook.
    ChatSection as "chat" {
        /// The service of a host, or of a beginning of a URL without https://, that the name does not show:
        /// slack, discord, teams or other, e.g. { "chat.example.com" = "slack" }.
        hosts: ChatHosts = ChatHosts::default(),
    }
    limits "Requests" " to one origin" =
        ChannelLimits { concurrency: 20, ..ChannelLimits::USUAL }
}

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<ChatContent<'_>>(KIND, raw).map(drop),
    accounts: None,
    address_fields: &[AddressField::text("url", "where to send")],
    address_example: r#"{"channel": "chat", "url": "https://hooks.slack.com/services/T000/B000/XXXX"}"#,
    content_about: "`{\"payload\": …}`: the body, byte for byte.",
    send_option: Some(SendOption {
        value_name: "URL",
        help: "To the incoming webhook of Slack, Discord or Teams",
        field: "url",
        more: &[],
        example: None,
    }),
};

#[async_trait]
impl ChannelDefinition for ChatSection {
    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        if let Some(payload) = ChatContent::of(content).ok()?.payload {
            return Some(ContentPreview::body(&raw_bytes(payload)));
        }
        let parts = json!({
            "slack": render(ChatService::Slack, content),
            "discord": render(ChatService::Discord, content),
            "teams": render(ChatService::Teams, content),
        });
        let bytes = parts["slack"].to_string().len();
        Some(ContentPreview::new(parts, bytes, None))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let channel = ChatChannel { wiring: parts.wiring, hosts: self.hosts.clone() };
        let intake = ChatIntake { policy: parts.network, hosts: self.hosts.clone() };
        Ok(BuiltChannel::without_accounts(channel, intake))
    }
}

//! `[chat]`, and what the program knows about chat messages.

use std::collections::BTreeMap;

use async_trait::async_trait;
use postrider_core::ChannelKind;
use postrider_core::model::content::{Content, PartCheck, raw_bytes};
use serde_json::json;

use super::{ChatChannel, ChatContent, ChatIntake, Flavour, KIND, check_part, render};
use crate::definition::{AddressField, BuiltChannel, ChannelDefinition, ChannelParts, SendOption};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, SectionInfo, limits};
use crate::{Error, section};

section! {
    /// Chat messages by incoming webhook.
    ChatSection as "chat" {
        /// What hosts, or beginnings of URLs without https://, speak whose name does not tell: slack,
        /// discord, teams or other, e.g. { "chat.example.com" = "slack" }.
        hosts: BTreeMap<String, Flavour> = BTreeMap::new(),
        /// Requests in flight per origin.
        concurrency: usize = 20,
        /// Requests per second to one origin; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 30,
    }
}

#[async_trait]
impl ChannelDefinition for ChatSection {
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
        &["chat", "chat.slack", "chat.discord", "chat.teams"]
    }

    fn address_fields(&self) -> Vec<AddressField> {
        vec![AddressField::text("url", "where to send")]
    }

    fn content_about(&self) -> &'static str {
        "`{\"payload\": …}`: the body, byte for byte."
    }

    fn send_option(&self) -> Option<SendOption> {
        Some(SendOption {
            value_name: "URL",
            help: "To the incoming webhook of Slack, Discord or Teams",
            field: "url",
            more: &[],
            example: None,
        })
    }

    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        if let Some(payload) = ChatContent::of(content).ok()?.payload {
            return Some(ContentPreview::body(&raw_bytes(payload)));
        }
        let parts = json!({
            "slack": render(Flavour::Slack, content),
            "discord": render(Flavour::Discord, content),
            "teams": render(Flavour::Teams, content),
        });
        let bytes = parts["slack"].to_string().len();
        Some(ContentPreview::new(parts, bytes, None))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let channel = ChatChannel::new(parts.wiring, self.hosts.clone().into());
        let intake = ChatIntake::new(parts.network, self.hosts.clone().into());
        Ok(BuiltChannel::without_accounts(channel, intake))
    }
}

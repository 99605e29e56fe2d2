//! `[telegram]`, and what the program knows about Telegram.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::model::content::{Content, read_part};

use super::{
    KIND, TelegramAccount, TelegramBot, TelegramChannel, TelegramContent, TelegramIntake, render,
};
use crate::Error;
use crate::accounts::Accounts;
use crate::definition::{
    AccountGuide, AddressField, BuiltChannel, ChannelDefinition, ChannelFacts, ChannelParts,
    SendOption,
};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, channel_section};

channel_section! {
    /// Telegram, by the Bot API. Telegram allows a bot about 30 messages per second. Nobody knows whether a message was
    /// sent if the timeout ended its attempt.
    TelegramSection as "telegram" {}
    limits "Messages" ", all bots together" =
        ChannelLimits { concurrency: 30, ..ChannelLimits::USUAL }
}

const ACCOUNTS: &str = "\
# telegram: credential is the bot's token; endpoint is the Bot API server, if it is your own.
# [accounts.bot]
# channel = \"telegram\"
# tenant = \"*\"
# credential = \"env:TELEGRAM_BOT_TOKEN\"
";

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<TelegramContent<'_>>(KIND, raw).map(drop),
    accounts: Some(AccountGuide::of::<TelegramAccount>(ACCOUNTS)),
    address_fields: &[AddressField::text(
        "chat_id",
        "the chat's number, or `@name` of a public one",
    )],
    address_example: r#"{"channel": "telegram", "chat_id": "@shop_news"}"#,
    content_about: "Fields of `sendMessage`: `text`, `parse_mode`, `disable_notification`, `protect_content`, \
                    `message_thread_id`, `link_preview_options`, `reply_markup`.",
    send_option: Some(SendOption {
        value_name: "CHAT_ID",
        help: "To a Telegram chat by its number, or @name",
        field: "chat_id",
        more: &[],
        example: Some("--telegram @shop_news --title Shipped --body 'Order 91'"),
    }),
};

#[async_trait]
impl ChannelDefinition for TelegramSection {
    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        let draft = render::draft(content, TelegramContent::of(content).ok()?);
        Some(ContentPreview::new(draft.fields.into(), draft.text.len(), None))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let accounts = parts.read_accounts::<TelegramAccount>()?.into_iter();
        let accounts = accounts.map(|account| account.map(|own| TelegramBot::new(&own))).collect();
        let accounts = Arc::new(Accounts::with(KIND, accounts, parts.breaker, &parts.wiring));
        let channel = TelegramChannel { wiring: parts.wiring, accounts: accounts.clone() };
        let intake = TelegramIntake { serves: accounts.serving() };
        Ok(BuiltChannel::with_accounts(channel, intake, accounts))
    }
}

//! `[ntfy]`, and what the program knows about ntfy.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::model::content::{Content, read_part};

use super::{KIND, NtfyAccount, NtfyChannel, NtfyContent, NtfyIntake, render};
use crate::Error;
use crate::accounts::Accounts;
use crate::definition::{
    AccountGuide, AddressField, BuiltChannel, ChannelDefinition, ChannelFacts, ChannelParts,
    SendOption,
};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, channel_section};

channel_section! {
    /// Topics of ntfy servers. Nobody knows whether a message was sent if the timeout ended its attempt.
    NtfySection as "ntfy" {}
    limits "Messages" ", all servers together" =
        ChannelLimits { concurrency: 20, ..ChannelLimits::USUAL }
}

const ACCOUNTS: &str = "\
# ntfy: endpoint is the server, https://ntfy.sh if absent; credential is an access token, or with user a password.
# A server that is open to all needs neither.
# [accounts.ntfy]
# channel = \"ntfy\"
# tenant = \"*\"
# endpoint = \"https://ntfy.example.com\"
# credential = \"env:NTFY_TOKEN\"
";

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<NtfyContent<'_>>(KIND, raw).map(drop),
    accounts: Some(AccountGuide::of::<NtfyAccount>(ACCOUNTS)),
    address_fields: &[AddressField::text("topic", "the topic's name, without the server")],
    address_example: r#"{"channel": "ntfy", "topic": "shop_news"}"#,
    content_about: "Fields of a published message: `message`, `title`, `priority`, `tags`, `click`, `markdown`, \
                    `icon`, `attach`, `actions`.",
    send_option: Some(SendOption {
        value_name: "TOPIC",
        help: "To a topic of an ntfy server",
        field: "topic",
        more: &[],
        example: Some("--ntfy shop_news --title Shipped --body 'Order 91'"),
    }),
};

#[async_trait]
impl ChannelDefinition for NtfySection {
    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        let draft = render::draft(content, NtfyContent::of(content).ok()?);
        Some(ContentPreview::new(draft.fields.into(), draft.message.len(), None))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let accounts = parts.read_accounts::<NtfyAccount>()?.into_iter();
        let accounts = accounts.map(|account| account.map(|own| own.server())).collect();
        let accounts = Arc::new(Accounts::with(KIND, accounts, parts.breaker, &parts.wiring));
        let channel = NtfyChannel { wiring: parts.wiring, accounts: accounts.clone() };
        let intake = NtfyIntake { serves: accounts.serving() };
        Ok(BuiltChannel::with_accounts(channel, intake, accounts))
    }
}

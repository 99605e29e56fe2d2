//! `[sms]`, and what the program knows about text messages.

use async_trait::async_trait;
use postrider_core::model::content::{Content, read_part};
use serde_json::json;

use super::segments::{self, SmsEncoding};
use super::{KIND, SmsAccount, SmsCallbacks, SmsChannel, SmsContent, SmsIntake, render};
use crate::Error;
use crate::accounts::Accounts;
use crate::definition::{
    AccountGuide, AddressField, BuiltChannel, ChannelDefinition, ChannelFacts, ChannelParts,
    SendOption,
};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, channel_section};

channel_section! {
    /// Text messages. Nobody knows whether a message was sent if the timeout ended its attempt.
    SmsSection as "sms" {}
    limits "Messages" ", all accounts together" =
        ChannelLimits { concurrency: 25, ..ChannelLimits::USUAL }
}

const ACCOUNTS: &str = "\
# sms: provider is twilio (account_sid, user where an API key is used, credential, from: a number or MG…,
# callback_secret: the auth token, for receipts; or status_callback: where Twilio reports instead) or http, any gateway: url; format (form or json); fields with {to}, {from}, {text},
# {validity_s}, {delivery} and {secret} in them; auth (none, basic, bearer, header:NAME); id_at, code_at,
# ok_at with ok_values: JSON pointers into its answer; service: its name in [[classify]], behind sms.
# Builds with the feature smpp also have provider smpp: host, port, user (system id), credential,
# system_type, window, from.
# [accounts.twilio]
# channel = \"sms\"
# tenant = \"*\"
# account_sid = \"AC00000000000000000000000000000000\"
# credential = \"env:TWILIO_AUTH_TOKEN\"
# from = \"+15550100\"
# [accounts.gateway]
# channel = \"sms\"
# tenant = \"*\"
# provider = \"http\"
# priority = 1
# url = \"https://gateway.example/messages\"
# format = \"json\"
# fields = { to = \"{to}\", text = \"{text}\", ttl = \"{validity_s}\", ref = \"{delivery}\" }
# auth = \"bearer\"
# credential = \"env:GATEWAY_KEY\"
# id_at = \"/id\"
";

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<SmsContent<'_>>(KIND, raw).map(drop),
    accounts: Some(AccountGuide::of::<SmsAccount>(ACCOUNTS)),
    address_fields: &[AddressField::text("phone", "E.164, `+15550100`")],
    address_example: r#"{"channel": "sms", "phone": "+4915112345678"}"#,
    content_about: "`{\"text\": \"…\"}`",
    send_option: Some(SendOption {
        value_name: "PHONE",
        help: "To a phone, e.g. +4915112345678",
        field: "phone",
        more: &[],
        example: Some("--sms +4915112345678 --class otp --body 'Your code is 123456'"),
    }),
};

#[async_trait]
impl ChannelDefinition for SmsSection {
    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        let text = render(content, SmsContent::of(content).ok()?);
        let size = segments::of(&text);
        let encoding = match size.encoding {
            SmsEncoding::Gsm7 => "gsm7",
            SmsEncoding::Ucs2 => "ucs2",
        };
        let parts = json!({"text": text, "encoding": encoding, "units": size.units, "segments": size.count});
        Some(ContentPreview::new(parts, text.len(), None))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let accounts = Accounts::build(KIND, &parts, |own: SmsAccount| own.settings())?;
        let (wiring, receipts) = (parts.wiring, parts.receipts);
        let channel = SmsChannel { wiring, accounts: accounts.clone(), receipts };
        let intake = SmsIntake { serves: accounts.serving() };
        let callbacks = SmsCallbacks { accounts: accounts.clone() };
        Ok(BuiltChannel::with_accounts(channel, intake, accounts).with_callbacks(callbacks))
    }
}

//! `[sms]`, and what the program knows about text messages.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ChannelKind;
use postrider_core::model::content::{Content, PartCheck};
use serde_json::json;

use super::segments::{self, SmsEncoding};
use super::{KIND, SmsAccount, SmsChannel, SmsContent, SmsIntake, check_part, render};
use crate::accounts::{Accounts, check_fields};
use crate::definition::{
    AccountGuide, AddressField, BuiltChannel, ChannelDefinition, ChannelParts, SendOption,
};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, SectionInfo, limits};
use crate::{Error, section};

section! {
    /// Text messages.
    SmsSection as "sms" {
        /// Messages on their way at once, through all accounts together.
        concurrency: usize = 25,
        /// Messages per second, all accounts together; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// An attempt without an answer ends after this long, and nobody knows whether it was sent.
        timeout_s: u64 = 30,
    }
}

const ACCOUNTS: &str = "\
# sms: provider is twilio (account_sid, user where an API key is used, credential, from: a number or MG…,
# status_callback) or http, any gateway: url; format (form or json); fields with {to}, {from}, {text},
# {validity_s}, {delivery} and {secret} in them; auth (none, basic, bearer, header:NAME); id_at, code_at,
# ok_at with ok_values: JSON pointers into its answer; service: its name in [[classify]], behind sms.
# Builds with the feature smpp also have provider smpp: host, port, user (system id), credential,
# system_type, window, from.
# [accounts.twilio]
# channel = \"sms\"
# account_sid = \"AC00000000000000000000000000000000\"
# credential = \"env:TWILIO_AUTH_TOKEN\"
# from = \"+15550100\"
# [accounts.gateway]
# channel = \"sms\"
# provider = \"http\"
# priority = 1
# url = \"https://gateway.example/messages\"
# format = \"json\"
# fields = { to = \"{to}\", text = \"{text}\", ttl = \"{validity_s}\", ref = \"{delivery}\" }
# auth = \"bearer\"
# credential = \"env:GATEWAY_KEY\"
# id_at = \"/id\"
";

#[async_trait]
impl ChannelDefinition for SmsSection {
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
        &["sms.twilio", "sms.NAME"]
    }

    fn accounts(&self) -> Option<AccountGuide> {
        let check = check_fields::<SmsAccount>;
        Some(AccountGuide { reference: ACCOUNTS, usual_rate: None, check })
    }

    fn address_fields(&self) -> Vec<AddressField> {
        vec![AddressField::text("phone", "E.164, `+15550100`")]
    }

    fn content_about(&self) -> &'static str {
        "`{\"text\": \"…\"}`"
    }

    fn send_option(&self) -> Option<SendOption> {
        Some(SendOption {
            value_name: "PHONE",
            help: "To a phone, e.g. +4915112345678",
            field: "phone",
            more: &[],
            example: Some("--sms +4915112345678 --class otp --body 'Your code is 123456'"),
        })
    }

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
        let accounts = parts.read_accounts::<SmsAccount>()?.into_iter();
        let accounts = accounts.map(|account| account.map(|own| own.settings())).collect();
        let clock = parts.wiring.clock.clone();
        let accounts = Arc::new(Accounts::new(self.kind(), accounts, parts.breaker, clock));
        Ok(BuiltChannel {
            channel: Arc::new(SmsChannel::new(parts.wiring, accounts.clone())),
            intake: Arc::new(SmsIntake::new(accounts.serving())),
            accounts: Some(accounts),
        })
    }
}

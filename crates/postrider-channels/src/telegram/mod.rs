//! Telegram: `sendMessage` of the Bot API, one call per message. A bot is an account. Its token is a part of the URL
//! and appears in no log, detail or error. Reads no updates and edits no message; there is no idempotency key.

mod account;
mod answer;
mod content;
mod intake;
mod probe;
mod render;
mod settings;
mod target;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::Method;
use postrider_core::policy::account::AccountOffer;
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Outcome, Report, TenantId, Timestamp};

pub use account::TelegramAccount;
pub use content::TelegramContent;
pub use intake::TelegramIntake;
pub use settings::TelegramSection;
pub use target::TelegramTarget;

use crate::accounts::{Account, Accounts, Material};
use crate::deliver::{Ended, Protocol, Reading, Wiring, content_of, hidden_cause, impl_channel};
use crate::pool::{JSON, Request};
use crate::scrub::hide_exactly;
use crate::target::{ChannelTarget as _, target_of};
use answer::TelegramAnswer;

pub const KIND: ChannelKind = ChannelKind::new("telegram");
pub const TRAITS: ChannelTraits =
    ChannelTraits { has_accounts: true, shows_repeats: true, ..ChannelTraits::PLAIN };

/// A bot that can send.
pub struct TelegramBot {
    /// Where the Bot API is, without a slash at the end.
    endpoint: String,
    token: Material<String>,
    throttled: Mutex<Option<ThrottledChat>>,
}

/// The chat that last had to wait, and until when.
struct ThrottledChat {
    chat: u64,
    until: Timestamp,
}

impl TelegramBot {
    fn new(account: &TelegramAccount) -> Self {
        let endpoint = account.endpoint.trim_end_matches('/').to_owned();
        let token = Material::new(account.credential.clone(), account::read_token);
        Self { endpoint, token, throttled: Mutex::new(None) }
    }

    /// Notes that a chat has to wait. True if another chat has to wait at the same time: then the limit is that of the
    /// bot.
    fn throttle(&self, chat: &str, wait: Duration, now: Timestamp) -> bool {
        let mut hasher = DefaultHasher::new();
        chat.hash(&mut hasher);
        let chat = hasher.finish();
        let mut last = self.throttled.lock().unwrap_or_else(PoisonError::into_inner);
        let is_bot = last.as_ref().is_some_and(|last| last.chat != chat && now < last.until);
        *last = Some(ThrottledChat { chat, until: now + wait });
        is_bot
    }
}

pub struct TelegramChannel {
    wiring: Wiring,
    accounts: Arc<Accounts<TelegramBot>>,
}

impl_channel!(TelegramChannel);

/// A message without its chat.
pub(crate) struct TelegramDraft {
    text: String,
    fields: serde_json::Map<String, serde_json::Value>,
}

impl Protocol for TelegramChannel {
    type Ready = TelegramDraft;

    fn prepare(&self, attempt: &Attempt) -> Result<TelegramDraft, Ended> {
        let (content, own) = content_of(KIND, &attempt.message)?;
        Ok(render::draft(&content, own))
    }

    fn accounts(&self, tenant: &TenantId) -> Vec<AccountOffer> {
        self.accounts.offers(tenant)
    }

    async fn send(&self, attempt: &Attempt, draft: TelegramDraft) -> Result<Report, Ended> {
        let target: TelegramTarget<'_> = target_of(attempt)?;
        let bot = self.accounts.choose(attempt, |_| true).await?;
        let (mut report, moved_to) = self.call(&bot, attempt, &target, &draft).await;
        if let Some(new) = moved_to {
            // Nothing was sent: the group is a supergroup now and has another id.
            let moved = TelegramTarget { moved_to: Some(new.into()), ..target };
            (report, _) = self.call(&bot, attempt, &moved, &draft).await;
            if report.outcome == Outcome::Accepted && attempt.address_since.is_some() {
                report.target = Some(Arc::new(moved.to_target()));
            }
        }
        if report.outcome == Outcome::Config {
            bot.settings.token.forget();
        }
        Ok(bot.settle(attempt, report, |_| true))
    }
}

impl TelegramChannel {
    /// One call: its end, and the chat that took the place of this one.
    async fn call(
        &self,
        bot: &Account<TelegramBot>,
        attempt: &Attempt,
        target: &TelegramTarget<'_>,
        draft: &TelegramDraft,
    ) -> (Report, Option<String>) {
        let called = self.exchange(&bot.settings, attempt, target, draft).await;
        called.unwrap_or_else(|ended| (*ended, None))
    }

    async fn exchange(
        &self,
        bot: &TelegramBot,
        attempt: &Attempt,
        target: &TelegramTarget<'_>,
        draft: &TelegramDraft,
    ) -> Result<(Report, Option<String>), Ended> {
        let token = bot.token.get().await;
        let token = token.map_err(|why| hidden_cause("credential_unreadable", &why))?;
        let chat = target.moved_to.as_deref().unwrap_or(&target.chat_id);
        let endpoint = self.wiring.endpoint(&format!("{}/bot{token}/sendMessage", bot.endpoint))?;
        let body = render::body(chat, draft);
        let request = |_| Request::new(Method::POST, JSON, body);
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let mut answer = TelegramAnswer::read(response);
        if answer.is_throttled() {
            answer.is_about_the_bot = bot.throttle(chat, answer.wait(), self.wiring.clock.now());
        }
        let reading = Reading {
            service: KIND.name(),
            code: answer.code(),
            retry_after: answer.retry_after.map(|wait| wait.to_string()),
            provider_id: answer.message_id.take(),
            hide: &[&draft.text],
            secrets: &[&token],
            ..Reading::default()
        };
        let mut report = self.wiring.judge(&answer.response, reading);
        let moved_to = answer.moved_to.take();
        // The answer to a call to the new chat may name the old one.
        let new = moved_to.as_deref().unwrap_or_default();
        for secret in [chat, &target.chat_id, new] {
            report.detail = report.detail.map(|text| hide_exactly(&text, secret));
            report.code = report.code.map(|text| hide_exactly(&text, secret));
        }
        Ok((report, moved_to))
    }
}

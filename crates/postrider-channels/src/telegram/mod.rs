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

use ::http::header::{CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderMap, HeaderValue, Method};
use postrider_core::model::content::Content;
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Outcome, Report, Target, Timestamp};

pub use account::TelegramAccount;
pub use content::TelegramContent;
pub use intake::TelegramIntake;
pub use settings::TelegramSection;
pub use target::TelegramTarget;

use crate::accounts::{Account, Accounts, Material};
use crate::deliver::{Ended, Protocol, Reading, Wiring, bad_content, impl_channel, misconfigured};
use crate::pool::Request;
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

    /// Notes that a chat has to wait. True if another chat has to wait at the same time: then it is the bot that sends
    /// too much, not somebody to this chat.
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

    fn prepare(&self, attempts: &[Attempt]) -> Vec<Result<TelegramDraft, Ended>> {
        let draft = |attempt: &Attempt| {
            let content = Content::parse(&attempt.message.content).map_err(bad_content)?;
            render::draft(&content).map_err(bad_content)
        };
        attempts.iter().map(draft).collect()
    }

    async fn send(&self, attempt: &Attempt, draft: TelegramDraft) -> Report {
        let target: TelegramTarget<'_> = match target_of(attempt) {
            Ok(target) => target,
            Err(ended) => return *ended,
        };
        let bot = match self.accounts.choose(attempt, |_| true).await {
            Ok(bot) => bot,
            Err(ended) => return *ended,
        };
        let chat = target.moved_to.as_deref().unwrap_or(&target.chat_id);
        let (mut report, moved_to) = self.call(&bot, attempt, chat, &draft).await;
        if let Some(new) = moved_to {
            // Nothing was sent: the group is a supergroup now and has another id.
            (report, _) = self.call(&bot, attempt, &new, &draft).await;
            if report.outcome == Outcome::Accepted {
                report.target = moved(attempt, &target, &new);
            }
        }
        if report.outcome == Outcome::Config {
            bot.settings.token.forget();
        }
        bot.settle(attempt, report, |_| true)
    }
}

/// A registered address with the chat that took the place of its own.
fn moved(attempt: &Attempt, target: &TelegramTarget<'_>, new: &str) -> Option<Arc<Target>> {
    attempt.address_since?;
    let known = TelegramTarget { moved_to: Some(new.into()), ..target.clone() };
    Some(Arc::new(known.to_target()))
}

impl TelegramChannel {
    /// One call: its end, and the chat that took the place of this one.
    async fn call(
        &self,
        bot: &Account<TelegramBot>,
        attempt: &Attempt,
        chat: &str,
        draft: &TelegramDraft,
    ) -> (Report, Option<String>) {
        match self.exchange(bot, attempt, chat, draft).await {
            Ok(end) => end,
            Err(ended) => (*ended, None),
        }
    }

    async fn exchange(
        &self,
        bot: &Account<TelegramBot>,
        attempt: &Attempt,
        chat: &str,
        draft: &TelegramDraft,
    ) -> Result<(Report, Option<String>), Ended> {
        let settings = &bot.settings;
        let token = settings.token.get().await;
        let token = token.map_err(|why| misconfigured("credential_unreadable", &why))?;
        let url = format!("{}/bot{token}/sendMessage", settings.endpoint);
        let endpoint = self.wiring.endpoint(&url)?;
        let body = render::body(chat, draft);
        let request = |_| Request { method: Method::POST, headers: headers(), body: body.into() };
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let mut answer = TelegramAnswer::read(response);
        if answer.is_throttled() {
            let now = self.wiring.clock.now();
            answer.is_about_the_bot = settings.throttle(chat, answer.wait(), now);
        }
        let reading = Reading {
            service: KIND.name(),
            code: answer.code(),
            token_age: None,
            retry_after: answer.retry_after.map(|wait| wait.to_string()),
            provider_id: answer.message_id.take(),
            hide: &[&draft.text],
        };
        let mut report = self.wiring.judge(&answer.response, reading);
        // The target is hidden as well: the answer to a call to the new chat may name the old one.
        let shown = target_of(attempt).map_or_else(|_| "".into(), TelegramTarget::into_locator);
        let moved_to = answer.moved_to.take();
        for secret in [token.as_str(), chat, &shown, moved_to.as_deref().unwrap_or_default()] {
            report.detail = report.detail.map(|text| hide_exactly(&text, secret));
            report.code = report.code.map(|text| hide_exactly(&text, secret));
        }
        Ok((report, moved_to))
    }
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, crate::webpush::AGENT);
    headers
}

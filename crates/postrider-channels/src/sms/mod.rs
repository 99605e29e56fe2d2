//! Text messages through an HTTP gateway: Twilio, or any other whose form is described in the
//! configuration. One call per message; a call that was never answered is ambiguous, because no
//! gateway knows an idempotency key. A message counts for as many in rates and quotas as it has segments.

mod account;
mod content;
mod form;
mod intake;
mod probe;
mod reading;
mod render;
pub mod segments;
mod settings;
#[cfg(feature = "smpp")]
pub mod smpp;
mod target;

use std::sync::Arc;

use postrider_core::model::content::Content;
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Message, Outcome, Report, Timestamp};

pub use account::{SmsAccount, SmsProvider};
pub use content::SmsContent;
pub use form::{FormFormat, GatewayAuth, GatewayForm, SmsFormValues};
pub use intake::SmsIntake;
pub use reading::AnswerShape;
pub use render::render;
pub use settings::SmsSection;
pub use target::SmsTarget;

use crate::accounts::{Accounts, Material};
use crate::deliver::{Ended, Protocol, Reading, Wiring, bad_content, impl_channel, misconfigured};
use crate::email::hiding;
use crate::target::target_of;

pub const KIND: ChannelKind = ChannelKind::new("sms");
pub const TRAITS: ChannelTraits =
    ChannelTraits { has_accounts: true, shows_repeats: true, ..ChannelTraits::PLAIN };

/// What Twilio keeps a message at the most, in seconds.
pub const VALIDITY_S_MAX: u32 = 36_000;

/// One gateway account.
pub struct SmsSettings {
    /// The table's name for it, `sms.NAME`.
    pub service: String,
    pub url: String,
    pub form: GatewayForm,
    pub auth: GatewayAuth,
    pub secret: Option<Material<String>>,
    /// A number, a short code or a name; what stands for `{from}`.
    pub from: String,
    pub answer: AnswerShape,
    /// A message centre instead of an HTTP gateway.
    #[cfg(feature = "smpp")]
    pub smsc: Option<smpp::Smsc>,
}

pub struct SmsChannel {
    pub wiring: Wiring,
    pub accounts: Arc<Accounts<SmsSettings>>,
}

impl_channel!(SmsChannel);

fn text_of(message: &Message) -> Result<String, Ended> {
    let content = Content::parse(&message.content).map_err(bad_content)?;
    let own = SmsContent::of(&content).map_err(bad_content)?;
    Ok(render(&content, own).into_owned())
}

impl Protocol for SmsChannel {
    type Ready = String;

    fn prepare(&self, attempts: &[Attempt]) -> Vec<Result<String, Ended>> {
        attempts.iter().map(|attempt| text_of(&attempt.message)).collect()
    }

    /// Segments: what gateways bill and limit.
    fn weight(&self, message: &Message) -> u32 {
        text_of(message).map_or(1, |text| segments::of(&text).count)
    }

    async fn send(&self, attempt: &Attempt, text: String) -> Report {
        let to = match target_of(attempt) {
            Ok(SmsTarget { phone }) => phone,
            Err(ended) => return *ended,
        };
        let account = match self.accounts.choose(attempt, |_| true).await {
            Ok(account) => account,
            Err(ended) => return *ended,
        };
        account.charge(segments::of(&text).count.saturating_sub(1) as usize);
        let report = match self.through(attempt, &to, &account.settings, &text).await {
            Ok(report) => hiding(report, &to),
            Err(ended) => *ended,
        };
        account.settle(attempt, report, |_| true)
    }
}

impl SmsChannel {
    async fn through(
        &self,
        attempt: &Attempt,
        to: &str,
        account: &SmsSettings,
        text: &str,
    ) -> Result<Report, Ended> {
        #[cfg(feature = "smpp")]
        if let Some(smsc) = &account.smsc {
            return Ok(self.by_smpp(attempt, to, account, smsc, text).await);
        }
        let secret = match &account.secret {
            None => None,
            Some(secret) => {
                let known = secret.get().await;
                Some(known.map_err(|why| misconfigured("credential_missing", &why))?)
            }
        };
        let secret = secret.as_deref().map_or("", String::as_str);
        let endpoint = self.wiring.endpoint(&account.url)?;
        let request = |now| {
            let fields = SmsFormValues {
                to,
                from: &account.from,
                text,
                delivery: attempt.delivery,
                validity_s: validity_s(attempt, now),
                secret,
            };
            account.form.request(&account.auth, &fields)
        };
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let told = account.answer.read(response);
        let reading = Reading {
            service: &account.service,
            code: told.code,
            token_age: None,
            retry_after: None,
            provider_id: told.id,
            hide: &[to, text, &account.url],
        };
        let report = self.wiring.judge(&told.response, reading);
        if report.outcome == Outcome::Config {
            account.secret.iter().for_each(Material::forget);
        }
        Ok(report)
    }
}

/// What is left of the message's time: a second at least, because zero is for most gateways "no limit".
fn validity_s(attempt: &Attempt, now: Timestamp) -> u32 {
    let left = attempt.expires_at.since(now).as_secs();
    u32::try_from(left).unwrap_or(u32::MAX).clamp(1, VALIDITY_S_MAX)
}

#[cfg(feature = "smpp")]
impl SmsChannel {
    async fn by_smpp(
        &self,
        attempt: &Attempt,
        to: &str,
        account: &SmsSettings,
        smsc: &smpp::Smsc,
        text: &str,
    ) -> Report {
        use postrider_core::policy::classify::{ProviderAnswer, judge};
        let deadline = tokio::time::Instant::now() + self.wiring.attempt_timeout;
        let submit = || {
            let now = self.wiring.clock.now();
            let body = smpp::submit(&account.from, to, text, validity_s(attempt, now));
            (now < attempt.expires_at).then_some(body)
        };
        match smsc.send(deadline, submit).await {
            None => *crate::deliver::ended(Outcome::Expired, "ttl"),
            Some(smpp::SmscOutcome::Accepted(id)) => {
                Report { provider_id: id, ..Report::new(Outcome::Accepted) }
            }
            Some(smpp::SmscOutcome::Refused(status)) => {
                let code = format!("0x{status:02x}");
                let answer = ProviderAnswer {
                    service: &account.service,
                    status: 500,
                    code: Some(&code),
                    ..ProviderAnswer::default()
                };
                let now = self.wiring.clock.now();
                Report::judged(judge(&self.wiring.answers.current(), &answer, now)).code(code)
            }
            Some(smpp::SmscOutcome::NotSent { code: code @ "credential_missing", detail }) => {
                Report::new(Outcome::Config).code(code).detail(detail)
            }
            Some(smpp::SmscOutcome::NotSent { code, detail }) => {
                let at_least = std::time::Duration::ZERO;
                Report::new(Outcome::RetryBackoff { at_least }).code(code).detail(detail)
            }
            Some(smpp::SmscOutcome::Unknown(code)) => Report::new(Outcome::Ambiguous).code(code),
        }
    }
}

//! Text messages through Twilio, another HTTP gateway or a message centre. A call without an answer is ambiguous,
//! because gateways have no idempotency keys. In rates and quotas, a message counts once per segment.

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
mod twilio;

use std::sync::Arc;

use postrider_core::policy::account::AccountOffer;
use postrider_core::{
    Attempt, ChannelKind, ChannelTraits, Message, Outcome, Report, TenantId, Timestamp,
};

pub use account::{SmsAccount, SmsProvider};
pub use content::SmsContent;
pub use form::{FormFormat, GatewayAuth, GatewayForm, SmsFormValues};
pub use intake::SmsIntake;
pub use reading::AnswerShape;
pub use render::render;
pub use settings::SmsSection;
pub use target::SmsTarget;
pub use twilio::SmsCallbacks;

use crate::ReceiptLinks;
use crate::accounts::{Accounts, Material};
use crate::deliver::{Ended, Protocol, Reading, Wiring, content_of, hidden_cause, impl_channel};
use crate::email::hiding;
use crate::target::target_of;

pub const KIND: ChannelKind = ChannelKind::new("sms");
pub const TRAITS: ChannelTraits =
    ChannelTraits { has_accounts: true, shows_repeats: true, ..ChannelTraits::PLAIN };

/// The longest validity of a message at Twilio.
pub const VALIDITY_S_MAX: u32 = 36_000;

/// One gateway account.
#[derive(Default)]
pub struct SmsSettings {
    /// Its name in the table of answers: `sms.NAME`.
    pub service: String,
    pub url: String,
    pub form: GatewayForm,
    pub auth: GatewayAuth,
    pub secret: Option<Material<String>>,
    /// A number, a short code or a name: the value of `{from}`.
    pub from: String,
    pub answer: AnswerShape,
    /// With what its provider signs calls to us; none if it makes none.
    pub callback_secret: Option<Material<String>>,
    /// The message centre, if the account has no HTTP gateway.
    #[cfg(feature = "smpp")]
    pub smsc: Option<smpp::Smsc>,
}

pub struct SmsChannel {
    pub wiring: Wiring,
    pub accounts: Arc<Accounts<SmsSettings>>,
    /// Absent if no calls of providers are taken.
    pub receipts: Option<Arc<dyn ReceiptLinks>>,
}

impl_channel!(SmsChannel);

fn text_of(message: &Message) -> Result<String, Ended> {
    let (content, own): (_, SmsContent<'_>) = content_of(KIND, message)?;
    Ok(render(&content, own).into_owned())
}

impl Protocol for SmsChannel {
    type Ready = String;

    fn prepare(&self, attempt: &Attempt) -> Result<String, Ended> {
        text_of(&attempt.message)
    }

    fn accounts(&self, tenant: &TenantId) -> Vec<AccountOffer> {
        self.accounts.offers(tenant)
    }

    /// Segments, which gateways bill and limit.
    fn weight(&self, message: &Message) -> u32 {
        text_of(message).map_or(1, |text| segments::of(&text).count)
    }

    async fn send(&self, attempt: &Attempt, text: String) -> Result<Report, Ended> {
        let SmsTarget { phone: to } = target_of(attempt)?;
        let account = self.accounts.choose(attempt, |_| true).await?;
        account.charge(segments::of(&text).count.saturating_sub(1) as usize);
        let callback = self.callback(attempt, &account.name, &account.settings);
        let report = self.through(attempt, &to, &account.settings, (&text, &callback)).await;
        let report = report.map_or_else(|ended| *ended, |report| hiding(report, &to));
        Ok(account.settle(attempt, report, |_| true))
    }
}

impl SmsChannel {
    /// Where the provider reports what became of it; empty if it does not.
    fn callback(&self, attempt: &Attempt, name: &str, account: &SmsSettings) -> String {
        let links = self.receipts.as_ref().filter(|_| account.callback_secret.is_some());
        let link = |links: &Arc<dyn ReceiptLinks>| {
            links.callback(name, attempt.delivery, attempt.expires_at)
        };
        links.map(link).unwrap_or_default()
    }

    async fn through(
        &self,
        attempt: &Attempt,
        to: &str,
        account: &SmsSettings,
        (text, callback): (&str, &str),
    ) -> Result<Report, Ended> {
        #[cfg(feature = "smpp")]
        if let Some(smsc) = &account.smsc {
            return Ok(self.by_smpp(attempt, to, account, smsc, text).await);
        }
        let secret = match &account.secret {
            None => None,
            Some(secret) => {
                let known = secret.get().await;
                Some(known.map_err(|why| hidden_cause("credential_missing", &why))?)
            }
        };
        let endpoint = self.wiring.endpoint(&account.url)?;
        let request = |now| {
            let fields = SmsFormValues {
                to,
                from: &account.from,
                text,
                delivery: attempt.delivery,
                validity_s: validity_s(attempt, now),
                secret: secret.as_deref().map_or("", String::as_str),
                callback,
            };
            account.form.request(&account.auth, &fields)
        };
        let mut response = self.wiring.exchange(attempt, &endpoint, request).await?;
        // A form has the plus of a number in another way.
        let number = [to, to.trim_start_matches('+')];
        let secrets: Vec<&str> =
            secret.iter().map(|secret| secret.as_str()).chain(number).collect();
        // Empty if there is none.
        let hidden = if callback.is_empty() { to } else { callback };
        let reading = Reading {
            service: &account.service,
            secrets: &secrets,
            hide: &[to, text, &account.url, hidden],
            ..account.answer.read(&mut response)
        };
        let report = self.wiring.judge(&response, reading);
        if report.outcome == Outcome::Config {
            account.secret.iter().for_each(Material::forget);
        }
        Ok(report)
    }
}

/// The rest of the message's TTL, at least a second: for most gateways, zero means "no limit".
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
        use smpp::SmscOutcome;
        let deadline = tokio::time::Instant::now() + self.wiring.attempt_timeout;
        let submit = || {
            let now = self.wiring.clock.wall();
            let body = smpp::submit(&account.from, to, text, validity_s(attempt, now));
            (now < attempt.expires_at).then_some(body)
        };
        smsc.trust(|| self.wiring.pool.tls_without_http());
        let Some(end) = smsc.send(deadline, submit).await else {
            return *crate::deliver::ended(Outcome::Expired, "ttl");
        };
        match end {
            SmscOutcome::Accepted(id) => {
                Report { provider_id: id, ..Report::new(Outcome::Accepted) }
            }
            SmscOutcome::Refused(status) => {
                let code = format!("0x{status:02x}");
                self.wiring.judge_code(&account.service, 500, &code).code(code)
            }
            SmscOutcome::Local { code, detail } => {
                Report::new(Outcome::Local).code(code).detail(detail)
            }
            SmscOutcome::Unopened { code, detail } => Report::unopened().code(code).detail(detail),
            SmscOutcome::NotSent { code: code @ "credential_missing", detail } => {
                *hidden_cause(code, &detail)
            }
            SmscOutcome::NotSent { code, detail } => {
                let outcome = Outcome::RetryBackoff { at_least: std::time::Duration::ZERO };
                Report::new(outcome).code(code).detail(detail)
            }
            SmscOutcome::Unknown(code) => Report::new(Outcome::Ambiguous).code(code),
        }
    }
}

//! E-mail through an SMTP relay, Amazon SES or SendGrid, with one recipient per mail. The mail of a delivery is the
//! same in every attempt. Reads no mail, looks up no MX records and does not handle later bounces.

mod account;
mod body;
mod carrier;
mod content;
mod dkim;
mod header;
mod intake;
mod mime;
mod plain;
mod probe;
mod render;
mod reputation;
mod sendgrid;
mod ses;
mod settings;
mod sigv4;
pub mod smtp;
mod target;
mod txt;

use std::sync::Arc;
use std::time::Duration;

use ::http::Method;
use postrider_core::policy::account::AccountOffer;
use postrider_core::policy::ttl;
use postrider_core::{
    Attempt, ChannelKind, ChannelTraits, Message, Outcome, Report, Target, TenantId,
};
use tokio::time::Instant;

pub use account::{EmailAccount, EmailProvider};
pub use carrier::{Carrier, DkimSettings, EmailSettings};
pub use content::EmailContent;
pub use dkim::DkimKey;
pub(crate) use header::is_atext;
pub use intake::EmailIntake;
pub use mime::{Mail, MailDraft, Mailbox, Unsubscribe, message_id};
pub use render::{RenderedEmail, render};
pub use reputation::ReputationPolicy;
pub use sendgrid::SendGrid;
pub use ses::Ses;
pub use settings::EmailSection;
pub use sigv4::{SigV4Signer, SignedRequest};
pub use target::EmailTarget;

use crate::accounts::Accounts;
use crate::deliver::{
    Ended, Protocol, Reading, Wiring, content_of, ended, hidden_cause, impl_channel,
};
use crate::pool::Response;
use crate::scrub;
use crate::target::target_of;
use reputation::ReputationTable;
use smtp::{OutgoingMail, Relay, SmtpOutcome, SmtpStage};

pub const KIND: ChannelKind = ChannelKind::new("email");
pub const TRAITS: ChannelTraits =
    ChannelTraits { has_accounts: true, shows_repeats: true, ..ChannelTraits::PLAIN };

pub struct EmailChannel {
    wiring: Wiring,
    accounts: Arc<Accounts<EmailSettings>>,
    reputations: ReputationTable,
}

impl EmailChannel {
    pub fn new(wiring: Wiring, accounts: Arc<Accounts<EmailSettings>>) -> Self {
        Self { wiring, accounts, reputations: ReputationTable::default() }
    }

    /// The same with another policy for refusals because of the sender's reputation.
    pub fn reputation(self, policy: ReputationPolicy) -> Self {
        Self { reputations: ReputationTable::new(policy), ..self }
    }
}

impl_channel!(EmailChannel);

/// Whether the mail was refused because of the sender, not because of the mailbox or the mail's form.
fn is_for_reputation(end: &SmtpOutcome) -> bool {
    use SmtpStage::{Data, Dot, Mail, Rcpt};
    match end {
        SmtpOutcome::Refused(Mail | Rcpt | Data | Dot, reply) => {
            reputation::refuses(reply.code, &reply.for_table())
        }
        _ => false,
    }
}

impl Protocol for EmailChannel {
    /// A mail is written after its account is chosen, because the account is the sender.
    type Ready = ();

    fn prepare(&self, _: &Attempt) -> Result<(), Ended> {
        Ok(())
    }

    fn accounts(&self, tenant: &TenantId) -> Vec<AccountOffer> {
        self.accounts.offers(tenant)
    }

    fn fits(&self, account: &str, target: &Target, _: &Message) -> bool {
        let settings = self.accounts.settings(account);
        let target = target.read::<EmailTarget<'_>>().ok();
        settings.is_some_and(|settings| target.is_none_or(|t| settings.may_send_to(&t.email)))
    }

    async fn send(&self, attempt: &Attempt, (): ()) -> Result<Report, Ended> {
        let target: EmailTarget<'_> = target_of(attempt)?;
        let fits = |settings: &EmailSettings| settings.may_send_to(&target.email);
        let account = self.accounts.choose(attempt, fits).await?;
        let report = self.through(attempt, &target, &account.settings).await;
        Ok(account.settle(attempt, report.unwrap_or_else(|ended| *ended), fits))
    }
}

impl EmailChannel {
    async fn through(
        &self,
        attempt: &Attempt,
        target: &EmailTarget<'_>,
        account: &EmailSettings,
    ) -> Result<Report, Ended> {
        let (content, own): (_, EmailContent<'_>) = content_of(KIND, &attempt.message)?;
        let words = render(&content, &own);
        let return_addresses = account.return_addresses(attempt.delivery);
        let draft = account.draft(attempt, target, &own, &words, &return_addresses);
        match &account.carrier {
            Carrier::Smtp(relay) => {
                let (from, to) = (draft.from.address, draft.to.address);
                if let Some(held) = self.reputations.held(from, to, self.wiring.clock.now()) {
                    return Err(held);
                }
                let mail = account.write(&draft).await?;
                let (report, refused) =
                    self.by_smtp(attempt, relay, (&return_addresses.return_path, to), mail).await;
                if refused || report.outcome == Outcome::Accepted {
                    self.reputations.report(from, to, refused, self.wiring.clock.now());
                }
                Ok(report)
            }
            Carrier::Ses(ses) => {
                let mail = account.write(&draft).await?;
                self.by_ses(attempt, ses, &draft, mail).await
            }
            Carrier::SendGrid(sendgrid) => self.by_sendgrid(attempt, sendgrid, &draft).await,
        }
    }

    /// Also returns whether the mail was refused because of the sender's reputation.
    async fn by_smtp(
        &self,
        attempt: &Attempt,
        relay: &Arc<Relay>,
        (return_path, recipient): (&str, &str),
        mail: Vec<u8>,
    ) -> (Report, bool) {
        let deadline = Instant::now() + self.wiring.attempt_timeout;
        let in_time = || {
            let now = self.wiring.clock.wall();
            (now < attempt.expires_at).then(|| OutgoingMail {
                delivery: attempt.delivery,
                sender: return_path.to_owned(),
                recipient: recipient.to_owned(),
                mail,
                left_s: ttl::remaining_s(attempt.is_one_shot, attempt.expires_at, now),
            })
        };
        match relay.send(deadline, in_time).await {
            None => (*ended(Outcome::Expired, "ttl"), false),
            Some(end) => {
                let refused = is_for_reputation(&end);
                (self.judge_smtp(end, recipient), refused)
            }
        }
    }

    fn judge_smtp(&self, end: SmtpOutcome, recipient: &str) -> Report {
        let failed = |outcome, code, detail: String| Report::new(outcome).code(code).detail(detail);
        match end {
            SmtpOutcome::Accepted(reply) => Report {
                status: Some(reply.code),
                provider_id: reply.queued_as(),
                ..Report::new(Outcome::Accepted)
            },
            SmtpOutcome::Refused(stage, reply) => Report {
                status: Some(reply.code),
                code: reply.enhanced.map(|code| code.to_string()),
                detail: reply.detail(recipient),
                ..self.wiring.judge_code(stage.service(), reply.code, &reply.for_table())
            },
            SmtpOutcome::Local { code, detail } => failed(Outcome::Local, code, detail),
            SmtpOutcome::Unopened { code, detail } => Report::unopened().code(code).detail(detail),
            SmtpOutcome::NotSent { code, detail } => {
                failed(Outcome::RetryBackoff { at_least: Duration::ZERO }, code, detail)
            }
            SmtpOutcome::Stale => Report::new(Outcome::Reconnect).code("stale_connection"),
            SmtpOutcome::Unknown { code } => Report::new(Outcome::Ambiguous).code(code),
            SmtpOutcome::Unfit { code, detail } => failed(Outcome::DropMessage, code, detail),
            SmtpOutcome::Config { code: code @ "credential_missing", detail } => {
                *hidden_cause(code, &detail)
            }
            SmtpOutcome::Config { code, detail } => failed(Outcome::Config, code, detail),
        }
    }

    async fn by_ses(
        &self,
        attempt: &Attempt,
        ses: &Ses,
        draft: &MailDraft<'_>,
        mail: Vec<u8>,
    ) -> Result<Report, Ended> {
        let to = draft.to.address;
        let keys = ses.keys().await.map_err(|why| hidden_cause("credential_missing", &why))?;
        let endpoint = self.wiring.endpoint(&format!("{}{}", ses.endpoint, ses::SEND))?;
        let body = ses.body(attempt, draft.from.address, to, &mail);
        let host = endpoint.origin().authority();
        let request = |now| ses.request(&keys, ses::SEND, host, body, now);
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let report = self.judge_api(&response, ses::reading(&response), to, &keys.all());
        if report.outcome == Outcome::Config {
            ses.forget_keys();
        }
        Ok(report)
    }

    async fn by_sendgrid(
        &self,
        attempt: &Attempt,
        sendgrid: &SendGrid,
        draft: &MailDraft<'_>,
    ) -> Result<Report, Ended> {
        let key = sendgrid.key.get().await;
        let key = key.map_err(|why| hidden_cause("credential_missing", &why))?;
        let endpoint = self.wiring.endpoint(&format!("{}{}", sendgrid.endpoint, sendgrid::SEND))?;
        let request = |_| sendgrid::request(Method::POST, &key, sendgrid::body(draft));
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let reading = sendgrid::reading(&response, self.wiring.clock.wall());
        let report = self.judge_api(&response, reading, draft.to.address, &[&key]);
        if report.outcome == Outcome::Config {
            sendgrid.key.forget();
        }
        Ok(report)
    }

    fn judge_api(
        &self,
        response: &Response,
        reading: Reading<'_>,
        recipient: &str,
        secrets: &[&str],
    ) -> Report {
        let secrets = [secrets, &[recipient]].concat();
        let reading = Reading { hide: &[recipient], secrets: &secrets, ..reading };
        hiding(self.wiring.judge(response, reading), recipient)
    }
}

/// The report without this address, however short it is.
pub(crate) fn hiding(mut report: Report, address: &str) -> Report {
    let hide = |text: String| scrub::hide_exactly(&text, address);
    report.detail = report.detail.map(hide);
    report.code = report.code.map(hide);
    report
}

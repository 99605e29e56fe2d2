//! E-mail: one envelope per recipient, through whichever account is chosen: an SMTP relay, Amazon SES
//! or SendGrid. The mail of one delivery is the same on every attempt. Reads no mail, follows no MX
//! record, and leaves bounces that come later to who receives them.

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
mod reputation_table;
mod sendgrid;
mod ses;
mod settings;
mod sigv4;
pub mod smtp;
mod target;
mod txt;

use std::sync::Arc;

use postrider_core::model::content::Content;
use postrider_core::policy::classify::{ProviderAnswer, judge};
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Outcome, Report, policy::ttl};
use tokio::time::Instant;

pub use account::{EmailAccount, EmailProvider};
pub use carrier::{Carrier, DkimSettings, EmailSender, EmailSettings};
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
    Ended, Protocol, Reading, Wiring, bad_content, ended, impl_channel, misconfigured,
};
use crate::scrub;
use crate::target::target_of;
use reputation_table::ReputationTable;
use smtp::{OutgoingMail, Relay, SmtpOutcome, SmtpStage};

pub const KIND: ChannelKind = ChannelKind::new("email");
pub const TRAITS: ChannelTraits =
    ChannelTraits { has_accounts: true, shows_repeats: true, ..ChannelTraits::PLAIN };

pub struct EmailChannel {
    wiring: Wiring,
    accounts: Arc<Accounts<EmailSettings>>,
    standings: ReputationTable,
}

impl EmailChannel {
    pub fn new(wiring: Wiring, accounts: Arc<Accounts<EmailSettings>>) -> Self {
        Self { wiring, accounts, standings: ReputationTable::default() }
    }

    /// The same with another patience with what receiving domains think of the sender.
    pub fn reputation(self, policy: ReputationPolicy) -> Self {
        Self { standings: ReputationTable::new(policy), ..self }
    }
}

impl_channel!(EmailChannel);

/// Whether it is the sender that is not liked, not the mailbox or the mail's form.
fn is_for_reputation(end: &SmtpOutcome) -> bool {
    match end {
        SmtpOutcome::Refused(
            SmtpStage::Mail | SmtpStage::Rcpt | SmtpStage::Data | SmtpStage::Dot,
            reply,
        ) => reputation::refuses(reply.code, &reply.for_table()),
        _ => false,
    }
}

impl Protocol for EmailChannel {
    /// A mail is written when its account is known: that says who it is from.
    type Ready = ();

    fn prepare(&self, attempts: &[Attempt]) -> Vec<Result<(), Ended>> {
        attempts.iter().map(|_| Ok(())).collect()
    }

    async fn send(&self, attempt: &Attempt, (): ()) -> Report {
        let target: EmailTarget<'_> = match target_of(attempt) {
            Ok(target) => target,
            Err(ended) => return *ended,
        };
        let is_ascii = target.email.is_ascii();
        let fits = |settings: &EmailSettings| is_ascii || settings.carrier.is_international();
        let account = match self.accounts.choose(attempt, fits).await {
            Ok(account) => account,
            Err(ended) => return *ended,
        };
        let report = match self.through(attempt, &target, &account.settings).await {
            Ok(report) => report,
            Err(ended) => *ended,
        };
        account.settle(attempt, report, fits)
    }
}

impl EmailChannel {
    async fn through(
        &self,
        attempt: &Attempt,
        target: &EmailTarget<'_>,
        account: &EmailSettings,
    ) -> Result<Report, Ended> {
        let content = Content::parse(&attempt.message.content).map_err(bad_content)?;
        let own = EmailContent::of(&content).map_err(bad_content)?;
        let words = render(&content, &own);
        let return_addresses = account.return_addresses(attempt.delivery);
        let draft = account.draft(attempt, target, &own, &words, &return_addresses);
        match &account.carrier {
            Carrier::Smtp(relay) => {
                let (from, to) = (draft.from.address, draft.to.address);
                if let Some(held) = self.standings.held(from, to, self.wiring.clock.now()) {
                    return Err(held);
                }
                let mail = account.write(&draft).await?;
                let (report, refused) =
                    self.by_smtp(attempt, relay, (&return_addresses.return_path, to), mail).await;
                if refused || report.outcome == Outcome::Accepted {
                    self.standings.report(from, to, refused, self.wiring.clock.now());
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

    async fn by_smtp(
        &self,
        attempt: &Attempt,
        relay: &Arc<Relay>,
        (return_path, recipient): (&str, &str),
        mail: Vec<u8>,
    ) -> (Report, bool) {
        let deadline = Instant::now() + self.wiring.attempt_timeout;
        let in_time = || {
            let now = self.wiring.clock.now();
            (now < attempt.expires_at).then(|| OutgoingMail {
                delivery: attempt.delivery,
                sender: return_path.to_owned(),
                recipient: recipient.to_owned(),
                mail,
                left_s: ttl::remaining_s(attempt.message.ttl_s, attempt.expires_at, now),
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

    /// What the end of a conversation means.
    fn judge_smtp(&self, end: SmtpOutcome, recipient: &str) -> Report {
        let backoff = Outcome::RetryBackoff { at_least: std::time::Duration::ZERO };
        match end {
            SmtpOutcome::Accepted(reply) => Report {
                status: Some(reply.code),
                provider_id: reply.queued_as(),
                ..Report::new(Outcome::Accepted)
            },
            SmtpOutcome::Refused(stage, reply) => {
                let code = reply.for_table();
                let answer = ProviderAnswer {
                    service: stage.service(),
                    status: reply.code,
                    code: Some(&code),
                    ..ProviderAnswer::default()
                };
                let judged =
                    judge(&self.wiring.answers.current(), &answer, self.wiring.clock.now());
                Report {
                    status: Some(reply.code),
                    code: reply.enhanced.map(|code| code.to_string()),
                    detail: reply.detail(recipient),
                    ..Report::judged(judged)
                }
            }
            SmtpOutcome::NotSent { code, detail } => Report::new(backoff).code(code).detail(detail),
            SmtpOutcome::Stale => Report::new(Outcome::Reconnect).code("stale_connection"),
            SmtpOutcome::Unknown { code } => Report::new(Outcome::Ambiguous).code(code),
            SmtpOutcome::Unfit { code, detail } => {
                Report::new(Outcome::DropMessage).code(code).detail(detail)
            }
            SmtpOutcome::Config { code, detail } => {
                Report::new(Outcome::Config).code(code).detail(detail)
            }
        }
    }

    async fn by_ses(
        &self,
        attempt: &Attempt,
        ses: &Ses,
        draft: &MailDraft<'_>,
        mail: Vec<u8>,
    ) -> Result<Report, Ended> {
        let keys = ses.keys().await.map_err(|why| misconfigured("credential_missing", &why))?;
        let endpoint = self.wiring.endpoint(&ses.url())?;
        let body = ses.body(attempt, draft.from.address, draft.to.address, &mail);
        let request = |now| ses.request(&keys, endpoint.origin(), body, now);
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let reading = Reading {
            service: "email.ses",
            code: ses::code(&response),
            token_age: None,
            retry_after: None,
            provider_id: ses::provider_id(&response),
            hide: &[draft.to.address],
        };
        let report = self.wiring.judge(&response, reading);
        if report.outcome == Outcome::Config {
            ses.forget_keys();
        }
        Ok(hiding(report, draft.to.address))
    }

    async fn by_sendgrid(
        &self,
        attempt: &Attempt,
        sendgrid: &SendGrid,
        draft: &MailDraft<'_>,
    ) -> Result<Report, Ended> {
        let key = sendgrid.key.get().await;
        let key = key.map_err(|why| misconfigured("credential_missing", &why))?;
        let endpoint = self.wiring.endpoint(&sendgrid.url())?;
        let request = |_| sendgrid::request(&key, sendgrid::body(draft));
        let response = self.wiring.exchange(attempt, &endpoint, request).await?;
        let reading = Reading {
            service: "email.sendgrid",
            code: sendgrid::code(&response),
            token_age: None,
            retry_after: sendgrid::retry_after(&response, self.wiring.clock.now()),
            provider_id: scrub::header(&response.headers, "x-message-id"),
            hide: &[draft.to.address],
        };
        let report = self.wiring.judge(&response, reading);
        if report.outcome == Outcome::Config {
            sendgrid.key.forget();
        }
        Ok(hiding(report, draft.to.address))
    }
}

/// A report that does not repeat this address, however short it is.
pub(crate) fn hiding(mut report: Report, address: &str) -> Report {
    let hide = |text: String| scrub::hide_exactly(&text, address);
    report.detail = report.detail.map(hide);
    report.code = report.code.map(hide);
    report
}

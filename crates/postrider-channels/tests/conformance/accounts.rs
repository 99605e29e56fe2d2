//! E-mail and text messages for the suite: channels whose accounts are written as in the configuration.

use std::sync::Arc;
use std::time::Duration;

use postrider_channels::accounts::{AccountConfig, Accounts};
use postrider_channels::email::smtp::{Relay, RelayConfig, SmtpTls};
use postrider_channels::email::{self, Carrier, EmailAccount, EmailSettings, EmailTarget};
use postrider_channels::sms::{self, SmsAccount, SmsSettings, SmsTarget};
use postrider_channels::{ChannelTarget, EmailChannel, PoolConfig, SmsChannel, Wiring};
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{Attempt, Channel, ChannelKind, Report, Target};
use serde_json::{Value, json};

use crate::fixture::{ChannelFixture, HandClock, Subject, network};

pub(crate) const WITHIN: Duration = Duration::from_secs(10);
pub(crate) const ADA: &str = "ada@example.org";
pub(crate) const PHONE: &str = "+4915112345678";

/// An e-mail account that leads to a provider over HTTP, with this reference to its secret.
pub(crate) fn account(subject: Subject, origin: &str, credential: &str) -> Value {
    match subject {
        Subject::Ses => json!({
            "provider": "ses", "from": "news@shop.example", "region": "eu-central-1",
            "key_id": "AKID", "credential": credential, "endpoint": origin,
            "configuration_set": "cs",
        }),
        _ => json!({
            "provider": "sendgrid", "from": "news@shop.example", "from_name": "Shop",
            "credential": credential, "endpoint": origin,
            "unsubscribe_url": "https://shop.example/u",
        }),
    }
}

/// With these accounts, the first of them first.
pub(crate) fn email(wiring: Wiring, accounts: &[Value]) -> EmailChannel {
    let tls = wiring.pool.tls_without_http();
    let settings = |value: &Value| -> EmailSettings {
        let account: EmailAccount = serde_json::from_value(value.clone()).unwrap();
        account.settings(&tls)
    };
    let accounts = listed(&wiring, email::KIND, accounts, settings);
    EmailChannel::new(wiring, accounts)
}

pub(crate) fn sms(wiring: Wiring, accounts: &[Value]) -> SmsChannel {
    let settings = |value: &Value| -> SmsSettings {
        let account: SmsAccount = serde_json::from_value(value.clone()).unwrap();
        account.settings()
    };
    let accounts = listed(&wiring, sms::KIND, accounts, settings);
    SmsChannel { wiring, accounts, receipts: None }
}

fn listed<C>(
    wiring: &Wiring,
    kind: ChannelKind,
    accounts: &[Value],
    settings: impl Fn(&Value) -> C,
) -> Arc<Accounts<C>> {
    let config = |(nth, value): (usize, &Value)| AccountConfig {
        name: format!("account-{nth}"),
        tenant: None,
        is_far: false,
        priority: nth as u16,
        cost: 0.0,
        rate: None,
        settings: settings(value),
    };
    let configs = accounts.iter().enumerate().map(config).collect();
    let (policy, clock) = (BreakerPolicy::default(), wiring.clock.clone());
    Arc::new(Accounts::new(kind, configs, policy, clock, &wiring.share))
}

/// A channel of accounts in one hand, and a clock that is moved by hand.
pub(crate) struct TestAccounts {
    pub(crate) clock: HandClock,
    fixture: ChannelFixture,
    channel: Box<dyn Channel>,
}

impl TestAccounts {
    pub(crate) fn email(accounts: &[Value]) -> Self {
        Self::email_within(accounts, WITHIN)
    }

    pub(crate) fn email_within(accounts: &[Value], attempt_timeout: Duration) -> Self {
        Self::of(attempt_timeout, |wiring| Box::new(email(wiring, accounts)))
    }

    /// Trusts nobody's certificate.
    pub(crate) fn distrustful(accounts: &[Value]) -> Self {
        let fixture = ChannelFixture::with(PoolConfig { extra_ca_file: None, ..network() });
        let channel = Box::new(email(fixture.wiring.clone(), accounts));
        Self { clock: fixture.clock.clone(), fixture, channel }
    }

    pub(crate) fn sms(accounts: &[Value], attempt_timeout: Duration) -> Self {
        Self::of(attempt_timeout, |wiring| Box::new(sms(wiring, accounts)))
    }

    /// A relay that has less time for the end of a mail than the configuration would allow.
    pub(crate) fn hurried(port: u16, final_dot_timeout: Duration) -> Self {
        Self::of(WITHIN, |wiring| {
            let tls = wiring.pool.tls_without_http();
            let settings = |value: &Value| {
                let account: EmailAccount = serde_json::from_value(value.clone()).unwrap();
                let relay = RelayConfig {
                    final_dot_timeout,
                    ..RelayConfig::new("127.0.0.1", port, SmtpTls::None)
                };
                let carrier = Carrier::Smtp(Relay::new(relay, None, tls.clone()));
                EmailSettings { carrier, ..account.settings(&tls) }
            };
            let account = json!({"from": "news@shop.example", "host": "127.0.0.1"});
            let accounts = listed(&wiring, email::KIND, &[account], settings);
            Box::new(EmailChannel::new(wiring, accounts))
        })
    }

    fn of(attempt_timeout: Duration, make: impl FnOnce(Wiring) -> Box<dyn Channel>) -> Self {
        let fixture = ChannelFixture::within(network(), attempt_timeout);
        let channel = make(fixture.wiring.clone());
        Self { clock: fixture.clock.clone(), fixture, channel }
    }

    /// What an attempt counts for in rates.
    pub(crate) fn weight(&self, attempt: &Attempt) -> u32 {
        self.channel.weight(&attempt.target, &attempt.message)
    }

    pub(crate) fn attempt(&self, target: Target) -> Attempt {
        self.fixture.attempt(target)
    }

    pub(crate) fn to(&self, email: &str) -> Attempt {
        self.attempt(EmailTarget { email: email.into(), name: None }.to_target())
    }

    pub(crate) fn to_phone(&self) -> Attempt {
        self.attempt(SmsTarget { phone: PHONE.into() }.to_target())
    }

    pub(crate) async fn deliver(&self, batch: Vec<Attempt>) -> Vec<Report> {
        self.fixture.deliver(&*self.channel, batch).await
    }

    pub(crate) async fn one(&self, attempt: Attempt) -> Report {
        self.deliver(vec![attempt]).await.remove(0)
    }

    pub(crate) async fn mail_to(&self, email: &str) -> Report {
        self.one(self.to(email)).await
    }

    pub(crate) async fn text(&self) -> Report {
        self.one(self.to_phone()).await
    }
}

//! A channel with accounts in one hand, and a clock that is moved by hand.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_channels::accounts::{AccountConfig, Accounts};
use postrider_channels::email::{EmailAccount, EmailSettings};
use postrider_channels::sms::{SmsAccount, SmsSettings};
use postrider_channels::{EmailChannel, Pool, PoolConfig, SmsChannel, Wiring};
use postrider_core::breaker::BreakerPolicy;
use postrider_core::message::Envelope;
use postrider_core::{
    Attempt, Channel, ChannelKind, Class, Clock, DeliveryId, Finished, Message, MessageId, Report,
    Target, TenantId, Timestamp,
};
use serde_json::Value;

use crate::provider::authority;

pub(crate) const START: Timestamp = Timestamp(1_800_000_000_000);

#[derive(Clone)]
pub(crate) struct HandClock(Arc<AtomicI64>);

impl HandClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) struct Rig {
    pub(crate) clock: HandClock,
    channel: Box<dyn Channel>,
}

impl Rig {
    /// With these accounts, the first of them first; each as in the configuration.
    pub(crate) fn email(accounts: &[Value]) -> Self {
        Self::email_within(accounts, Duration::from_secs(10))
    }

    pub(crate) fn email_within(accounts: &[Value], attempt_timeout: Duration) -> Self {
        let (clock, wiring) = wiring(attempt_timeout);
        let tls = wiring.pool.tls_without_http();
        let settings = |value: &Value| -> EmailSettings {
            let account: EmailAccount = serde_json::from_value(value.clone()).unwrap();
            account.settings(&tls)
        };
        let accounts = listed(ChannelKind::Email, accounts, settings, &clock);
        Self { clock, channel: Box::new(EmailChannel::new(wiring, accounts)) }
    }

    pub(crate) fn sms(accounts: &[Value], attempt_timeout: Duration) -> Self {
        let (clock, wiring) = wiring(attempt_timeout);
        let settings = |value: &Value| -> SmsSettings {
            let account: SmsAccount = serde_json::from_value(value.clone()).unwrap();
            account.settings()
        };
        let accounts = listed(ChannelKind::Sms, accounts, settings, &clock);
        Self { clock, channel: Box::new(SmsChannel::new(wiring, accounts)) }
    }

    /// What an attempt counts for in rates.
    pub(crate) fn weight(&self, attempt: &Attempt) -> u32 {
        self.channel.weight(&attempt.target, &attempt.message)
    }

    /// An attempt with an hour to live.
    pub(crate) fn attempt(&self, target: Target) -> Attempt {
        let now = self.clock.now();
        let expires_at = now + Duration::from_secs(3600);
        let message = Message {
            id: MessageId(7),
            tenant: TenantId::new("acme"),
            class: "transactional".into(),
            created_at: START,
            expires_at,
            ttl_s: 3600,
            envelope: Envelope::default(),
            content: r#"{"title":"Shipped","body":"Order 91 is on its way"}"#.into(),
        };
        Attempt {
            delivery: DeliveryId(9),
            message: Arc::new(message),
            class: Arc::new(Class::default()),
            target: Arc::new(target),
            number: 1,
            now,
            expires_at,
            address_since: None,
            resign: false,
            slot: 0,
        }
    }

    /// All the ends of a batch, by slot.
    pub(crate) async fn deliver(&self, mut batch: Vec<Attempt>) -> Vec<Report> {
        for (slot, attempt) in batch.iter_mut().enumerate() {
            attempt.slot = slot;
        }
        let ends: Mutex<Vec<Option<Report>>> = Mutex::new(vec![None; batch.len()]);
        let done = |finished: Finished| {
            let before = ends.lock().unwrap()[finished.slot].replace(finished.report);
            assert!(before.is_none(), "slot {} ended twice", finished.slot);
        };
        self.channel.deliver(batch, &done).await;
        let ends = ends.into_inner().unwrap().into_iter();
        ends.map(|end| end.expect("every attempt has an end")).collect()
    }

    pub(crate) async fn one(&self, attempt: Attempt) -> Report {
        self.deliver(vec![attempt]).await.remove(0)
    }

    pub(crate) async fn mail_to(&self, email: &str) -> Report {
        self.one(self.attempt(Target::Email { email: email.into(), name: None })).await
    }

    pub(crate) async fn text(&self) -> Report {
        self.one(self.attempt(Target::Sms { phone: "+4915112345678".into() })).await
    }
}

fn wiring(attempt_timeout: Duration) -> (HandClock, Wiring) {
    let clock = HandClock(Arc::new(AtomicI64::new(START.0)));
    let network = PoolConfig {
        allow_private_targets: true,
        extra_ca_file: Some(authority().file().to_owned()),
        ..PoolConfig::default()
    };
    let pool = Pool::new(network).unwrap();
    let wiring = Wiring { attempt_timeout, ..Wiring::new(pool, Arc::new(clock.clone())) };
    (clock, wiring)
}

fn listed<C>(
    kind: ChannelKind,
    accounts: &[Value],
    settings: impl Fn(&Value) -> C,
    clock: &HandClock,
) -> Arc<Accounts<C>> {
    let config = |(nth, value): (usize, &Value)| AccountConfig {
        name: format!("account-{nth}"),
        tenant: None,
        priority: nth as u16,
        cost: 0.0,
        rate: None,
        settings: settings(value),
    };
    let configs = accounts.iter().enumerate().map(config).collect();
    Arc::new(Accounts::new(kind, configs, BreakerPolicy::default(), Arc::new(clock.clone())))
}

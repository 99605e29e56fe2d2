//! Channels with accounts for the suite: an account that leads to the scripted provider, made for
//! whichever provider an attempt is for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use postrider_channels::apns::{ApnsEnvironment, ApnsTarget};
use postrider_channels::email::EmailTarget;
use postrider_channels::fcm::{FcmDevice, FcmTarget};
use postrider_channels::{ApnsChannel, ChannelTarget, FcmChannel, Wiring};
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{Channel, Target};
use tokio::sync::OnceCell;

use crate::accounts;
use crate::fixture::Subject;
use crate::provider::Provider;
use crate::push::{TOPIC, apns_account, fcm_account, token_endpoint};

/// Channels of one kind, one per origin; the token endpoint that FCM's share, and the secret of the others.
pub(crate) struct PerOrigin {
    subject: Subject,
    wiring: Wiring,
    origin: Mutex<String>,
    made: Mutex<HashMap<String, Arc<dyn Channel>>>,
    secret: tempfile::NamedTempFile,
    tokens: OnceCell<Provider>,
}

impl PerOrigin {
    pub(crate) fn new(subject: Subject, wiring: Wiring) -> Self {
        let secret = tempfile::NamedTempFile::new().unwrap();
        let (origin, made, tokens) = (Mutex::default(), Mutex::default(), OnceCell::new());
        let this = Self { subject, wiring, origin, made, secret, tokens };
        this.put_secret("s3cret");
        this
    }

    pub(crate) fn put_secret(&self, secret: &str) {
        std::fs::write(self.secret.path(), secret).unwrap();
    }

    pub(crate) fn lead_to(&self, url: &str) {
        *self.origin.lock().unwrap() = postrider_channels::address::origin(url).to_string();
    }

    pub(crate) async fn get(&self) -> Arc<dyn Channel> {
        let origin = self.origin.lock().unwrap().clone();
        if let Some(made) = self.made.lock().unwrap().get(&origin) {
            return made.clone();
        }
        let made = self.make(&origin).await;
        self.made.lock().unwrap().entry(origin).or_insert(made).clone()
    }

    async fn make(&self, origin: &str) -> Arc<dyn Channel> {
        let (wiring, policy) = (self.wiring.clone(), BreakerPolicy::default());
        let credential = format!("file:{}", self.secret.path().display());
        let written = || [accounts::account(self.subject, origin, &credential)];
        match self.subject {
            Subject::Fcm => {
                let tokens = self.tokens.get_or_init(token_endpoint).await;
                let account = fcm_account("main", origin, &tokens.url("/token"));
                Arc::new(FcmChannel::new(wiring, vec![account], policy))
            }
            Subject::Apns => {
                let account = apns_account("main", origin, origin);
                Arc::new(ApnsChannel::new(wiring, vec![account], policy))
            }
            Subject::Declared(column) => column.build(wiring, origin, &credential).await.channel,
            _ => Arc::new(accounts::email(wiring, &written())),
        }
    }
}

/// An address that is named like the path of this URL.
pub(crate) fn target(subject: Subject, url: &str) -> Target {
    let path = url.split("://").nth(1).and_then(|rest| rest.split_once('/')).map_or("", |(_, p)| p);
    let name = path.trim_start_matches("send/").split('?').next().unwrap_or_default();
    match subject {
        Subject::Fcm => {
            FcmTarget { device: FcmDevice::Token(name.into()), project: None }.to_target()
        }
        Subject::Apns => ApnsTarget {
            token: name.into(),
            topic: TOPIC.into(),
            environment: Some(ApnsEnvironment::Production),
            worked: None,
        }
        .to_target(),
        Subject::Declared(column) if column.account.is_some() => (column.target)(name),
        Subject::Declared(column) => (column.target)(url),
        _ => EmailTarget { email: format!("{name}@example.org").into(), name: None }.to_target(),
    }
}

//! FCM and APNs for the suite: an account that leads to the scripted provider, made for whichever
//! provider an attempt is for.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine as _;
use postrider_channels::accounts::{AccountConfig, SecretRef};
use postrider_channels::apns::ApnsAccount;
use postrider_channels::fcm::FcmAccount;
use postrider_channels::{ApnsChannel, FcmChannel, Wiring};
use postrider_core::address::{ApnsEnvironment, FcmDevice};
use postrider_core::breaker::BreakerPolicy;
use postrider_core::{Channel, ChannelKind, Target};
use tokio::sync::OnceCell;

use crate::provider::{Answer, Line, Provider};

pub(crate) const TOPIC: &str = "com.example.app";

/// Channels of one kind, one per origin, and the token endpoint that FCM's share.
pub(crate) struct PerOrigin {
    kind: ChannelKind,
    wiring: Wiring,
    origin: Mutex<String>,
    made: Mutex<HashMap<String, Arc<dyn Channel>>>,
    pub(crate) tokens: OnceCell<Provider>,
}

impl PerOrigin {
    pub(crate) fn new(kind: ChannelKind, wiring: Wiring) -> Self {
        let (origin, made) = (Mutex::default(), Mutex::default());
        Self { kind, wiring, origin, made, tokens: OnceCell::new() }
    }

    pub(crate) fn lead_to(&self, url: &str) {
        *self.origin.lock().unwrap() = postrider_channels::intake::origin(url).to_string();
    }

    pub(crate) async fn get(&self) -> Arc<dyn Channel> {
        let tokens = self.tokens.get_or_init(token_endpoint).await;
        let origin = self.origin.lock().unwrap().clone();
        let mut made = self.made.lock().unwrap();
        let make = || -> Arc<dyn Channel> {
            let (wiring, policy) = (self.wiring.clone(), BreakerPolicy::default());
            match self.kind {
                ChannelKind::Fcm => {
                    let account = fcm_account("main", &origin, &tokens.url("/token"));
                    Arc::new(FcmChannel::new(wiring, vec![account], policy))
                }
                _ => {
                    let account = apns_account("main", &origin, &origin);
                    Arc::new(ApnsChannel::new(wiring, vec![account], policy))
                }
            }
        };
        made.entry(origin.clone()).or_insert_with(make).clone()
    }
}

pub(crate) fn target(kind: ChannelKind, url: &str) -> Target {
    let path = url.split("://").nth(1).and_then(|rest| rest.split_once('/')).map_or("", |(_, p)| p);
    let name = path.trim_start_matches("send/").split('?').next().unwrap_or_default();
    match kind {
        ChannelKind::Fcm => Target::Fcm { device: FcmDevice::Token(name.into()), project: None },
        _ => Target::Apns {
            token: name.into(),
            topic: TOPIC.into(),
            environment: Some(ApnsEnvironment::Production),
        },
    }
}

/// A token endpoint that says yes as often as any test asks, with a new token each time.
pub(crate) async fn token_endpoint() -> Provider {
    let provider = Provider::start(Line::Http2).await;
    provider.answers((0..20).map(granted));
    provider
}

pub(crate) fn granted(nth: u32) -> Answer {
    let body =
        format!(r#"{{"access_token":"ya29.{nth}","expires_in":3599,"token_type":"Bearer"}}"#);
    Answer::status(200).body(body)
}

fn pem(der: &[u8]) -> String {
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
}

/// A file that stays for as long as the tests run.
fn kept(text: &str) -> SecretRef {
    let (file, path) = tempfile::NamedTempFile::new().unwrap().keep().unwrap();
    drop(file);
    std::fs::write(&path, text).unwrap();
    SecretRef::parse(&format!("file:{}", path.display())).unwrap()
}

fn config<C>(name: &str, settings: C) -> AccountConfig<C> {
    AccountConfig {
        name: name.to_owned(),
        tenant: None,
        priority: 0,
        cost: 0.0,
        rate: None,
        settings,
    }
}

pub(crate) fn fcm_account(
    name: &str,
    endpoint: &str,
    token_uri: &str,
) -> AccountConfig<FcmAccount> {
    static KEY: LazyLock<String> = LazyLock::new(|| {
        let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
        pem(key.as_der().unwrap().as_ref())
    });
    let file = serde_json::json!({
        "type": "service_account",
        "project_id": "project-1",
        "private_key_id": "k1",
        "private_key": *KEY,
        "client_email": "sender@project-1.example",
        "token_uri": token_uri,
    });
    let (credential, endpoint) = (kept(&file.to_string()), endpoint.to_owned());
    config(name, FcmAccount { credential, project: None, endpoint })
}

pub(crate) fn apns_account(
    name: &str,
    endpoint: &str,
    sandbox_endpoint: &str,
) -> AccountConfig<ApnsAccount> {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let settings = ApnsAccount {
        credential: kept(&key),
        team_id: Some("TEAM123456".to_owned()),
        key_id: Some("KEY1234567".to_owned()),
        topics: Vec::new(),
        endpoint: endpoint.to_owned(),
        sandbox_endpoint: sandbox_endpoint.to_owned(),
    };
    config(name, settings)
}

/// The same account with a certificate instead of a signing key.
pub(crate) fn certificate_account(name: &str, endpoint: &str) -> AccountConfig<ApnsAccount> {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["push.example".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let mut account = apns_account(name, endpoint, endpoint);
    let both = format!("{}{}", certificate.pem(), key.serialize_pem());
    account.settings.credential = kept(&both);
    (account.settings.team_id, account.settings.key_id) = (None, None);
    account
}

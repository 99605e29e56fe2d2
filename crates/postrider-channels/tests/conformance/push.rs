//! Accounts of FCM and APNs that lead to a scripted provider.

use std::sync::LazyLock;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine as _;
use postrider_channels::accounts::{AccountConfig, SecretRef};
use postrider_channels::apns::ApnsAccount;
use postrider_channels::fcm::FcmAccount;

use crate::provider::{Answer, Line, Provider};

pub(crate) const TOPIC: &str = "com.example.app";

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
        is_far: false,
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

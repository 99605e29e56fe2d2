//! Accounts that identify themselves to Apple by a certificate, against the sandbox that asks for one.

use postrider_sandbox::{CertificateEnvironment, CertificateRequest, Sandbox};
use serde_json::{Value, json};

use crate::providers::ProvidersFixture;

const DEVICE: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";

/// An account with the certificate that `pem` makes.
async fn with(pem: impl FnOnce(&Sandbox) -> String) -> ProvidersFixture {
    ProvidersFixture::new(|sandbox, folder| {
        format!(
            "[accounts.apple]\nchannel = \"apns\"\ntenant = \"*\"\nendpoint = \"{}\"\n\
             sandbox_endpoint = \"https://localhost:{}\"\ncredential = \"file:{}\"\n",
            sandbox.https_origin(),
            sandbox.https.port(),
            folder.write("apple.pem", &pem(sandbox)),
        )
    })
    .await
}

async fn issued(environment: CertificateEnvironment) -> ProvidersFixture {
    let request = CertificateRequest { environment, ..CertificateRequest::default() };
    with(|sandbox| sandbox.apns_certificate(&request)["pem"].as_str().unwrap().into()).await
}

/// The state in which a push ended, and Apple's reason.
async fn send(fixture: &ProvidersFixture, topic: &str, environment: &str) -> (Value, Value) {
    let address = json!({"channel": "apns", "token": DEVICE, "topic": topic,
        "environment": environment});
    let end = fixture.send(address, json!({"title": "Hi"})).await;
    (end["state"].clone(), end["log"][0]["code"].clone())
}

#[tokio::test]
async fn a_certificate_of_apple_s_is_taken_without_a_token() {
    let fixture = issued(CertificateEnvironment::Both).await;
    assert_eq!(send(&fixture, "com.example.app", "production").await.0, "sent");
    assert_eq!(send(&fixture, "com.example.app", "sandbox").await.0, "sent");
}

#[tokio::test]
async fn a_certificate_of_somebody_else_s_parks_the_push() {
    let fixture = with(|_| {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        format!("{}{}", certificate.pem(), key.serialize_pem())
    })
    .await;
    let end = send(&fixture, "com.example.app", "production").await;
    assert_eq!(end, (json!("parked"), json!("BadCertificate")));
}

#[tokio::test]
async fn a_certificate_of_the_other_environment_parks_the_push_and_erases_nothing() {
    let fixture = issued(CertificateEnvironment::Sandbox).await;
    let end = send(&fixture, "com.example.app", "production").await;
    assert_eq!(end, (json!("parked"), json!("BadCertificateEnvironment")));
}

#[tokio::test]
async fn a_certificate_of_another_app_parks_the_push() {
    let fixture = issued(CertificateEnvironment::Both).await;
    let end = send(&fixture, "com.example.application", "production").await;
    assert_eq!(end, (json!("parked"), json!("TopicDisallowed")));
}

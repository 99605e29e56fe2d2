//! Accounts that identify themselves to Apple by a certificate, against the sandbox that asks for one.

use postrider_sandbox::{CertificateEnvironment, CertificateRequest, Sandbox, SandboxConfig};
use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, eventually};

const DEVICE: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";

struct Town {
    server: ServerFixture,
    _sandbox: Sandbox,
    _folder: tempfile::TempDir,
}

impl Town {
    /// With the credential that `pem` makes of the sandbox.
    async fn with(pem: impl Fn(&Sandbox) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
        let config = format!(
            "[network]\nallow_private_targets = true\nextra_ca_file = \"{}\"\n\
             [accounts.apple]\nchannel = \"apns\"\nendpoint = \"{}\"\n\
             sandbox_endpoint = \"https://localhost:{}\"\ncredential = \"file:{}\"\n",
            file("ca.pem", &sandbox.ca_pem),
            sandbox.https_origin(),
            sandbox.https.port(),
            file("apple.pem", &pem(&sandbox)),
        );
        Self { server: ServerFixture::with(&config).await, _sandbox: sandbox, _folder: folder }
    }

    async fn issued(environment: CertificateEnvironment) -> Self {
        let wish = CertificateRequest { environment, ..CertificateRequest::default() };
        Self::with(|sandbox| sandbox.apns_certificate(&wish)["pem"].as_str().unwrap().into()).await
    }

    /// How a push ended: state, and what Apple said.
    async fn send(&self, topic: &str, environment: &str) -> (Value, Value) {
        let address = json!({"channel": "apns", "token": DEVICE, "topic": topic,
            "environment": environment});
        let message = json!({"to": {"address": address}, "content": {"title": "Hi"}, "ttl_s": 600});
        let reply = self.server.post(message.to_string()).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        let id = reply.body["deliveries"][0]["id"].as_str().unwrap().to_owned();
        let over = |delivery: &Value| {
            !["queued", "sending"].contains(&delivery["state"].as_str().unwrap())
        };
        let end = eventually(&self.server.admin(), &format!("/v1/deliveries/{id}"), over).await;
        (end["state"].clone(), end["log"][0]["code"].clone())
    }
}

#[tokio::test]
async fn a_certificate_of_apple_s_is_taken_without_a_token() {
    let town = Town::issued(CertificateEnvironment::Both).await;
    assert_eq!(town.send("com.example.app", "production").await.0, "sent");
    assert_eq!(town.send("com.example.app", "sandbox").await.0, "sent");
}

#[tokio::test]
async fn a_certificate_of_somebody_else_s_parks_the_push() {
    let town = Town::with(|_| {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        format!("{}{}", certificate.pem(), key.serialize_pem())
    })
    .await;
    let end = town.send("com.example.app", "production").await;
    assert_eq!(end, (json!("parked"), json!("BadCertificate")));
}

#[tokio::test]
async fn a_certificate_of_the_other_environment_parks_the_push_and_erases_nothing() {
    let town = Town::issued(CertificateEnvironment::Sandbox).await;
    let end = town.send("com.example.app", "production").await;
    assert_eq!(end, (json!("parked"), json!("BadCertificateEnvironment")));
}

#[tokio::test]
async fn a_certificate_of_another_app_parks_the_push() {
    let town = Town::issued(CertificateEnvironment::Both).await;
    let end = town.send("com.example.application", "production").await;
    assert_eq!(end, (json!("parked"), json!("TopicDisallowed")));
}

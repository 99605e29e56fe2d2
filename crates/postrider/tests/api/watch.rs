//! Credentials are watched while the server runs: which one ends, cannot be used or was replaced.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use postrider::client::whole;
use postrider_core::{Clock as _, Timestamp};
use postrider_sandbox::SandboxConfig;
use postrider_store::{ManualClock, SystemClock};
use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, eventually};

const DAY: Duration = Duration::from_secs(86_400);

/// A PEM file with a certificate that ends on 2030-06-01, and its key.
fn certificate(path: &Path) -> Timestamp {
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2030, 6, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let made = params.self_signed(&key).unwrap();
    std::fs::write(path, format!("{}{}", made.pem(), key.serialize_pem())).unwrap();
    Timestamp::from_secs(postrider_core::model::time::days_from_civil(2030, 6, 1) * 86_400)
}

fn credential(list: &Value) -> &Value {
    &list["accounts"][0]["credential"]
}

async fn metrics(server: &ServerFixture) -> String {
    let admin = server.admin();
    let answer = admin.send(Method::GET, "/metrics", "text/plain", whole("".into())).await.unwrap();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_certificate_that_ends_shows_in_the_account_and_in_the_metrics_before_it_bites() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("apple.pem");
    let end = certificate(&file);
    let clock = Arc::new(ManualClock::at(end - DAY * 40));
    let config = format!(
        "[accounts.apple]\nchannel = \"apns\"\ntenant = \"*\"\ncredential = \"file:{}\"\n",
        file.display()
    );
    let server = ServerFixture::at(&config, clock.clone()).await;
    let admin = server.admin();
    let list = eventually(&admin, "/v1/accounts", |list| credential(list) == "ok").await;
    let found = &list["accounts"][0]["credentials"][0];
    assert_eq!(found["kind"], "certificate");
    assert_eq!(found["expires_at"], "2030-06-01T00:00:00.000Z");
    clock.advance(DAY * 20);
    eventually(&admin, "/v1/accounts", |list| credential(list) == "ending").await;
    let line = r#"postrider_credential_expiry_seconds{account="apple",kind="certificate"} 1728000"#;
    let text = metrics(&server).await;
    assert!(text.contains(line), "{text}");
    clock.advance(DAY * 21);
    eventually(&admin, "/v1/accounts", |list| credential(list) == "expired").await;
    assert!(metrics(&server).await.contains(r#"kind="certificate"} -86400"#));
}

#[tokio::test]
async fn a_service_account_that_google_refuses_is_unusable_until_its_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, file) = (folder.path().join("ca.pem"), folder.path().join("firebase.json"));
    let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
    std::fs::write(&ca, &sandbox.ca_pem).unwrap();
    let good = sandbox.fcm_service_account();
    let mut expired = good.clone();
    expired["private_key_id"] = json!("0000000000000000000000000000000000000000");
    std::fs::write(&file, expired.to_string()).unwrap();
    // Behind the fake Google's by less than an hour, so that one hour later both still agree.
    let clock = Arc::new(ManualClock::at(SystemClock.now() - Duration::from_secs(3550)));
    let config = format!(
        "[network]\nallow_private_targets = true\nextra_ca_file = \"{}\"\n[accounts.firebase]\n\
         channel = \"fcm\"\ntenant = \"*\"\nendpoint = \"{}\"\ncredential = \"file:{}\"\n",
        ca.display(),
        sandbox.https_origin(),
        file.display()
    );
    let server = ServerFixture::at(&config, clock.clone()).await;
    let admin = server.admin();
    let list = eventually(&admin, "/v1/accounts", |list| credential(list) == "unusable").await;
    let problem = list["accounts"][0]["credentials"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("Invalid JWT Signature"), "{problem}");
    assert!(!list.to_string().contains("PRIVATE KEY"), "{list}");
    let unusable = r#"postrider_credential_usable{account="firebase",kind="service_account"} "#;
    assert!(metrics(&server).await.contains(&format!("{unusable}0")));
    std::fs::write(&file, good.to_string()).unwrap();
    clock.advance(Duration::from_secs(3600));
    eventually(&admin, "/v1/accounts", |list| credential(list) == "ok").await;
    assert!(metrics(&server).await.contains(&format!("{unusable}1")));
}

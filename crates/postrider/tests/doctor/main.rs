//! `postrider doctor` as an operator uses it: the real binary against the sandbox, first with everything right, then
//! with one thing wrong at a time.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod fixture;

use fixture::DoctorFixture;
use serde_json::Value;

/// The finding of one check.
fn finding<'a>(report: &'a Value, check: &str) -> &'a Value {
    let all = report["findings"].as_array().unwrap();
    all.iter().find(|f| f["check"] == check).unwrap_or_else(|| panic!("no {check} in {report:#}"))
}

/// Checks that failed.
fn failed(report: &Value) -> Vec<&str> {
    let all = report["findings"].as_array().unwrap().iter();
    all.filter(|f| f["verdict"] == "fail").filter_map(|f| f["check"].as_str()).collect()
}

fn remedy<'a>(report: &'a Value, check: &str) -> &'a str {
    finding(report, check)["remedy"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_set_up_that_is_well_ends_with_0_and_every_provider_was_asked() {
    let fixture = DoctorFixture::new(0).await;
    let (code, report) = fixture.doctor(&[]).await;
    assert_eq!((code, failed(&report)), (0, vec![]), "{report:#}");
    for check in [
        "config",
        "data",
        "clock",
        "listen",
        "accounts.apple.apple",
        "accounts.firebase.token",
        "accounts.firebase.project",
        "accounts.relay.relay",
        "accounts.relay.relay_certificate",
        "accounts.relay.dkim.s1",
        "accounts.relay.dkim.s1.record",
        "accounts.amazon.ses",
        "accounts.grid.sendgrid",
        "accounts.texts.gateway",
    ] {
        assert_eq!(finding(&report, check)["verdict"], "ok", "{check} in {report:#}");
    }
    let disk = finding(&report, "disk")["found"].as_str().unwrap();
    assert!(disk.ends_with(" free"), "how much there is depends on the machine: {disk}");
    assert_eq!(fixture.sandbox.received()["accepted"], 0, "nothing was sent to anybody");
    let (strict, _) = fixture.doctor(&["--strict"]).await;
    assert_eq!(strict, 1, "private targets are allowed here, which is a warning");
}

#[tokio::test]
async fn an_expired_service_account_is_found_with_its_remedy() {
    let fixture = DoctorFixture::new(0).await;
    let mut key = fixture.sandbox.fcm_service_account();
    key["private_key_id"] = "0000000000000000000000000000000000000000".into();
    fixture.write("firebase.json", &key.to_string());
    let (code, report) = fixture.doctor(&[]).await;
    assert_eq!((code, failed(&report)), (1, vec!["accounts.firebase.token"]), "{report:#}");
    let token = finding(&report, "accounts.firebase.token");
    assert!(token["found"].as_str().unwrap().contains("has expired"), "{token}");
    assert!(remedy(&report, "accounts.firebase.token").contains("make a new key"));
}

#[tokio::test]
async fn a_wrong_apns_key_id_is_found_with_its_remedy() {
    let fixture = DoctorFixture::new(0).await;
    fixture.change("key_id = \"SANDBOXKEY\"", "key_id = \"OTHERKEY00\"");
    let (code, report) = fixture.doctor(&["--account", "apple"]).await;
    assert_eq!((code, failed(&report)), (1, vec!["accounts.apple.apple"]), "{report:#}");
    let apple = finding(&report, "accounts.apple.apple");
    assert!(apple["found"].as_str().unwrap().contains("OTHERKEY00"), "{apple}");
    assert!(remedy(&report, "accounts.apple.apple").contains("compare key_id"));
}

#[tokio::test]
async fn an_unreachable_relay_is_found_with_its_remedy() {
    let fixture = DoctorFixture::new(0).await;
    // Bound and let go: nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fixture.change(&format!("port = {}", fixture.sandbox.smtp.port()), &format!("port = {port}"));
    let (code, report) = fixture.doctor(&[]).await;
    assert_eq!((code, failed(&report)), (1, vec!["accounts.relay.relay"]), "{report:#}");
    let relay = finding(&report, "accounts.relay.relay");
    assert!(relay["found"].as_str().unwrap().contains("unreachable"), "{relay}");
    assert!(remedy(&report, "accounts.relay.relay").contains("firewall"));
}

#[tokio::test]
async fn a_wrong_clock_is_found_with_how_far_it_is_off_and_its_remedy() {
    let fixture = DoctorFixture::new(7260).await;
    let (code, report) = fixture.doctor(&[]).await;
    assert_eq!(code, 1, "{report:#}");
    let clock = finding(&report, "clock");
    assert_eq!(clock["verdict"], "fail", "{clock}");
    assert!(clock["found"].as_str().unwrap().contains("2 h behind"), "{clock}");
    assert!(remedy(&report, "clock").contains("NTP"));
    // What follows from it points the same way.
    assert!(remedy(&report, "accounts.firebase.token").contains("clock"), "{report:#}");
    assert!(remedy(&report, "accounts.apple.apple").contains("clock"), "{report:#}");
    assert!(remedy(&report, "accounts.amazon.ses").contains("clock"), "{report:#}");
}

#[tokio::test]
async fn a_missing_dkim_key_is_found_with_its_remedy() {
    let fixture = DoctorFixture::new(0).await;
    std::fs::remove_file(fixture.path("dkim.pem")).unwrap();
    let (code, report) = fixture.doctor(&[]).await;
    assert_eq!((code, failed(&report)), (1, vec!["accounts.relay.dkim.s1"]), "{report:#}");
    assert!(remedy(&report, "accounts.relay.dkim.s1").contains("put the file there"));
}

#[tokio::test]
async fn a_dkim_key_that_is_not_the_published_one_is_found_with_the_record_to_publish() {
    let fixture = DoctorFixture::new(0).await;
    fixture.publish("v=DKIM1; k=ed25519; p=AAAA");
    let (code, report) = fixture.doctor(&["--account", "relay"]).await;
    let check = "accounts.relay.dkim.s1.record";
    assert_eq!((code, failed(&report)), (1, vec![check]), "{report:#}");
    assert!(remedy(&report, check).contains("s1._domainkey.shop.example: v=DKIM1"), "{report:#}");
}

#[tokio::test]
async fn secrets_that_providers_refuse_are_told_apart_and_never_printed() {
    let fixture = DoctorFixture::new(0).await;
    for (name, account, check) in [
        ("password", "relay", "accounts.relay.relay"),
        ("grid.key", "grid", "accounts.grid.sendgrid"),
        ("twilio.secret", "texts", "accounts.texts.gateway"),
    ] {
        fixture.write(name, "wrong");
        let (code, report) = fixture.doctor(&["--account", account]).await;
        assert_eq!((code, failed(&report)), (1, vec![check]), "{report:#}");
    }
    fixture.write("aws.secret", "another-secret");
    let (_, report) = fixture.doctor(&["--account", "amazon"]).await;
    assert_eq!(failed(&report), vec!["accounts.amazon.ses"], "{report:#}");
    assert!(!report.to_string().contains("another-secret"));
    fixture.change("credential = \"file:", "credential = \"env:POSTRIDER_NOT_SET_");
    let (code, report) = fixture.doctor(&[]).await;
    assert_eq!((code, failed(&report).len()), (1, 6), "{report:#}");
}

#[tokio::test]
async fn a_certificate_that_ends_soon_is_a_warning_and_one_that_ended_a_failure() {
    let fixture = DoctorFixture::new(0).await;
    for (days, verdict) in [(400, "ok"), (20, "warn"), (-1, "fail")] {
        fixture.use_certificate(days);
        let (_, report) = fixture.doctor(&["--account", "apple", "--offline"]).await;
        let end = finding(&report, "accounts.apple.certificate");
        assert_eq!(end["verdict"], verdict, "{end}");
        assert!(end["found"].as_str().unwrap().contains("com.example.app"), "{end}");
    }
}

#[tokio::test]
async fn offline_calls_nobody() {
    let fixture = DoctorFixture::new(0).await;
    let (code, report) = fixture.doctor(&["--offline"]).await;
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(finding(&report, "clock")["verdict"], "skipped");
    assert_eq!(finding(&report, "accounts.relay.relay")["verdict"], "skipped");
    let granted = fixture.granted().await;
    assert_eq!(granted, 0, "not even a token was asked for");
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_is_the_first_finding_and_wrong_usage_is_2() {
    let fixture = DoctorFixture::new(0).await;
    let (code, _) = fixture.doctor(&["--account", "nobody"]).await;
    assert_eq!(code, 2);
    fixture.change("[network]", "[network]\nalow_plain_http = true");
    let (code, report) = fixture.doctor(&[]).await;
    assert_eq!((code, failed(&report)), (1, vec!["config"]));
    let config = finding(&report, "config");
    assert!(config["found"].as_str().unwrap().contains("alow_plain_http"), "{config}");
}

//! Orders about accounts and providers: verify, pause, resume.

use std::sync::Arc;

use http::Method;
use postrider_store::{MemoryStore, SystemClock};
use postrider_testkit::server::{ServerFixture, eventually, message, reply};
use serde_json::{Value, json};

use crate::providers::{ProvidersFixture, device_accounts, message_accounts};

const ANDROID: &str = "dQw4w9WgXcQ:APA91bHun4MxP5egoKMwt2KZFBaFUH";

#[tokio::test]
async fn an_account_is_verified_at_its_provider_without_a_message_and_not_too_often() {
    let fixture = ProvidersFixture::new(device_accounts).await;
    let admin = fixture.server.admin();
    let path = "/v1/accounts/firebase/verify";
    let found = admin.post(path, &Value::Null).await.unwrap();
    assert_eq!((&found["ok"], &found["channel"]), (&json!(true), &json!("fcm")), "{found:#}");
    let findings = found["findings"].as_array().unwrap().iter();
    let checks: Vec<_> = findings.map(|finding| finding["check"].as_str().unwrap()).collect();
    assert!(checks.contains(&"credential") && checks.contains(&"token"), "{checks:?}");
    for _ in 0..2 {
        assert_eq!(reply(&admin, Method::POST, path, "").await.status, 200);
    }
    let refused = reply(&admin, Method::POST, path, "").await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    let other = reply(&admin, Method::POST, "/v1/accounts/apple/verify", "").await;
    assert_eq!(other.status, 200, "each account has its own limit: {}", other.body);
    let audit = admin.get("/v1/audit?action=account.verify").await.unwrap();
    let entries = audit["items"].as_array().unwrap();
    assert_eq!(entries[0]["entry"]["subject"], "apple", "{audit:#}");
    assert_eq!(entries.iter().filter(|item| item["entry"]["outcome"] == "done").count(), 4);
}

#[tokio::test]
async fn an_account_that_does_not_work_says_what_helps() {
    let settings = "[accounts.apple]\nchannel = \"apns\"\ntenant = \"*\"\n\
                    credential = \"file:/nowhere/apple.pem\"\n";
    let server = ServerFixture::with(settings).await;
    let admin = server.admin();
    let found = admin.post("/v1/accounts/apple/verify", &Value::Null).await.unwrap();
    assert_eq!(found["ok"], false);
    let failed = found["findings"].as_array().unwrap().iter();
    let mut failed = failed.filter(|finding| finding["verdict"] == "fail");
    let finding = failed.next().unwrap();
    assert!(finding["found"].as_str().unwrap().contains("/nowhere/apple.pem"), "{found:#}");
    assert!(finding["remedy"].as_str().unwrap().contains("put the file there"), "{found:#}");
    let unknown = reply(&admin, Method::POST, "/v1/accounts/nobody/verify", "").await;
    assert_eq!(unknown.status, 404);
    for (scope, tenant) in [("manage", "*"), ("admin", "acme")] {
        let other = server.client(&server.key(scope, tenant).await);
        for action in ["verify", "pause", "resume"] {
            let path = format!("/v1/accounts/apple/{action}");
            assert_eq!(reply(&other, Method::POST, &path, "").await.status, 403, "{scope}");
        }
        let body = r#"{"channel": "webhook", "provider": "https://example.com"}"#;
        assert_eq!(reply(&other, Method::POST, "/v1/providers/pause", body).await.status, 403);
    }
}

#[tokio::test]
async fn a_paused_account_waits_and_says_so_until_it_is_resumed() {
    let fixture = ProvidersFixture::new(device_accounts).await;
    let admin = fixture.server.admin();
    let pause = json!({"reason": "a new contract", "for_s": 3600});
    let account = admin.post("/v1/accounts/firebase/pause", &pause).await.unwrap();
    assert_eq!(
        (&account["state"], &account["held_by"]),
        (&json!("held"), &json!("provider not paused"))
    );
    assert_eq!(account["paused"]["reason"], "a new contract");
    assert_eq!(account["paused"]["until"], account["until"], "{account:#}");
    let push = json!({"to": {"address": {"channel": "fcm", "token": ANDROID}}, "content": {"title": "Shipped"}});
    let sent = admin.post("/v1/messages", &push).await.unwrap();
    let path = format!("/v1/deliveries/{}/explain", sent["deliveries"][0]["id"].as_str().unwrap());
    let is_held =
        |why: &Value| why["waits_for"].as_str().is_some_and(|text| text.contains("paused"));
    let why = eventually(&admin, &path, is_held).await;
    let text = why["waits_for"].as_str().unwrap();
    assert!(
        text.contains("account firebase: paused by") && text.contains("a new contract"),
        "{text}"
    );
    assert!(why["until"].is_string(), "{why:#}");
    assert!(why["can_do"].to_string().contains("postrider accounts resume"), "{why:#}");
    let listed = admin.get("/v1/providers/paused").await.unwrap();
    assert_eq!(listed["providers"][0]["is_account"], true, "{listed:#}");
    let account = admin.post("/v1/accounts/firebase/resume", &Value::Null).await.unwrap();
    assert_eq!((&account["state"], account.get("paused")), (&json!("ready"), None));
    eventually(&admin, &path, |why| why["state"] == "sent").await;
    let audit = admin.get("/v1/audit?action=account.pause").await.unwrap();
    let entry = &audit["items"][0]["entry"];
    assert_eq!(
        (&entry["subject"], &entry["after"]["reason"]),
        (&json!("fcm/firebase"), &json!("a new contract"))
    );
}

#[tokio::test]
async fn another_account_takes_over_while_the_first_is_paused() {
    let fixture = ProvidersFixture::new(|sandbox, folder| {
        let relay = "host = \"localhost\"\nport = SMTP\nuser = \"shop\"\nSECRET";
        let accounts = message_accounts(sandbox, folder, relay);
        let (_, mail) = accounts.split_once("[accounts.mail]").unwrap();
        let (mail, _) = mail.split_once("[accounts.phone]").unwrap();
        format!("{accounts}[accounts.spare]{mail}priority = 9\n")
    })
    .await;
    let admin = fixture.server.admin();
    admin.post("/v1/accounts/mail/pause", &json!({"reason": "moving"})).await.unwrap();
    let mail = json!({"channel": "email", "email": "ada@customer.example"});
    let content = json!({"title": "Shipped", "body": "Order 91"});
    let delivery = fixture.send(mail.clone(), content.clone()).await;
    assert_eq!(
        (&delivery["state"], &delivery["log"][0]["account"]),
        (&json!("sent"), &json!("spare"))
    );
    admin.post("/v1/accounts/mail/resume", &Value::Null).await.unwrap();
    let delivery = fixture.send(mail, content).await;
    assert_eq!(delivery["log"][0]["account"], "mail", "{delivery:#}");
}

#[tokio::test]
async fn a_pause_of_a_provider_survives_a_restart_and_names_what_it_takes() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let server = ServerFixture::over(store.clone()).await;
    server.post(message().to_string()).await;
    let order = json!({"channel": "webhook", "provider": "https://example.com", "reason": "their maintenance"});
    server.admin().post("/v1/providers/pause", &order).await.unwrap();
    server.running.shutdown().await;
    let server = ServerFixture::over(store).await;
    let admin = server.admin();
    let lanes = admin.get("/v1/lanes").await.unwrap();
    let lane = &lanes["lanes"][0];
    assert_eq!(
        (&lane["state"], &lane["held_by"]),
        (&json!("blocked"), &json!("provider not paused"))
    );
    assert!(lane["waits_for"].as_str().unwrap().ends_with(": their maintenance"), "{lane:#}");
    for (body, field) in [
        (json!({"channel": "fcm", "provider": "https://fcm.googleapis.com"}), "channel"),
        (json!({"channel": "fax", "provider": "x"}), "channel"),
        (json!({"channel": "webhook", "provider": ""}), "provider"),
        (json!({"channel": "webhook", "provider": "x", "for_s": 0}), "for_s"),
    ] {
        let refused = reply(&admin, Method::POST, "/v1/providers/pause", body.to_string()).await;
        assert_eq!(refused.status, 422, "{}", refused.body);
        assert_eq!(refused.body["errors"][0]["field"], field, "{}", refused.body);
    }
    let resume = json!({"channel": "webhook", "provider": "https://example.com"});
    let left = admin.post("/v1/providers/resume", &resume).await.unwrap();
    assert_eq!(left["providers"], json!([]));
    let lanes = admin.get("/v1/lanes").await.unwrap();
    assert_eq!(lanes["lanes"][0]["state"], "ready", "{lanes:#}");
}

//! E-mail, text messages and chat messages from the API to the sandbox's providers and back.

use postrider_testkit::server::ServerFixture;
use serde_json::{Value, json};

use crate::providers::{ProvidersFixture, message_accounts};

/// With this mail account.
async fn with_mail(account: &str) -> ProvidersFixture {
    ProvidersFixture::new(|sandbox, folder| message_accounts(sandbox, folder, account)).await
}

async fn send_mail(fixture: &ProvidersFixture) -> Value {
    let address = json!({"channel": "email", "email": "Ada@example.org", "name": "Ada Ü"});
    let content = json!({"title": "Shipped", "body": "Order 91\n.\nis on its way"});
    fixture.send(address, content).await
}

#[tokio::test]
async fn a_mail_arrives_by_starttls_and_by_implicit_tls() {
    let implicit = "host = \"localhost\"\ntls = \"implicit\"\nport = SMTPS\nuser = \"a\"\nSECRET";
    for fixture in [ProvidersFixture::by_smtp().await, with_mail(implicit).await] {
        let delivery = send_mail(&fixture).await;
        assert_eq!(delivery["state"], "sent", "{delivery}");
        assert_eq!(delivery["log"][0]["status"], 250, "{delivery}");
        let mail = fixture.last("email", "ada@example.org").await;
        let id = delivery["id"].as_str().unwrap();
        assert_eq!(mail["headers"]["message-id"], format!("<{id}@shop.example>"));
        assert_eq!(mail["headers"]["to"], "=?UTF-8?Q?Ada_=C3=9C?= <Ada@example.org>");
        let body = mail["body"].as_str().unwrap();
        assert!(body.contains("Order 91\r\n.\r\nis on its way"), "{body}");
        assert!(body.contains("Auto-Submitted: auto-generated\r\n"), "{body}");
        assert_eq!(fixture.sandbox.received()["by_kind"]["email"], 1);
    }
}

#[tokio::test]
async fn a_mail_arrives_by_ses_and_by_sendgrid() {
    let ses = "provider = \"ses\"\nregion = \"eu-central-1\"\nkey_id = \"AKIDSANDBOX\"\n\
               endpoint = \"HTTPS\"\nSECRET";
    let sendgrid = "provider = \"sendgrid\"\nendpoint = \"HTTPS\"\nSECRET";
    for (account, status) in [(ses, 200), (sendgrid, 202)] {
        let fixture = with_mail(account).await;
        let delivery = send_mail(&fixture).await;
        assert_eq!(delivery["state"], "sent", "{delivery}");
        assert_eq!(delivery["log"][0]["status"], status);
        assert!(delivery["log"][0]["provider_id"].is_string(), "{delivery}");
        assert_eq!(fixture.sandbox.received()["accepted"], 1);
    }
}

#[tokio::test]
async fn a_wrong_password_parks_the_mail_and_burns_no_attempt() {
    let account =
        "host = \"localhost\"\nport = SMTP\nuser = \"shop\"\ncredential = \"command:echo wrong\"";
    let fixture = with_mail(account).await;
    let delivery = send_mail(&fixture).await;
    assert_eq!(delivery["state"], "parked", "{delivery}");
    let first = &delivery["log"][0];
    assert_eq!((&first["outcome"], &first["code"]), (&json!("config"), &json!("5.7.8")), "{first}");
}

#[tokio::test]
async fn an_unknown_mailbox_is_gone_and_a_spam_verdict_spares_the_address() {
    let fixture = ProvidersFixture::by_smtp().await;
    fixture.script("email", "ada@example.org", &["550"]);
    let delivery = send_mail(&fixture).await;
    assert_eq!(delivery["state"], "gone", "{delivery}");
    let told = delivery["log"][0]["detail"].as_str().unwrap();
    assert!(told.contains("User unknown") && !told.to_lowercase().contains("ada@"), "{told}");
    fixture.script("email", "bob@example.org", &["554"]);
    let address = json!({"channel": "email", "email": "bob@example.org"});
    let delivery = fixture.send(address, json!({"title": "x"})).await;
    assert_eq!(delivery["state"], "failed", "{delivery}");
}

#[tokio::test]
async fn a_text_message_says_how_long_it_is_valid() {
    let fixture = ProvidersFixture::by_smtp().await;
    let address = json!({"channel": "sms", "phone": "+49 151 12345678"});
    let delivery = fixture.send(address.clone(), json!({"body": "Your code is 123456"})).await;
    assert_eq!(delivery["state"], "sent", "{delivery}");
    assert!(delivery["log"][0]["provider_id"].as_str().unwrap().starts_with("SM"));
    let sent = fixture.last("sms", "+4915112345678").await;
    let form = sent["body"].as_str().unwrap();
    let valid: u32 = form.split("ValidityPeriod=").nth(1).unwrap().parse().unwrap();
    assert!((590..=600).contains(&valid), "{form}");
    assert!(form.starts_with("To=%2B4915112345678&From=%2B15550100&Body=Your+code"), "{form}");
    fixture.script("sms", "+4915112345678", &["410"]);
    assert_eq!(fixture.send(address, json!({"body": "again"})).await["state"], "gone");
}

#[tokio::test]
async fn chats_get_what_they_show_best() {
    let fixture = ProvidersFixture::by_smtp().await;
    let content = json!({"title": "Deploy", "body": "done", "url": "https://ci.example/1"});
    for (service, wanted) in [
        ("slack/ops", "\"text\":\"*Deploy*\\ndone\\n<https://ci.example/1>\""),
        ("discord/ops", "\"embeds\":[{"),
        ("teams/ops", "AdaptiveCard"),
        ("teams/connector-1", "AdaptiveCard"),
    ] {
        let url = format!("{}/{service}", fixture.sandbox.https_origin());
        let delivery = fixture.send(json!({"channel": "chat", "url": url}), content.clone()).await;
        assert_eq!(delivery["state"], "sent", "{service}: {delivery}");
        let sent = fixture.last("chat", &service.replace('/', ".")).await;
        assert!(sent["body"].as_str().unwrap().contains(wanted), "{sent}");
    }
    // An old connector says 200 and means no.
    fixture.script("chat", "teams.connector-2", &["400"]);
    let url = format!("{}/teams/connector-2", fixture.sandbox.https_origin());
    let delivery = fixture.send(json!({"channel": "chat", "url": url}), content).await;
    assert_eq!(delivery["state"], "failed", "{delivery}");
}

#[tokio::test]
async fn what_could_never_be_delivered_is_refused_with_field_found_and_allowed() {
    let fixture = ProvidersFixture::by_smtp().await;
    let refused = async |address: Value, content: Value| {
        let message = json!({"to": {"address": address}, "content": content});
        let reply = fixture.server.post(message.to_string()).await;
        assert_eq!(reply.status, 422, "{}", reply.body);
        reply.body["errors"].clone()
    };
    let mail = json!({"channel": "email", "email": "ada@example.org"});
    let errors = [
        refused(json!({"channel": "email", "email": "ada"}), json!({"title": "x"})).await,
        refused(
            json!({"channel": "email", "email": "a@b.example", "name": "x\r\nBcc: y@z.example"}),
            json!({"title": "x"}),
        )
        .await,
        refused(mail.clone(), json!({"email": {"subject": "x\nBcc: y", "text": "x"}})).await,
        refused(mail, json!({"data": {}})).await,
        refused(json!({"channel": "sms", "phone": "0151123"}), json!({"body": "x"})).await,
        refused(
            json!({"channel": "sms", "phone": "+4915112345678"}),
            json!({"body": "x".repeat(1601)}),
        )
        .await,
        refused(json!({"channel": "chat", "url": "ftp://x"}), json!({"body": "x"})).await,
    ];
    insta::assert_json_snapshot!(errors);
}

#[tokio::test]
async fn without_an_account_the_gate_says_what_to_configure() {
    let server = ServerFixture::start().await;
    let message = json!({
        "to": {"address": {"channel": "email", "email": "a@b.example"}},
        "content": {"title": "x"},
    });
    let reply = server.post(message.to_string()).await;
    assert_eq!(reply.status, 422);
    let allowed = reply.body["errors"][0]["allowed"].as_str().unwrap();
    assert!(allowed.contains("[accounts.NAME]"), "{allowed}");
}

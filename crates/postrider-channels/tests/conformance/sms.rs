//! What the SMS channel promises: Twilio's form and errors, and any other gateway's.

use std::time::Duration;

use postrider_channels::ChannelTarget as _;
use postrider_channels::sms::SmsTarget;
use postrider_core::{Attempt, Outcome, Report, Scope, Timestamp};
use serde_json::{Value, json};

use crate::accounts::{PHONE, TestAccounts, WITHIN};
use crate::column::{Column, authorization};
use crate::provider::{Answer, Line, Provider};

const BACKOFF: Outcome = Outcome::RetryBackoff { at_least: Duration::ZERO };

fn twilio(provider: &Provider) -> Value {
    account(&provider.url(""), "command:echo s3cret")
}

fn account(origin: &str, credential: &str) -> Value {
    json!({
        "account_sid": "AC1", "user": "SK1", "credential": credential, "from": "+15550100",
        "endpoint": origin,
    })
}

pub(crate) static TWILIO: Column = Column {
    name: "twilio",
    channel: "sms",
    account: Some(account),
    target: |path| {
        let number = path.parse::<u32>().map(|n| format!("+49151{n:08}"));
        SmsTarget { phone: number.map_or_else(|_| PHONE.into(), Into::into) }.to_target()
    },
    secret_field: "phone",
    throttle_scope: Scope::Credential,
    gone: || error(400, 21211),
    refused_credential: || error(401, 20003),
    credential_of: authorization,
};

async fn answered(answer: Answer) -> Report {
    let provider = Provider::start(Line::Http2).await;
    provider.answers([answer]);
    TestAccounts::sms(&[twilio(&provider)], WITHIN).text().await
}

pub(crate) fn error(status: u16, code: u32) -> Answer {
    let body = json!({"code": code, "message": "about +4915112345678", "status": status});
    Answer::status(status).body(body.to_string())
}

#[tokio::test]
async fn a_message_goes_out_as_twilio_wants_it_with_the_time_that_is_left() {
    let provider = Provider::start(Line::Http2).await;
    provider.answers([Answer::status(201).body(r#"{"sid":"SM1","status":"queued"}"#)]);
    let fixture = TestAccounts::sms(&[twilio(&provider)], WITHIN);
    let attempt = fixture.to_phone();
    fixture.clock.advance(Duration::from_secs(600));
    let report = fixture.one(attempt).await;
    assert_eq!((report.outcome, report.provider_id.as_deref()), (Outcome::Accepted, Some("SM1")));
    let received = provider.received().remove(0);
    assert_eq!(received.uri.path(), "/2010-04-01/Accounts/AC1/Messages.json");
    assert_eq!(received.headers["authorization"], "Basic U0sxOnMzY3JldA==");
    assert_eq!(
        received.body,
        "To=%2B4915112345678&From=%2B15550100&Body=Shipped%0AOrder+91+is+on+its+way&ValidityPeriod=3000"
    );
}

#[tokio::test]
async fn validity_is_at_most_ten_hours_and_at_least_a_second() {
    for (left_ms, validity) in [(86_400_000, "36000"), (400, "1")] {
        let provider = Provider::start(Line::Http2).await;
        let fixture = TestAccounts::sms(&[twilio(&provider)], WITHIN);
        let attempt = fixture.to_phone();
        let expires_at = Timestamp(attempt.now.0 + left_ms);
        fixture.one(Attempt { expires_at, ..attempt }).await;
        let received = provider.received().remove(0);
        let body = String::from_utf8(received.body.to_vec()).unwrap();
        assert!(body.ends_with(&format!("ValidityPeriod={validity}")), "{body}");
    }
}

#[tokio::test]
async fn codes_say_more_than_statuses_and_no_number_is_repeated() {
    let report = answered(error(400, 21211)).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Gone, Some("21211")));
    assert!(!report.detail.unwrap().contains("4915112345678"));
    assert_eq!(answered(error(400, 21610)).await.outcome, Outcome::Gone);
    assert_eq!(answered(error(400, 21617)).await.outcome, Outcome::DropMessage);
    assert_eq!(answered(error(401, 20003)).await.outcome, Outcome::Config);
    assert_eq!(answered(error(400, 21606)).await.outcome, Outcome::Config);
    assert_eq!(answered(error(500, 20500)).await.outcome, BACKOFF);
    assert_eq!(answered(Answer::status(503)).await.outcome, BACKOFF);
    assert_eq!(answered(error(400, 30410)).await.outcome, Outcome::Ambiguous);
}

#[tokio::test]
async fn twilio_s_own_code_for_too_many_requests_holds_the_whole_account() {
    let scope = Scope::Credential;
    let report = answered(error(429, 20429).header("retry-after", "7")).await;
    assert_eq!(report.outcome, Outcome::RetryAfter { after: Duration::from_secs(7), scope });
    let report = answered(error(429, 20429)).await;
    assert_eq!(report.outcome, Outcome::RetryAfter { after: Duration::from_secs(60), scope });
}

#[tokio::test]
async fn a_gateway_of_another_shape_is_a_matter_of_configuration() {
    let provider = Provider::start(Line::Http2).await;
    let account = json!({
        "provider": "http", "url": provider.url("/send"), "format": "json", "service": "acme",
        "fields": {"dst": "{to}", "msg": "{text}", "ttl": "{validity_s}", "ref": "{delivery}"},
        "auth": "header:x-api-key", "credential": "command:echo k3y",
        "id_at": "/messages/0/id", "ok_at": "/messages/0/status", "ok_values": ["0"],
    });
    provider.answers([
        Answer::status(200).body(r#"{"messages":[{"id":"m1","status":"0"}]}"#),
        Answer::status(200).body(r#"{"messages":[{"status":"9"}]}"#),
    ]);
    let fixture = TestAccounts::sms(&[account], WITHIN);
    let report = fixture.text().await;
    assert_eq!((report.outcome, report.provider_id.as_deref()), (Outcome::Accepted, Some("m1")));
    let received = provider.received().remove(0);
    assert_eq!(received.headers["x-api-key"], "k3y");
    let sent: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!((&sent["dst"], &sent["ttl"]), (&json!("+4915112345678"), &json!("3600")));
    let report = fixture.text().await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::DropMessage, Some("9")));
}

#[tokio::test]
async fn when_one_gateway_refuses_us_the_next_takes_over() {
    let (a, b) = (Provider::start(Line::Http2).await, Provider::start(Line::Http2).await);
    a.answers([error(401, 20003)]);
    let fixture = TestAccounts::sms(&[twilio(&a), twilio(&b)], WITHIN);
    assert_eq!(fixture.text().await.outcome, Outcome::SwitchAccount);
    assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
    assert_eq!((a.received().len(), b.received().len()), (1, 1));
}

#[tokio::test]
async fn a_long_text_counts_for_its_segments_in_rates() {
    let provider = Provider::start(Line::Http2).await;
    let fixture = TestAccounts::sms(&[twilio(&provider)], WITHIN);
    let attempt = fixture.to_phone();
    assert_eq!(fixture.weight(&attempt), 1);
    let mut message = (*attempt.message).clone();
    message.content = format!(r#"{{"sms":{{"text":"{}"}}}}"#, "ü".repeat(320)).into();
    let message = std::sync::Arc::new(message);
    assert_eq!(fixture.weight(&Attempt { message, ..attempt }), 3);
}

//! Deliveries that have ended, and why.

use postrider_core::ports::store::NewReceipt;
use postrider_core::{DeliveryId, ReceiptKind};
use postrider_testkit::server::STRIKE_RULES;
use serde_json::{Value, json};

use crate::fixture::ExplainFixture;

const CLASSES: &str = r#"
[classes.paid]
on_ambiguous = "park"
[classes.once]
on_ambiguous = "drop"
[classes.eager]
when_open = "reject"
"#;

#[tokio::test]
async fn sent() {
    let fixture = ExplainFixture::with("").await;
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.explained("sent", &id, "sent").await;
}

#[tokio::test]
async fn told_by_receipts() {
    let fixture = ExplainFixture::with("").await;
    for (kind, state) in [
        (ReceiptKind::Delivered, "delivered"),
        (ReceiptKind::Displayed, "seen"),
        (ReceiptKind::Clicked, "clicked"),
        (ReceiptKind::Dismissed, "dismissed"),
    ] {
        let id = fixture.sent_into("sent", state, &["ok"], json!({})).await;
        let delivery: DeliveryId = id.parse().unwrap();
        let receipt = NewReceipt { delivery, kind, at: None };
        fixture.server.running.app.store.record_receipts(vec![receipt]).await.remove(0).unwrap();
        fixture.explained(state, &id, state).await;
    }
}

#[tokio::test]
async fn gone() {
    let fixture = ExplainFixture::with("").await;
    let id = fixture.send("a", &["410"], json!({})).await;
    fixture.explained("gone", &id, "gone").await;
}

#[tokio::test]
async fn cancelled() {
    let fixture = ExplainFixture::with("").await;
    let message = json!({
        "to": {"address": fixture.hook("a", &["ok"])}, "send_at": "2027-06-01T00:00:00Z",
    });
    let sent = fixture.post("/v1/messages", &message).await;
    let path = format!("/v1/messages/{}/cancel", sent["id"].as_str().unwrap());
    fixture.post(&path, &Value::Null).await;
    let id = sent["deliveries"][0]["id"].as_str().unwrap();
    fixture.explained("cancelled", id, "cancelled").await;
}

#[tokio::test]
async fn expired_untried() {
    let fixture = ExplainFixture::with("").await;
    fixture.send("a", &["ok"], json!({"send_at": "2027-06-01T00:00:00Z"})).await;
    let lane = fixture.lane().await;
    fixture.post(&format!("/v1/lanes/{lane}/pause"), &Value::Null).await;
    let id = fixture.send("a", &["ok"], json!({"ttl_s": 1})).await;
    fixture.explained("expired", &id, "expired").await;
}

#[tokio::test]
async fn refused_for_good() {
    let fixture = ExplainFixture::with("").await;
    let id = fixture.send("a", &["400"], json!({})).await;
    fixture.explained("dead_permanent", &id, "failed").await;
}

#[tokio::test]
async fn out_of_attempts() {
    let fixture = ExplainFixture::with("").await;
    let id = fixture.send("a", &["500"], json!({"retry": {"retries": 0}})).await;
    fixture.explained("dead_retries_exhausted", &id, "failed").await;
}

#[tokio::test]
async fn out_of_time_for_another_attempt() {
    let fixture = ExplainFixture::with("").await;
    let slow = json!({"ttl_s": 5, "retry": {"base_ms": 60_000, "jitter": "none"}});
    let id = fixture.send("a", &["500"], slow).await;
    fixture.explained("dead_ttl", &id, "failed").await;
}

#[tokio::test]
async fn perhaps_sent_and_a_person_decides() {
    let fixture = ExplainFixture::with(CLASSES).await;
    let id = fixture.send("a", &["reset-after"], json!({"class": "paid"})).await;
    fixture.explained("dead_ambiguous", &id, "failed").await;
}

#[tokio::test]
async fn perhaps_sent_and_left_at_that() {
    let fixture = ExplainFixture::with(CLASSES).await;
    let id = fixture.send("a", &["reset-after"], json!({"class": "once"})).await;
    fixture.explained("suppressed_dropped", &id, "suppressed").await;
}

#[tokio::test]
async fn not_to_wait_for_an_open_breaker() {
    let fixture = ExplainFixture::with(CLASSES).await;
    fixture.send("a", &["ok"], json!({"send_at": "2027-06-01T00:00:00Z"})).await;
    let lane = fixture.lane().await;
    fixture.post(&format!("/v1/lanes/{lane}/breaker"), &json!({"force": "open"})).await;
    let id = fixture.send("a", &["ok"], json!({"class": "eager"})).await;
    fixture.explained("dead_refused", &id, "failed").await;
}

#[tokio::test]
async fn discarded() {
    let fixture = ExplainFixture::with("").await;
    let id = fixture.sent_into("failed", "a", &["400"], json!({})).await;
    fixture.post("/v1/dead-letters/discard", &json!({"ids": [id]})).await;
    fixture.explained("dead_discarded", &id, "failed").await;
}

#[tokio::test]
async fn gone_after_two_strikes() {
    let fixture = ExplainFixture::with(STRIKE_RULES).await;
    fixture.sent_into("failed", "a", &["404"], json!({})).await;
    let id = fixture.send("a", &["404"], json!({})).await;
    fixture.explained("gone_by_strikes", &id, "gone").await;
}

#[tokio::test]
async fn refused_by_an_address_that_is_suspect() {
    let fixture = ExplainFixture::with(STRIKE_RULES).await;
    let id = fixture.send("a", &["422"], json!({})).await;
    fixture.explained("dead_suspect", &id, "failed").await;
}

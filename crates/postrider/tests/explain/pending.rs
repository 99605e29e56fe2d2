//! Deliveries that are not due yet, or that another server sends.

use serde_json::json;

use crate::fixture::ExplainFixture;

#[tokio::test]
async fn scheduled_for_later() {
    let fixture = ExplainFixture::with("").await;
    let later = json!({"send_at": "2027-06-01T00:00:00Z"});
    let id = fixture.send("a", &["ok"], later).await;
    fixture.explained("queued_scheduled", &id, "queued").await;
}

#[tokio::test]
async fn tried_again_later() {
    let fixture = ExplainFixture::with("").await;
    let patient =
        json!({"retry": {"retries": 3, "base_ms": 600_000, "cap_ms": 600_000, "jitter": "none"}});
    let id = fixture.send("a", &["503"], patient).await;
    fixture.explained("retrying", &id, "retrying").await;
}

#[tokio::test]
async fn an_address_that_wants_to_be_left_alone() {
    let fixture = ExplainFixture::with("").await;
    let id = fixture.send("a", &["429:60"], json!({})).await;
    fixture.explained("retrying_retry_after_target", &id, "retrying").await;
}

#[tokio::test]
async fn a_failure_that_does_not_count() {
    let fixture = ExplainFixture::with("[breaker]\nopen_s = 3600\nopen_s_max = 3600\n").await;
    let id = fixture.all_addresses_fail().await;
    fixture.explained("retrying_excused", &id, "retrying").await;
}

#[tokio::test]
async fn a_server_that_accepts_only() {
    let fixture = ExplainFixture::with("[server]\nrole = \"api\"\n").await;
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.explained("queued_role_api", &id, "queued").await;
}

#[tokio::test]
async fn nowhere_to_fall_back_to() {
    let fixture = ExplainFixture::with("[classes.flexible]\nwhen_open = \"fall_back\"\n").await;
    fixture.send("a", &["ok"], json!({"send_at": "2027-06-01T00:00:00Z"})).await;
    let lane = fixture.lane().await;
    fixture.post(&format!("/v1/lanes/{lane}/breaker"), &json!({"force": "open"})).await;
    let id = fixture.send("a", &["ok"], json!({"class": "flexible"})).await;
    fixture.explained("parked_no_fallback", &id, "parked").await;
}

#[tokio::test]
async fn an_address_that_gets_no_more_for_now() {
    let fixture =
        ExplainFixture::with("[webhook]\nrate_per_address_s = 0.001\nrate_burst = 1\n").await;
    fixture.sent_into("sent", "a", &["ok"], json!({})).await;
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.explained("parked_address_rate", &id, "parked").await;
}

#[tokio::test]
async fn from_a_backup_and_not_released() {
    let fixture = ExplainFixture::with("").await;
    let later = json!({"send_at": "2027-06-01T00:00:00Z"});
    let id = fixture.send("a", &["ok"], later).await;
    fixture.server.running.app.store.hold_pending().await.unwrap();
    fixture.explained("parked_backup", &id, "parked").await;
}

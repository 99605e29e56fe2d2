//! What is not due yet, or not sent by this server.

use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn scheduled_for_later() {
    let stage = Stage::with("").await;
    let later = json!({"send_at": "2027-06-01T00:00:00Z"});
    let id = stage.send("a", &["ok"], later).await;
    stage.explained("queued_scheduled", &id, "queued").await;
}

#[tokio::test]
async fn tried_again_later() {
    let stage = Stage::with("").await;
    let patient =
        json!({"retry": {"retries": 3, "base_ms": 600_000, "cap_ms": 600_000, "jitter": "none"}});
    let id = stage.send("a", &["503"], patient).await;
    stage.explained("retrying", &id, "retrying").await;
}

#[tokio::test]
async fn an_address_that_wants_to_be_left_alone() {
    let stage = Stage::with("").await;
    let id = stage.send("a", &["429:60"], json!({})).await;
    stage.explained("retrying_retry_after_target", &id, "retrying").await;
}

#[tokio::test]
async fn a_failure_that_does_not_count() {
    let stage =
        Stage::with("[breaker]\nburst_calls_min = 1\nopen_s = 3600\nopen_s_max = 3600\n").await;
    let patient = json!({"retry": {"base_ms": 60_000, "jitter": "none"}});
    let id = stage.send("a", &["500"], patient).await;
    stage.explained("retrying_excused", &id, "retrying").await;
}

#[tokio::test]
async fn a_server_that_accepts_only() {
    let stage = Stage::with("[server]\nrole = \"api\"\n").await;
    let id = stage.send("a", &["ok"], json!({})).await;
    stage.explained("queued_role_api", &id, "queued").await;
}

#[tokio::test]
async fn nowhere_to_fall_back_to() {
    let stage = Stage::with("[classes.flexible]\nwhen_open = \"fall_back\"\n").await;
    stage.send("a", &["ok"], json!({"send_at": "2027-06-01T00:00:00Z"})).await;
    let lane = stage.lane().await;
    stage.post(&format!("/v1/lanes/{lane}/breaker"), &json!({"force": "open"})).await;
    let id = stage.send("a", &["ok"], json!({"class": "flexible"})).await;
    stage.explained("parked_no_fallback", &id, "parked").await;
}

#[tokio::test]
async fn an_address_that_gets_no_more_for_now() {
    let stage = Stage::with("[webhook]\nrate_per_address_s = 0.001\nrate_burst = 1\n").await;
    stage.sent_into("sent", "a", &["ok"], json!({})).await;
    let id = stage.send("a", &["ok"], json!({})).await;
    stage.explained("parked_address_rate", &id, "parked").await;
}

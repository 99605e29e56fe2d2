//! What is due and may not go, gate by gate.

use postrider_core::{TenantId, Timestamp};
use postrider_dispatch::lanes::OperatorOrder;
use postrider_sandbox::SandboxConfig;
use serde_json::{Value, json};

use crate::stage::Stage;

#[tokio::test]
async fn a_paused_lane() {
    let stage = Stage::with("").await;
    let first = json!({"send_at": "2027-06-01T00:00:00Z"});
    stage.send("a", &["ok"], first).await;
    let lane = stage.lane().await;
    stage.post(&format!("/v1/lanes/{lane}/pause"), &Value::Null).await;
    let id = stage.send("a", &["ok"], json!({})).await;
    stage.held("held_paused", &id, "lane not paused").await;
}

#[tokio::test]
async fn a_paused_tenant() {
    let stage = Stage::with("").await;
    let by = OperatorOrder { by: "the test".into(), at: Timestamp(0) };
    stage.server.app.lanes.pause_tenant(TenantId::new("default"), by);
    let id = stage.send("a", &["ok"], json!({})).await;
    stage.held("held_tenant_paused", &id, "tenant not paused").await;
}

#[tokio::test]
async fn a_host_that_wants_to_be_left_alone() {
    let stage = Stage::with("").await;
    for name in ["a", "b", "c"] {
        stage.sent_into("retrying", name, &["429:60"], json!({})).await;
    }
    let id = stage.send("d", &["ok"], json!({})).await;
    stage.held("held_retry_after_host", &id, "provider takes calls").await;
}

#[tokio::test]
async fn a_credential_that_is_to_be_used_less() {
    let rows = "[[classify]]\nservice = \"webhook\"\nstatus = 429\noutcome = \"retry_after\"\nscope = \"credential\"\n";
    let stage = Stage::with(rows).await;
    stage.sent_into("retrying", "a", &["429:60"], json!({})).await;
    let id = stage.send("b", &["ok"], json!({})).await;
    stage.held("held_retry_after_credential", &id, "provider takes calls").await;
}

/// Opens at the first failure and stays so until the test has ended.
const BREAKER: &str = "[breaker]\nburst_calls_min = 1\nopen_s = 3600\nopen_s_max = 3600\n";

#[tokio::test]
async fn an_open_breaker() {
    let stage = Stage::with(BREAKER).await;
    stage.sent_into("retrying", "a", &["500"], json!({})).await;
    let id = stage.send("b", &["ok"], json!({})).await;
    stage.held("held_breaker_open", &id, "breaker").await;
}

#[tokio::test]
async fn a_breaker_that_tries_whether_its_provider_works() {
    let stage = Stage::with("[breaker]\nburst_calls_min = 1\nopen_s = 1\nopen_s_max = 1\n").await;
    let patient = json!({"retry": {"retries": 9, "base_ms": 1, "jitter": "none"}});
    let probe = stage.sent_into("retrying", "a", &["500", "hang"], patient).await;
    stage.sent_into_again("sending", &probe).await;
    let id = stage.send("b", &["ok"], json!({})).await;
    stage.held("held_breaker_half_open", &id, "breaker").await;
}

#[tokio::test]
async fn a_breaker_that_a_retry_storm_opened() {
    let storm = "[breaker]\nburst_calls_min = 1000\nstorm_retries_min = 2\nopen_s = 3600\nopen_s_max = 3600\n";
    let stage = Stage::with(storm).await;
    let eager = json!({"retry": {"retries": 9, "base_ms": 1, "jitter": "none"}});
    stage.send("a", &["500"], eager).await;
    stage.a_breaker_opens().await;
    let id = stage.send("b", &["ok"], json!({})).await;
    stage.held("held_breaker_storm", &id, "breaker").await;
}

#[tokio::test]
async fn a_breaker_that_an_operator_opened() {
    let stage = Stage::with("").await;
    stage.send("a", &["ok"], json!({"send_at": "2027-06-01T00:00:00Z"})).await;
    let lane = stage.lane().await;
    stage.post(&format!("/v1/lanes/{lane}/breaker"), &json!({"force": "open"})).await;
    let id = stage.send("a", &["ok"], json!({})).await;
    stage.held("held_breaker_forced", &id, "breaker").await;
}

#[tokio::test]
async fn a_refused_credential() {
    let rows = "[[classify]]\nservice = \"webhook\"\nstatus = 401\noutcome = \"config\"\n";
    let stage = Stage::with(&format!("{BREAKER}{rows}")).await;
    let parked = stage.sent_into("parked", "a", &["401"], json!({})).await;
    stage.explained("parked_credential", &parked, "parked").await;
    let id = stage.send("b", &["ok"], json!({})).await;
    stage.held("held_credential", &id, "credential").await;
}

#[tokio::test]
async fn a_mass_of_gone_addresses() {
    let stage = Stage::with(&format!("{BREAKER}gone_sends_min = 1\n")).await;
    let parked = stage.sent_into("parked", "a", &["410"], json!({})).await;
    stage.explained("parked_mass_gone", &parked, "parked").await;
    let id = stage.send("b", &["ok"], json!({})).await;
    stage.held("held_mass_gone", &id, "mass-gone guard").await;
}

#[tokio::test]
async fn a_providers_rate() {
    let stage = Stage::with("[webhook]\nrate_per_s = 0.001\nrate_burst = 1\n").await;
    stage.sent_into("sent", "a", &["ok"], json!({})).await;
    let id = stage.send("a", &["ok"], json!({})).await;
    stage.held("held_rate", &id, "rate limit").await;
}

#[tokio::test]
async fn a_pace_that_was_learned_from_a_provider() {
    let settings = "[breaker]\nstorm_success = 0\n[[classify]]\nservice = \"webhook\"\nstatus = 429\noutcome = \"retry_backoff\"\n";
    let slow = SandboxConfig { rate_per_s: Some(1), ..SandboxConfig::default() };
    let stage = Stage::before(slow, settings).await;
    let eager =
        json!({"retry": {"retries": 50, "base_ms": 200, "kind": "fixed", "jitter": "none"}});
    for _ in 0..40 {
        stage.send("a", &["ok"], eager.clone()).await;
    }
    stage.learns_a_pace().await;
    let id = stage.send("a", &["ok"], json!({})).await;
    stage.held("held_pace", &id, "learned pace").await;
    let scraped = stage.metrics().await;
    let name = "postrider_lane_pace_per_second{channel=\"webhook\",provider=\"http://";
    assert!(scraped.contains(name), "{scraped}");
}

#[tokio::test]
async fn a_credentials_rate() {
    let settings = "[webhook]\nrate_per_credential_s = 0.001\nrate_burst = 1\n";
    let stage = Stage::with(settings).await;
    stage.sent_into("sent", "a", &["ok"], json!({})).await;
    let id = stage.send("a", &["ok"], json!({})).await;
    stage.held("held_credential_rate", &id, "credential's rate limit").await;
}

#[tokio::test]
async fn a_tenants_rate() {
    let stage = Stage::with("[tenants.default]\nrate_per_s = 0.001\nrate_burst = 1\n").await;
    stage.sent_into("sent", "a", &["ok"], json!({})).await;
    let id = stage.send("a", &["ok"], json!({})).await;
    stage.held("held_tenant_rate", &id, "tenant's rate limit").await;
}

#[tokio::test]
async fn a_spent_retry_budget() {
    let settings =
        "[retry_budget]\nshare = 0\nfloor_per_s = 0.1\n[breaker]\nburst_calls_min = 1000\n";
    let stage = Stage::with(settings).await;
    let eager = json!({"retry": {"retries": 9, "base_ms": 1, "jitter": "none"}});
    let id = stage.send("a", &["500"], eager).await;
    stage.held("held_retry_budget", &id, "retry budget").await;
}

#[tokio::test]
async fn as_many_calls_as_the_provider_takes() {
    let stage = Stage::with("[webhook]\nconcurrency = 1\n").await;
    let sending = stage.sent_into("sending", "a", &["hang"], json!({})).await;
    stage.explained("sending", &sending, "sending").await;
    let id = stage.send("b", &["ok"], json!({})).await;
    stage.held("held_concurrency", &id, "concurrency").await;
}

#[tokio::test]
async fn places_that_are_kept_for_urgent_work() {
    let stage = Stage::with("[webhook]\nconcurrency = 10\n").await;
    for n in 0..9 {
        stage.sent_into("sending", &n.to_string(), &["hang"], json!({})).await;
    }
    let id = stage.send("z", &["ok"], json!({})).await;
    stage.held("held_urgent_places", &id, "concurrency").await;
}

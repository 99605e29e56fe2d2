//! Deliveries that are due but held, gate by gate.

use postrider_core::{TenantId, Timestamp};
use postrider_dispatch::lanes::OperatorOrder;
use postrider_sandbox::SandboxConfig;
use serde_json::{Value, json};

use crate::fixture::ExplainFixture;

#[tokio::test]
async fn a_paused_lane() {
    let fixture = ExplainFixture::with("").await;
    let first = json!({"send_at": "2027-06-01T00:00:00Z"});
    fixture.send("a", &["ok"], first).await;
    let lane = fixture.lane().await;
    fixture.post(&format!("/v1/lanes/{lane}/pause"), &Value::Null).await;
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.held("held_paused", &id, "lane not paused").await;
}

#[tokio::test]
async fn a_paused_tenant() {
    let fixture = ExplainFixture::with("").await;
    let by = OperatorOrder::new("the test", Timestamp(0));
    fixture.server.running.app.lanes.pause_tenant(TenantId::new("default"), by);
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.held("held_tenant_paused", &id, "tenant not paused").await;
}

#[tokio::test]
async fn a_paused_provider() {
    let fixture = ExplainFixture::with("").await;
    let first = json!({"send_at": "2027-06-01T00:00:00Z"});
    fixture.send("a", &["ok"], first).await;
    let lanes = fixture.api.get("/v1/lanes").await.unwrap();
    let provider = &lanes["lanes"][0]["provider"];
    let pause = json!({"channel": "webhook", "provider": provider, "reason": "their maintenance"});
    fixture.post("/v1/providers/pause", &pause).await;
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.held("held_provider_paused", &id, "provider not paused").await;
}

#[tokio::test]
async fn a_host_that_wants_to_be_left_alone() {
    let fixture = ExplainFixture::with("").await;
    for name in ["a", "b", "c"] {
        fixture.sent_into("retrying", name, &["429:60"], json!({})).await;
    }
    let id = fixture.send("d", &["ok"], json!({})).await;
    fixture.held("held_retry_after_host", &id, "provider takes calls").await;
}

#[tokio::test]
async fn a_credential_that_is_to_be_used_less() {
    let rows = "[[classify]]\nservice = \"webhook\"\nstatus = 429\noutcome = \"retry_after\"\nscope = \"credential\"\n";
    let fixture = ExplainFixture::with(rows).await;
    fixture.sent_into("retrying", "a", &["429:60"], json!({})).await;
    let id = fixture.send("b", &["ok"], json!({})).await;
    fixture.held("held_retry_after_credential", &id, "provider takes calls").await;
}

/// Once open, it stays so until the test has ended.
const BREAKER: &str = "[breaker]\nopen_s = 3600\nopen_s_max = 3600\n";

#[tokio::test]
async fn an_open_breaker() {
    let fixture = ExplainFixture::with(BREAKER).await;
    fixture.all_addresses_fail().await;
    let id = fixture.send("b", &["ok"], json!({})).await;
    fixture.held("held_breaker_open", &id, "breaker").await;
}

#[tokio::test]
async fn a_breaker_that_tries_whether_its_provider_works() {
    let fixture = ExplainFixture::with("[breaker]\nopen_s = 1\nopen_s_max = 1\n").await;
    fixture.all_addresses_fail().await;
    for name in ["p", "q", "r"] {
        fixture.sent_into("sending", name, &["hang"], json!({})).await;
    }
    let id = fixture.send("b", &["ok"], json!({})).await;
    fixture.held("held_breaker_half_open", &id, "breaker").await;
}

#[tokio::test]
async fn a_breaker_that_a_retry_storm_opened() {
    let storm = "[breaker]\nstorm_retries_min = 2\nopen_s = 3600\nopen_s_max = 3600\n";
    let fixture = ExplainFixture::with(storm).await;
    let eager = json!({"retry": {"retries": 9, "base_ms": 1, "jitter": "none"}});
    fixture.send("a", &["500"], eager).await;
    fixture.a_breaker_opens().await;
    let id = fixture.send("b", &["ok"], json!({})).await;
    fixture.held("held_breaker_storm", &id, "breaker").await;
}

#[tokio::test]
async fn a_breaker_that_an_operator_opened() {
    let fixture = ExplainFixture::with("").await;
    fixture.send("a", &["ok"], json!({"send_at": "2027-06-01T00:00:00Z"})).await;
    let lane = fixture.lane().await;
    fixture.post(&format!("/v1/lanes/{lane}/breaker"), &json!({"force": "open"})).await;
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.held("held_breaker_forced", &id, "breaker").await;
}

#[tokio::test]
async fn a_refused_credential() {
    let rows = "[[classify]]\nservice = \"webhook\"\nstatus = 401\noutcome = \"config\"\n";
    let fixture = ExplainFixture::with(&format!("{BREAKER}{rows}")).await;
    let parked = fixture.sent_into("parked", "a", &["401"], json!({})).await;
    fixture.explained("parked_credential", &parked, "parked").await;
    let id = fixture.send("b", &["ok"], json!({})).await;
    fixture.held("held_credential", &id, "credential").await;
}

#[tokio::test]
async fn a_mass_of_gone_addresses() {
    let fixture = ExplainFixture::with(&format!("{BREAKER}gone_sends_min = 1\n")).await;
    let parked = fixture.sent_into("parked", "a", &["410"], json!({})).await;
    fixture.explained("parked_mass_gone", &parked, "parked").await;
    let id = fixture.send("b", &["ok"], json!({})).await;
    fixture.held("held_mass_gone", &id, "mass-gone guard").await;
}

#[tokio::test]
async fn a_providers_rate() {
    let fixture = ExplainFixture::with("[webhook]\nrate_per_s = 0.001\nrate_burst = 1\n").await;
    fixture.sent_into("sent", "a", &["ok"], json!({})).await;
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.held("held_rate", &id, "rate limit").await;
}

#[tokio::test]
async fn a_pace_that_was_learned_from_a_provider() {
    let settings = "[breaker]\nstorm_success = 0\n[[classify]]\nservice = \"webhook\"\nstatus = 429\noutcome = \"retry_backoff\"\n";
    let slow = SandboxConfig { rate_per_s: Some(1), ..SandboxConfig::default() };
    let fixture = ExplainFixture::with_sandbox(slow, settings).await;
    fixture.learns_a_pace().await;
    for _ in 0..10 {
        fixture.send("a", &["ok"], json!({})).await;
    }
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.held("held_pace", &id, "learned pace").await;
    let scraped = fixture.metrics().await;
    let name = "postrider_lane_pace_per_second{channel=\"webhook\",provider=\"http://";
    assert!(scraped.contains(name), "{scraped}");
}

#[tokio::test]
async fn a_credentials_rate() {
    let settings = "[webhook]\nrate_per_credential_s = 0.001\nrate_burst = 1\n";
    let fixture = ExplainFixture::with(settings).await;
    fixture.sent_into("sent", "a", &["ok"], json!({})).await;
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.held("held_credential_rate", &id, "credential's rate limit").await;
}

#[tokio::test]
async fn a_tenants_rate() {
    let fixture =
        ExplainFixture::with("[tenants.default]\nrate_per_s = 0.001\nrate_burst = 1\n").await;
    fixture.sent_into("sent", "a", &["ok"], json!({})).await;
    let id = fixture.send("a", &["ok"], json!({})).await;
    fixture.held("held_tenant_rate", &id, "tenant's rate limit").await;
}

#[tokio::test]
async fn a_spent_retry_budget() {
    let fixture = ExplainFixture::with("[retry_budget]\nshare = 0\nfloor_per_s = 0.1\n").await;
    let eager = json!({"retry": {"retries": 9, "base_ms": 1, "jitter": "none"}});
    let id = fixture.send("a", &["500"], eager).await;
    fixture.explained("parked_retry_budget", &id, "parked").await;
}

#[tokio::test]
async fn as_many_calls_as_the_provider_takes() {
    let fixture = ExplainFixture::with("[webhook]\nconcurrency = 1\n").await;
    let sending = fixture.sent_into("sending", "a", &["hang"], json!({})).await;
    fixture.explained("sending", &sending, "sending").await;
    let id = fixture.send("b", &["ok"], json!({})).await;
    fixture.held("held_concurrency", &id, "concurrency").await;
}

#[tokio::test]
async fn places_that_are_kept_for_urgent_work() {
    let fixture = ExplainFixture::with("[webhook]\nconcurrency = 10\n").await;
    fixture.sent_into("sent", "a", &["ok"], json!({})).await;
    for n in 0..9 {
        fixture.sent_into("sending", &n.to_string(), &["hang"], json!({})).await;
    }
    let id = fixture.send("z", &["ok"], json!({})).await;
    fixture.held("held_urgent_places", &id, "concurrency").await;
}

#[tokio::test]
async fn an_address_that_fails_while_others_work() {
    let fixture = ExplainFixture::with("").await;
    let soon = json!({"retry": {"retries": 9, "base_ms": 1000, "kind": "fixed", "jitter": "none"}});
    let id = fixture.sent_into("retrying", "z", &["500"], soon).await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        fixture.sent_into("sent", name, &["ok"], json!({})).await;
    }
    fixture.becomes(&id, |why| why["state"] == "parked").await;
    fixture.send("z", &["500"], json!({})).await;
    fixture.parked("parked_sick_address", &id, "1 other waits with it").await;
}

#[tokio::test]
async fn an_address_that_asked_to_be_left_alone_before() {
    let fixture = ExplainFixture::with("").await;
    fixture.sent_into("retrying", "a", &["429:60"], json!({})).await;
    let id = fixture.send("a", &["429:60"], json!({})).await;
    fixture.explained("parked_address_asked_to_wait", &id, "parked").await;
}

#[tokio::test]
async fn a_tenant_whose_addresses_fail_in_part() {
    let fixture = ExplainFixture::with("").await;
    let once = json!({"retry": {"retries": 0}});
    for name in ["p", "q", "r", "s"] {
        fixture.sent_into("failed", name, &["500"], once.clone()).await;
    }
    for name in ["a", "b", "c", "d", "e", "f"] {
        fixture.sent_into("sent", name, &["ok"], once.clone()).await;
    }
    let id = fixture.send("z", &["hang"], json!({})).await;
    fixture.explained("sending_degraded", &id, "sending").await;
}

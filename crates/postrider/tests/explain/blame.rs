//! Who is to blame that a delivery waits: an address, a tenant, an origin, or this server.

use postrider_sandbox::SandboxConfig;
use serde_json::{Value, json};

use crate::fixture::{ExplainFixture, SilentHost, gate_words};

/// Once open, it stays so until the test has ended.
const BREAKER: &str = "[breaker]\nopen_s = 3600\nopen_s_max = 3600\n";
/// No place is kept for others.
const ALL_PLACES: &str = "[classes.transactional]\npriority = \"high\"\n";
/// Long places of an origin.
const LONG_PLACES: usize = 128;

fn patient() -> Value {
    json!({"retry": {"base_ms": 60_000, "jitter": "none"}})
}

/// A server whose calls to `z` take long and to others not, and that makes no more than 32 others at once.
async fn with_a_slow_address() -> ExplainFixture {
    let fixture = ExplainFixture::with("[webhook]\nconcurrency = 32\n").await;
    fixture.sent_into("sent", "a", &["ok"], json!({})).await;
    for _ in 0..2 {
        fixture.sent_into("sent", "z", &["slow:400"], json!({})).await;
    }
    fixture
}

#[tokio::test]
async fn an_address_whose_answers_take_long_while_other_long_calls_have_all_places() {
    let fixture = with_a_slow_address().await;
    for n in 0..LONG_PLACES {
        fixture.send(&format!("h-{n}"), &["hang"], json!({})).await;
        // The host still answers others.
        fixture.send("a", &["ok"], json!({})).await;
    }
    let long = format!("{LONG_PLACES} long ones beside them");
    let other = fixture.send("b", &["ok"], json!({"send_at": "2027-06-01T00:00:00Z"})).await;
    while !gate_words(&fixture.explanation(&other).await, "concurrency").contains(&long) {
        // Whenever a call begins, it is seen which ones take long.
        fixture.sent_into("sent", "a", &["ok"], json!({})).await;
    }
    let id = fixture.send("z", &["ok"], json!({})).await;
    fixture.parked("parked_slow_address", &id, "128 of 128 long places there are in use").await;
}

#[tokio::test]
async fn an_address_whose_answers_take_long_and_that_has_its_share_of_long_places() {
    let fixture = with_a_slow_address().await;
    for _ in 0..20 {
        fixture.send("z", &["hang"], json!({})).await;
    }
    let id = fixture.send("z", &["hang"], json!({})).await;
    fixture.parked("parked_slow_address_share", &id, "an eighth of the").await;
}

#[tokio::test]
async fn an_origin_where_all_tenants_fail() {
    let fixture = ExplainFixture::with(BREAKER).await;
    let tenants = ["a", "b", "c"].map(|name| (name, fixture.tenant(name)));
    for n in 0..12 {
        for (name, tenant) in &tenants {
            let to = fixture.hook(&format!("{name}-{n}"), &["500"]);
            fixture.send_as(tenant, to, patient()).await;
        }
    }
    let id = fixture.send("z", &["ok"], json!({})).await;
    fixture.held("held_breaker_all_tenants", &id, "breaker").await;
}

#[tokio::test]
async fn an_origin_that_cannot_be_reached() {
    let fixture = ExplainFixture::with(BREAKER).await;
    let to = SilentHost::start().hook();
    let soon = json!({"retry": {"retries": 20, "base_ms": 300, "kind": "fixed", "jitter": "none"}});
    fixture.send_as(&fixture.api, to.clone(), soon).await;
    fixture.a_breaker_opens().await;
    let id = fixture.send_as(&fixture.api, to, json!({})).await;
    fixture.held("held_breaker_unreachable", &id, "breaker").await;
}

#[tokio::test]
async fn an_origin_that_asked_most_tenants_to_wait() {
    let rows = "[[classify]]\nservice = \"webhook\"\nstatus = 429\noutcome = \"retry_after\"\nscope = \"credential\"\n";
    let fixture = ExplainFixture::with(rows).await;
    for name in ["a", "b"] {
        let to = fixture.hook(name, &["429:60"]);
        let id = fixture.send_as(&fixture.tenant(name), to, json!({})).await;
        fixture.becomes(&id, |why| why["state"] == "retrying").await;
    }
    let id = fixture.send("z", &["ok"], json!({})).await;
    fixture.held("held_retry_after_most_tenants", &id, "provider takes calls").await;
}

#[tokio::test]
async fn a_tenant_whose_calls_are_held_to_its_successes() {
    let fixture = ExplainFixture::with("").await;
    let once = json!({"retry": {"retries": 0}});
    for _ in 0..60 {
        for name in ["p", "q", "r", "s", "t", "u", "v"] {
            fixture.send(name, &["500"], once.clone()).await;
        }
        for name in ["a", "b", "c"] {
            fixture.send(name, &["ok"], once.clone()).await;
        }
    }
    let id = fixture.send("d", &["ok"], json!({})).await;
    fixture.held("held_degraded", &id, "breaker").await;
}

#[tokio::test]
async fn a_limit_that_was_cut_because_answers_slowed() {
    let slow = SandboxConfig { pace_per_s: Some(250), ..SandboxConfig::default() };
    let settings = format!("[webhook]\nconcurrency = 32\n{ALL_PLACES}");
    let fixture = ExplainFixture::with_sandbox(slow, &settings).await;
    let address = |n: usize| format!("s-{}", n % 64);
    for n in 0..64 {
        fixture.sent_into("sent", &address(n), &["ok"], json!({})).await;
    }
    let later = fixture.send("z", &["ok"], json!({"send_at": "2027-06-01T00:00:00Z"})).await;
    fixture.floods(&later, "answers slowed", |n| (address(n), "ok")).await;
    for n in 0..64 {
        fixture.send(&address(n), &["hang"], json!({})).await;
    }
    let id = fixture.send("z", &["hang"], json!({})).await;
    fixture.held("held_limit_slowed", &id, "concurrency").await;
}

#[tokio::test]
async fn a_limit_that_was_restored_because_fewer_calls_did_not_help() {
    let fixture = ExplainFixture::with("[webhook]\nconcurrency = 256\n").await;
    let address = |n: usize| format!("s-{}", n % 64);
    for n in 0..64 {
        fixture.sent_into("sent", &address(n), &["slow:20"], json!({})).await;
    }
    let later = fixture.send("z", &["ok"], json!({"send_at": "2027-06-01T00:00:00Z"})).await;
    fixture.floods(&later, "fewer calls did not help", |n| (address(n), "slow:100")).await;
    // All but this one have been sent.
    let is_alone = |why: &Value| why["lane"]["pending"] == 1 && why["lane"]["in_flight"] == 0;
    fixture.becomes(&later, is_alone).await;
    fixture.explained("queued_limit_restored", &later, "queued").await;
}

/// Eight places for calls to origins that did not answer yet.
const FEW_PLACES: &str = "[dispatch]\nconcurrency = 16\n";

#[tokio::test]
async fn a_server_whose_long_places_are_all_held() {
    let fixture = ExplainFixture::with(FEW_PLACES).await;
    let hosts: Vec<_> = (0..10).map(|_| SilentHost::start()).collect();
    let mut hosts = hosts.iter().map(SilentHost::hook);
    for (name, calls) in [("a", 4), ("b", 2), ("c", 1), ("d", 1)] {
        for to in hosts.by_ref().take(calls) {
            let id = fixture.send_as(&fixture.tenant(name), to, json!({})).await;
            fixture.becomes(&id, |why| why["state"] == "sending").await;
        }
        if name == "a" {
            let to = hosts.next().unwrap();
            let fifth = fixture.send_as(&fixture.tenant(name), to, json!({})).await;
            fixture.held("held_own_long_places", &fifth, "concurrency").await;
        }
    }
    let id = fixture.send_as(&fixture.api, hosts.next().unwrap(), json!({})).await;
    let all_held = |why: &Value| gate_words(why, "concurrency").contains("all 8 long places");
    fixture.becomes(&id, all_held).await;
    fixture.held("held_long_places", &id, "concurrency").await;
    let key = fixture.server.key("read", "default").await;
    let path = format!("/v1/deliveries/{id}/explain");
    let told = fixture.server.client(&key).get(&path).await.unwrap();
    assert!(all_held(&told) && !told.to_string().contains("tenant a"), "{told:#}");
}

#[tokio::test]
async fn a_server_without_another_connection() {
    let fixture = ExplainFixture::with("connections_total_max = 4\n").await;
    fixture.sent_into("sent", "a", &["ok"], json!({})).await;
    for name in ["b", "c", "d"] {
        fixture.sent_into("sending", name, &["hang"], json!({})).await;
    }
    let to = fixture.hook("e", &["hang"]);
    let id = fixture.send_as(&fixture.tenant("b"), to, json!({})).await;
    fixture.becomes(&id, |why| why["state"] == "sending").await;
    let to = fixture.hook("f", &["ok"]);
    let id = fixture.send_as(&fixture.tenant("c"), to, json!({})).await;
    fixture.held("held_connections", &id, "concurrency").await;
}

#[tokio::test]
async fn a_call_that_found_no_connection_of_ours() {
    let settings = "http1_connections_max = 1\n[webhook]\ntimeout_s = 2\n";
    let fixture = ExplainFixture::with(settings).await;
    fixture.sent_into("sent", "a", &["ok"], json!({})).await;
    let mut last = String::new();
    for n in 0..6 {
        last = fixture.send(&format!("h-{n}"), &["hang"], json!({})).await;
    }
    fixture.parked("parked_shortage", &last, "waits for a connection of this server").await;
}

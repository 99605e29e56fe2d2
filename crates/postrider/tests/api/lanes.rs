//! The state of lanes, what holds them, and the orders of an operator.

use http::Method;
use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, eventually, message, reply};

async fn lane_of_a_waiting_message(server: &ServerFixture) -> (u64, String) {
    let admin = server.admin();
    let sent = admin.post("/v1/messages", &message()).await.unwrap();
    let lanes = admin.get("/v1/lanes").await.unwrap();
    let lane = &lanes["lanes"][0];
    assert_eq!((&lane["state"], &lane["breaker"]), (&json!("ready"), &json!("closed")));
    let delivery = sent["deliveries"][0]["id"].as_str().unwrap().to_owned();
    (lane["id"].as_u64().unwrap(), delivery)
}

fn gate<'a>(body: &'a Value, name: &str) -> &'a Value {
    let gates = body["gates"].as_array().unwrap();
    gates.iter().find(|gate| gate["gate"] == name).unwrap()
}

#[tokio::test]
async fn a_lane_is_paused_seen_as_such_and_resumed() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let (id, delivery) = lane_of_a_waiting_message(&server).await;
    let paused = admin.post(&format!("/v1/lanes/{id}/pause"), &Value::Null).await.unwrap();
    assert_eq!(
        (&paused["state"], &paused["held_by"]),
        (&json!("blocked"), &json!("lane not paused"))
    );
    assert_eq!(paused["can_do"], json!([format!("postrider lanes resume {id}")]));
    let why = admin.get(&format!("/v1/deliveries/{delivery}/explain")).await.unwrap();
    assert_eq!(gate(&why, "lane not paused")["verdict"], "closed");
    assert_eq!(gate(&why, "breaker")["verdict"], "open");
    let listed = admin.get("/v1/lanes").await.unwrap();
    assert_eq!(listed["lanes"][0]["state"], "blocked");
    let resumed = admin.post(&format!("/v1/lanes/{id}/resume"), &Value::Null).await.unwrap();
    assert_eq!(resumed["state"], "ready");
}

#[tokio::test]
async fn what_is_due_in_a_held_lane_says_what_it_waits_for_and_what_helps() {
    let server = ServerFixture::with_local_targets().await;
    let admin = server.admin();
    let body = json!({
        "to": {"address": {"channel": "webhook", "url": "http://127.0.0.1:9/x"}},
        "retry": {"retries": 5, "base_ms": 1000, "jitter": "none"},
    });
    let sent = admin.post("/v1/messages", &body).await.unwrap();
    let delivery = sent["deliveries"][0]["id"].as_str().unwrap();
    let lane = eventually(&admin, "/v1/lanes", |lanes| lanes["lanes"][0]["id"].is_u64()).await;
    let id = lane["lanes"][0]["id"].as_u64().unwrap();
    let forced = json!({"force": "open"});
    let lane = admin.post(&format!("/v1/lanes/{id}/breaker"), &forced).await.unwrap();
    assert_eq!(lane["breaker"], "forced_open");
    let path = format!("/v1/deliveries/{delivery}/explain");
    let held = |why: &Value| why["waits_for"].as_str().is_some_and(|w| w.contains("forced open"));
    let why = eventually(&admin, &path, held).await;
    assert_eq!(gate(&why, "breaker")["verdict"], "closed");
    let help = format!("postrider lanes breaker {id} closed");
    assert!(why["can_do"].to_string().contains(&help), "{why}");
}

#[tokio::test]
async fn a_breaker_is_the_operators_and_a_lane_its_tenants() {
    let server = ServerFixture::start().await;
    let (id, _) = lane_of_a_waiting_message(&server).await;
    let key = server.key("tenant", "acme").await;
    let stranger = server.client(&key);
    let pause = format!("/v1/lanes/{id}/pause");
    assert_eq!(reply(&stranger, Method::POST, &pause, "").await.status, 404);
    let breaker = format!("/v1/lanes/{id}/breaker");
    let forced = r#"{"force":"open"}"#;
    assert_eq!(reply(&stranger, Method::POST, &breaker, forced).await.status, 403);
    let wrong = reply(&server.admin(), Method::POST, &breaker, r#"{"force":"ajar"}"#).await;
    assert_eq!(wrong.status, 422);
    let unknown = reply(&server.admin(), Method::GET, "/v1/lanes/seven", "").await;
    assert_eq!(unknown.status, 422);
}

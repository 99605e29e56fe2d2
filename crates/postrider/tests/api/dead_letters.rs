//! Dead letters are listed, replayed and discarded.

use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, eventually, message, reply};

/// A message to a place where nobody listens, without retries.
pub(crate) fn doomed() -> Value {
    let mut message = message();
    message["send_at"] = Value::Null;
    message["to"]["address"]["url"] = "http://127.0.0.1:1/hook".into();
    message["retry"] = json!({"retries": 0});
    message
}

fn count(page: &Value) -> usize {
    page["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn an_exhausted_delivery_is_listed_replayed_and_discarded() {
    let server = ServerFixture::with_local_targets().await;
    let admin = server.admin();
    let sent = admin.post("/v1/messages", &doomed()).await.unwrap();
    let id = sent["deliveries"][0]["id"].clone();
    let path = "/v1/dead-letters?reason=retries_exhausted&channel=webhook";
    let page = eventually(&admin, path, |page| count(page) == 1).await;
    assert_eq!(page["items"][0]["id"], id);
    assert_eq!(page["items"][0]["log"].as_array().unwrap().len(), 1);
    assert_eq!(count(&admin.get("/v1/dead-letters?reason=ttl").await.unwrap()), 0);
    let how = json!({"ids": [id], "ttl_s": 60, "retry": {"retries": 0}});
    let done = admin.post("/v1/dead-letters/replay", &how).await.unwrap();
    assert_eq!(done, json!({"replayed": 1}));
    let tried_twice =
        |page: &Value| count(page) == 1 && page["items"][0]["log"].as_array().unwrap().len() == 2;
    eventually(&admin, "/v1/dead-letters", tried_twice).await;
    let done = admin.post("/v1/dead-letters/discard", &json!({"filter": {}})).await.unwrap();
    assert_eq!(done, json!({"discarded": 1}));
    assert_eq!(count(&admin.get("/v1/dead-letters").await.unwrap()), 0);
}

#[tokio::test]
async fn an_explanation_says_what_can_be_done() {
    let server = ServerFixture::with_local_targets().await;
    let admin = server.admin();
    let sent = admin.post("/v1/messages", &doomed()).await.unwrap();
    let id = sent["deliveries"][0]["id"].as_str().unwrap();
    let path = format!("/v1/deliveries/{id}/explain");
    let why = eventually(&admin, &path, |why| why["state"] == "failed").await;
    assert_eq!(why["can_do"][1], format!("postrider dead replay {id}"));
    assert!(why["summary"].as_str().unwrap().contains("retries_exhausted"));
    let gates = why["gates"].as_array().unwrap();
    let attempts = gates.iter().find(|gate| gate["gate"] == "attempts left").unwrap();
    assert_eq!(attempts["verdict"], "closed");
    assert!(!why.to_string().contains("/hook"), "an endpoint was shown");
}

#[tokio::test]
async fn a_replay_takes_no_policy_that_a_message_could_not_have() {
    let server = ServerFixture::start().await;
    let how = json!({"filter": {}, "retry": {"retries": 4_000_000_000_u64, "base_ms": 0}});
    let path = "/v1/dead-letters/replay";
    let refused = reply(&server.admin(), http::Method::POST, path, how.to_string()).await;
    assert_eq!(refused.status, 422);
    let fields: Vec<_> =
        refused.body["errors"].as_array().unwrap().iter().map(|e| &e["field"]).collect();
    assert_eq!(fields, ["retry.retries", "retry.base_ms"]);
}

//! Notes of incidents: who pins them, who sees them, and how they end.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use postrider::client::Client;
use postrider_core::Clock as _;
use postrider_store::{ManualClock, SystemClock};
use postrider_testkit::server::{ServerFixture, reply};
use serde_json::{Value, json};

async fn texts(client: &Client) -> Vec<String> {
    let found = client.get("/v1/notes").await.unwrap();
    let notes = found["notes"].as_array().unwrap().iter();
    notes.map(|note| note["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_note_is_seen_by_whom_it_is_for_and_ends_by_itself() {
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let server = ServerFixture::at("", clock.clone()).await;
    let operator = server.client(&server.key("read,manage", "*").await);
    let acme = server.client(&server.key("read,manage", "acme").await);
    let globex = server.client(&server.key("read", "globex").await);
    for (text, to) in [("inside", Value::Null), ("all", json!("*")), ("yours", json!("acme"))] {
        let body = json!({"text": text, "to": to, "for_s": 60});
        let note = operator.post("/v1/notes", &body).await.unwrap();
        assert!(note["id"].as_str().unwrap().starts_with("note_"), "{note}");
        assert!(note["by"].as_str().unwrap().starts_with("key_"), "{note}");
        assert!(note["until"].as_str().unwrap() > note["at"].as_str().unwrap(), "{note}");
        clock.advance(Duration::from_millis(1));
    }
    let own = acme.post("/v1/notes", &json!({"text": "own"})).await.unwrap();
    assert_eq!((&own["to"], &own["is_removable"]), (&json!("acme"), &json!(true)));
    assert_eq!(texts(&operator).await, ["own", "yours", "all", "inside"]);
    assert_eq!(texts(&acme).await, ["own", "yours", "all"]);
    assert_eq!(texts(&globex).await, ["all"]);
    clock.advance(Duration::from_secs(60));
    assert_eq!(texts(&operator).await, ["own"], "the others are over");
    let path = format!("/v1/notes/{}", own["id"].as_str().unwrap());
    assert_eq!(reply(&globex, Method::DELETE, &path, "").await.status, 403);
    assert_eq!(reply(&acme, Method::DELETE, &path, "").await.status, 204);
    assert_eq!(reply(&acme, Method::DELETE, &path, "").await.status, 404);
    let audit = server.admin().get("/v1/audit").await.unwrap();
    let actions = audit["items"].as_array().unwrap().iter();
    let of_notes =
        actions.filter(|item| item["entry"]["action"].as_str().unwrap().starts_with("note."));
    let done: Vec<_> = of_notes.map(|item| item["entry"]["action"].as_str().unwrap()).collect();
    assert_eq!(done, ["note.delete", "note.create", "note.create", "note.create", "note.create"]);
}

#[tokio::test]
async fn a_tenant_speaks_to_itself_only_and_removes_nothing_of_the_operators() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let acme = server.client(&server.key("read,manage", "acme").await);
    let note = admin.post("/v1/notes", &json!({"text": "late", "to": "acme"})).await.unwrap();
    let path = format!("/v1/notes/{}", note["id"].as_str().unwrap());
    assert_eq!(acme.get("/v1/notes").await.unwrap()["notes"][0]["is_removable"], false);
    assert_eq!(reply(&acme, Method::DELETE, &path, "").await.status, 404);
    for (body, field) in [
        (json!({"text": "x", "to": "*"}), "to"),
        (json!({"text": "x", "to": "globex"}), "to"),
        (json!({"text": " "}), "text"),
        (json!({"text": "x".repeat(501)}), "text"),
        (json!({"text": "a\nb"}), "text"),
        (json!({"text": "x", "for_s": 0}), "for_s"),
    ] {
        let refused = reply(&acme, Method::POST, "/v1/notes", body.to_string()).await;
        assert_eq!(refused.status, 422, "{}", refused.body);
        assert_eq!(refused.body["errors"][0]["field"], field, "{}", refused.body);
    }
    for n in 0..5 {
        acme.post("/v1/notes", &json!({"text": n.to_string()})).await.unwrap();
    }
    let more = reply(&acme, Method::POST, "/v1/notes", r#"{"text": "6"}"#).await;
    assert_eq!(more.status, 409, "{}", more.body);
    let reader = server.client(&server.key("read", "*").await);
    assert_eq!(reply(&reader, Method::POST, "/v1/notes", r#"{"text": "x"}"#).await.status, 403);
}

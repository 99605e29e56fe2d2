//! Messages, deliveries, addresses and keys through their lives.

use http::Method;
use serde_json::json;

use postrider_testkit::server::{ServerFixture, message, reply};

#[tokio::test]
async fn a_repeat_gets_the_first_answer() {
    let server = ServerFixture::start().await;
    let mut body = message();
    body["idempotency_key"] = "once".into();
    let first = server.post(body.to_string()).await;
    let second = server.post(body.to_string()).await;
    assert_eq!((first.status, second.status), (202, 202));
    assert_eq!(first.body["id"], second.body["id"]);
    assert_eq!(first.body["deliveries"], second.body["deliveries"]);
    assert_eq!(
        (&first.body["duplicate"], &second.body["duplicate"]),
        (&json!(false), &json!(true))
    );
}

#[tokio::test]
async fn deliveries_are_found_by_the_key_of_their_message() {
    let server = ServerFixture::start().await;
    let mut body = message();
    body["idempotency_key"] = "ord-91:shipped".into();
    let sent = server.post(body.to_string()).await;
    server.post(message().to_string()).await;
    let found = async |tenant: &str, query: &str| {
        let admin = server.admin().for_tenant(Some(tenant.to_owned()));
        admin.get(&format!("/v1/deliveries?{query}")).await.unwrap()["items"].clone()
    };
    let items = found("default", "idempotency_key=ord-91:shipped").await;
    assert_eq!(items.as_array().map(Vec::len), Some(1));
    assert_eq!(items[0]["message"], sent.body["id"]);
    let none = json!([]);
    assert_eq!(found("default", "idempotency_key=ord-91:shipped&state=sent").await, none);
    assert_eq!(found("default", "idempotency_key=ord-92").await, none);
    assert_eq!(
        found("other", "idempotency_key=ord-91:shipped").await,
        none,
        "keys are a tenant's own"
    );
    let all = server.admin().for_tenant(Some("*".to_owned()));
    let refused = all.get("/v1/deliveries?idempotency_key=ord-92").await.unwrap_err().to_string();
    assert!(refused.contains("idempotency_key"), "{refused}");
}

#[tokio::test]
async fn deliveries_are_found_by_the_tags_of_their_message() {
    let server = ServerFixture::start().await;
    let mut body = message();
    body["tags"] = json!(["spring sale", "eu"]);
    let sent = server.post(body.to_string()).await;
    server.post(message().to_string()).await;
    let found = async |tenant: &str, query: &str| {
        let admin = server.admin().for_tenant(Some(tenant.to_owned()));
        let items = admin.get(&format!("/v1/{query}")).await.unwrap()["items"].clone();
        items.as_array().unwrap().iter().map(|d| d["message"].clone()).collect::<Vec<_>>()
    };
    let ours = std::slice::from_ref(&sent.body["id"]);
    for tenant in ["default", "*"] {
        assert_eq!(found(tenant, "deliveries?tag=spring%20sale").await, ours);
        assert_eq!(found(tenant, "deliveries?tag=eu&state=queued").await, ours);
        assert!(found(tenant, "deliveries?tag=spring").await.is_empty());
        assert!(found(tenant, "dead-letters?tag=eu").await.is_empty());
    }
    assert!(found("other", "deliveries?tag=eu").await.is_empty(), "tags are a tenant's own");
}

#[tokio::test]
async fn a_message_can_be_seen_explained_and_cancelled() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let sent = admin.post("/v1/messages", &message()).await.unwrap();
    let (id, delivery) =
        (sent["id"].as_str().unwrap(), sent["deliveries"][0]["id"].as_str().unwrap());
    let shown = admin.get(&format!("/v1/messages/{id}")).await.unwrap();
    assert_eq!(shown["states"], json!({"queued": 1}));
    assert_eq!(shown["has_content"], true);
    let why = admin.get(&format!("/v1/deliveries/{delivery}/explain")).await.unwrap();
    assert_eq!(why["summary"], "It is scheduled for later.");
    assert!(why["ttl_left_s"].as_u64().unwrap() > 86_400);
    let list = admin.get(&format!("/v1/deliveries?message={id}&state=queued")).await.unwrap();
    assert_eq!(list["items"][0]["id"], delivery);
    assert!(!list.to_string().contains("/hook"), "an endpoint was shown");
    let done = admin.post(&format!("/v1/messages/{id}/cancel"), &json!(null)).await.unwrap();
    assert_eq!(done, json!({"cancelled": 1, "in_flight": 0, "already_final": 0}));
    let shown = admin.get(&format!("/v1/deliveries/{delivery}")).await.unwrap();
    assert_eq!(shown["state"], "cancelled");
}

#[tokio::test]
async fn an_address_is_registered_once_used_and_forgotten() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let address = json!({"channel": "webhook", "url": "https://example.com/secret-path", "recipient": "u-42"});
    let made = reply(&admin, Method::POST, "/v1/addresses", address.to_string()).await;
    assert_eq!(made.status, 201);
    let again = reply(&admin, Method::POST, "/v1/addresses", address.to_string()).await;
    assert_eq!((again.status, &again.body["id"]), (200, &made.body["id"]));
    let id = made.body["id"].as_str().unwrap();
    let mut to_recipient = message();
    to_recipient["to"] = json!({"recipient": "u-42"});
    assert_eq!(server.post(to_recipient.to_string()).await.status, 202);
    let mut to_address = message();
    to_address["to"] = json!({"address": id});
    assert_eq!(server.post(to_address.to_string()).await.status, 202);
    let list = admin.get("/v1/addresses?recipient=u-42").await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert!(!list.to_string().contains("secret-path"), "an endpoint was shown");
    admin.delete(&format!("/v1/addresses/{id}")).await.unwrap();
    assert_eq!(reply(&admin, Method::GET, &format!("/v1/addresses/{id}"), "").await.status, 404);
}

#[tokio::test]
async fn keys_rotate_with_overlap() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let before = admin.get("/v1/vapid").await.unwrap();
    let after = admin.post("/v1/vapid/rotate", &json!(null)).await.unwrap();
    assert_eq!(after["keys"].as_array().unwrap().len(), 2);
    assert_eq!(after["keys"][0]["active"], true);
    assert_eq!(after["keys"][1]["public_key"], before["keys"][0]["public_key"]);
    assert_eq!(after["keys"][1]["active"], false);
    let secrets = admin.post("/v1/webhook-secrets/rotate", &json!(null)).await.unwrap();
    assert_eq!(secrets["secrets"].as_array().unwrap().len(), 2);
    assert!(secrets["secrets"][0]["secret"].as_str().unwrap().starts_with("whsec_"));
}

#[tokio::test]
async fn numbers_health_and_the_page_are_there() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    admin.post("/v1/messages", &message()).await.unwrap();
    let stats = admin.get("/v1/stats").await.unwrap();
    assert_eq!((&stats["depth"], &stats["totals"]["accepted"]), (&json!(1), &json!(1)));
    let lanes = admin.get("/v1/lanes").await.unwrap();
    assert_eq!(lanes["lanes"][0]["provider"], "https://example.com");
    assert!(admin.get("/v1/classes").await.unwrap()["classes"]["otp"]["ttl_s"].is_u64());
    for path in [
        "/sign-in",
        "/docs",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/assets/page.css",
        "/assets/docs.js",
        "/assets/dashboard.js",
        "/assets/htmx-2.0.11.min.js",
    ] {
        assert_eq!(reply(&admin, Method::GET, path, "").await.status, 200, "{path}");
    }
    let page = reply(&admin, Method::GET, "/sign-in", "").await;
    assert_eq!(page.content_type, "text/html; charset=utf-8");
}

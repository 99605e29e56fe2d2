//! Scopes and tenants: a key sees and does only what it allows.

use http::Method;
use serde_json::json;

use postrider_testkit::server::{ServerFixture, message, reply};

#[tokio::test]
async fn a_read_key_looks_but_does_not_act() {
    let server = ServerFixture::start().await;
    let key = server.key("read", "default").await;
    let reader = server.client(&key);
    assert_eq!(reply(&reader, Method::GET, "/v1/deliveries", "").await.status, 200);
    for (path, body) in [
        ("/v1/messages", message().to_string()),
        ("/v1/dead-letters/discard", json!({"filter": {}}).to_string()),
        ("/v1/vapid/rotate", String::new()),
        ("/v1/keys", json!({"name": "x", "scope": "admin"}).to_string()),
    ] {
        assert_eq!(reply(&reader, Method::POST, path, body).await.status, 403, "{path}");
    }
    assert_eq!(reply(&reader, Method::GET, "/v1/webhook-secrets", "").await.status, 403);
}

#[tokio::test]
async fn only_a_content_key_reads_stored_bodies() {
    let server = ServerFixture::start().await;
    let sent = server.admin().post("/v1/messages", &message()).await.unwrap();
    let path = format!("/v1/messages/{}/content", sent["id"].as_str().unwrap());
    for (scope, status) in [("tenant", 403), ("read", 403), ("content", 200)] {
        let key = server.key(scope, "default").await;
        let answer = reply(&server.client(&key), Method::GET, &path, "").await;
        assert_eq!(answer.status, status, "{scope}");
        assert_eq!(answer.body["title"] == "Shipped", scope == "content");
    }
}

#[tokio::test]
async fn a_tenant_sees_only_its_own() {
    let server = ServerFixture::start().await;
    let (a, b) = (server.key("tenant", "a").await, server.key("tenant", "b").await);
    let (a, b) = (server.client(&a), server.client(&b));
    let sent = a.post("/v1/messages", &message()).await.unwrap();
    let (id, delivery) =
        (sent["id"].as_str().unwrap(), sent["deliveries"][0]["id"].as_str().unwrap());
    for path in [
        format!("/v1/messages/{id}"),
        format!("/v1/deliveries/{delivery}"),
        format!("/v1/deliveries/{delivery}/explain"),
    ] {
        assert_eq!(reply(&a, Method::GET, &path, "").await.status, 200, "{path}");
        assert_eq!(reply(&b, Method::GET, &path, "").await.status, 404, "{path}");
    }
    let cancel = format!("/v1/messages/{id}/cancel");
    assert_eq!(reply(&b, Method::POST, &cancel, "").await.status, 404);
    assert_eq!(b.get("/v1/deliveries").await.unwrap()["items"], json!([]));
    assert_eq!(b.get("/v1/stats").await.unwrap()["depth"], 0);
    assert_ne!(a.get("/v1/vapid").await.unwrap(), b.get("/v1/vapid").await.unwrap());
    let (other, path) = (server.running.url(), "/v1/stats");
    let key = server.key("tenant", "b").await;
    let pretender = postrider::client::Client::new(&other, Some(&key)).unwrap();
    let pretender = pretender.for_tenant(Some("a".to_owned()));
    assert_eq!(reply(&pretender, Method::GET, path, "").await.status, 403);
}

#[tokio::test]
async fn an_admin_acts_for_the_tenant_it_names_and_sees_all_on_request() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let for_a = server.admin().for_tenant(Some("a".to_owned()));
    for_a.post("/v1/messages", &message()).await.unwrap();
    assert_eq!(admin.get("/v1/stats").await.unwrap()["depth"], 0);
    assert_eq!(for_a.get("/v1/stats").await.unwrap()["depth"], 1);
    let all = server.admin().for_tenant(Some("*".to_owned()));
    assert_eq!(all.get("/v1/stats").await.unwrap()["depth"], 1);
    let everyone = reply(&all, Method::POST, "/v1/messages", message().to_string()).await;
    assert_eq!(everyone.status, 422);
}

#[tokio::test]
async fn numbers_of_the_whole_server_are_for_its_operator() {
    let server = ServerFixture::start().await;
    let tenant = server.client(&server.key("tenant", "a").await);
    let (own, all) =
        (tenant.get("/v1/stats").await.unwrap(), server.admin().get("/v1/stats").await.unwrap());
    for field in ["rates", "totals", "oldest_pending_s", "in_flight", "connections"] {
        assert!(own.get(field).is_none(), "{field} is shown to a tenant");
        assert!(all.get(field).is_some(), "{field} is not shown to the operator");
    }
    let path = "/v1/stats/history";
    assert!(tenant.get(path).await.is_err(), "the server's history is shown to a tenant");
    assert!(server.admin().get(path).await.unwrap()["rates"].is_array());
}

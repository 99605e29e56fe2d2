//! Classes, tenants and limits set by API: they apply at once, override the file and are durable. Orders survive a
//! restart.

use std::sync::Arc;

use http::Method;
use postrider_core::ports::store::Store;
use postrider_store::{MemoryStore, SystemClock};
use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, TestReply, message, reply};

async fn put(server: &ServerFixture, path: &str, body: Value) -> TestReply {
    reply(&server.admin(), Method::PUT, path, body.to_string()).await
}

async fn delete(server: &ServerFixture, path: &str) -> u16 {
    reply(&server.admin(), Method::DELETE, path, "").await.status
}

fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

#[tokio::test]
async fn a_class_made_by_api_holds_at_once_and_after_a_restart_until_it_is_taken_back() {
    let store = store();
    let server = ServerFixture::over(store.clone()).await;
    let mut news = message();
    news["class"] = json!("news");
    assert_eq!(server.post(news.to_string()).await.status, 422);
    let made =
        put(&server, "/v1/classes/news", json!({"ttl_s": 60, "retry": {"retries": 1}})).await;
    assert_eq!(made.status, 200, "{}", made.body);
    assert_eq!((&made.body["source"], &made.body["ttl_s"]), (&json!("api"), &json!(60)));
    assert_eq!(made.body["retry"]["base_ms"], 2_000, "what is not named is as ever");
    assert_eq!(made.body["set_by"], "configured admin key");
    assert_eq!(server.post(news.to_string()).await.status, 202);
    server.running.shutdown().await;

    let server = ServerFixture::over(store).await;
    let kept = server.admin().get("/v1/classes/news").await.unwrap();
    assert_eq!((&kept["source"], &kept["ttl_s"]), (&json!("api"), &json!(60)));
    assert_eq!(delete(&server, "/v1/classes/news").await, 204);
    assert_eq!(delete(&server, "/v1/classes/news").await, 404);
    assert_eq!(server.post(news.to_string()).await.status, 422);
}

#[tokio::test]
async fn every_value_says_where_it_comes_from_and_the_api_is_over_the_file() {
    let server = ServerFixture::with("[classes.otp]\nttl_s = 70\n[webhook]\nrate_per_s = 5").await;
    let source = async |path: &str| server.admin().get(path).await.unwrap()["source"].clone();
    assert_eq!(source("/v1/classes/otp").await, "file");
    assert_eq!(source("/v1/classes/alert").await, "default");
    assert_eq!(source("/v1/limits/webhook").await, "file");
    assert_eq!(source("/v1/limits/breaker").await, "default");
    let set = put(&server, "/v1/limits/webhook", json!({"rate_per_s": 9})).await;
    assert_eq!((&set.body["rate_per_s"], &set.body["source"]), (&json!(9.0), &json!("api")));
    assert!(set.body.get("timeout_s").is_none(), "what needs a restart is not offered");
    assert_eq!(delete(&server, "/v1/limits/webhook").await, 204);
    let back = server.admin().get("/v1/limits/webhook").await.unwrap();
    assert_eq!((&back["rate_per_s"], &back["source"]), (&json!(5.0), &json!("file")));
}

#[tokio::test]
async fn what_cannot_be_set_is_refused_by_field_and_changes_nothing() {
    let server = ServerFixture::start().await;
    let errors = async |path: &str, body: Value| {
        let refused = put(&server, path, body).await;
        assert_eq!(refused.status, 422, "{}", refused.body);
        refused.body["errors"][0].clone()
    };
    let cases = [
        ("/v1/classes/otp", json!({"ttl_s": "soon"})),
        ("/v1/classes/otp", json!({"tll_s": 5})),
        ("/v1/classes/otp", json!({"priority": "urgent"})),
        ("/v1/classes/otp", json!({"ttl_s": 9_999_999})),
        ("/v1/classes/otp", json!({"retry": {"factor": 0.5}})),
        ("/v1/classes/no%20name", json!({"ttl_s": 5})),
        ("/v1/tenants/acme", json!({"weight": 0})),
        ("/v1/limits/webhook", json!({"timeout_s": 5})),
        ("/v1/limits/breaker", json!({"gone_share": 7})),
    ];
    let mut told = Vec::new();
    for (path, body) in cases {
        told.push(errors(path, body).await);
    }
    insta::assert_json_snapshot!(told);
    let otp = server.admin().get("/v1/classes/otp").await.unwrap();
    assert_eq!((&otp["ttl_s"], &otp["source"]), (&json!(300), &json!("default")));
    assert_eq!(put(&server, "/v1/limits/server", json!({})).await.status, 404);
}

#[tokio::test]
async fn only_an_operator_sets_anything() {
    let server = ServerFixture::start().await;
    let client = server.client(&server.key("tenant", "acme").await);
    for path in ["/v1/classes/otp", "/v1/tenants/acme", "/v1/limits/webhook"] {
        assert_eq!(reply(&client, Method::PUT, path, "{}").await.status, 403, "{path}");
        assert_eq!(reply(&client, Method::DELETE, path, "").await.status, 403, "{path}");
    }
    assert_eq!(reply(&client, Method::GET, "/v1/classes/otp", "").await.status, 200);
    assert_eq!(reply(&client, Method::GET, "/v1/tenants", "").await.status, 403);
    let pause = "/v1/tenants/acme/pause";
    assert_eq!(reply(&client, Method::POST, pause, "").await.status, 403);
}

#[tokio::test]
async fn pauses_and_forced_breakers_survive_a_restart_with_who_and_when() {
    let store = store();
    let server = ServerFixture::over(store.clone()).await;
    let sent = server.post(message().to_string()).await;
    let delivery = sent.body["deliveries"][0]["id"].as_str().unwrap().to_owned();
    let lane = server.admin().get("/v1/lanes").await.unwrap()["lanes"][0]["id"].clone();
    let act = |what: &str| format!("/v1/lanes/{lane}/{what}");
    server.admin().post(&act("pause"), &Value::Null).await.unwrap();
    server.admin().post(&act("breaker"), &json!({"force": "open"})).await.unwrap();
    server.admin().post("/v1/tenants/default/pause", &Value::Null).await.unwrap();
    server.running.shutdown().await;

    let server = ServerFixture::over(store.clone()).await;
    let admin = server.admin();
    let tenant = admin.get("/v1/tenants/default").await.unwrap();
    assert_eq!(tenant["paused"]["by"], "configured admin key");
    let explained = admin.get(&format!("/v1/deliveries/{delivery}/explain")).await.unwrap();
    let gates = explained["gates"].as_array().unwrap();
    let shut: Vec<_> = gates.iter().filter(|gate| gate["verdict"] == "closed").collect();
    let names: Vec<_> = shut.iter().map(|gate| gate["gate"].as_str().unwrap()).collect();
    assert_eq!(names, ["tenant not paused", "lane not paused", "breaker"]);
    for gate in shut {
        assert!(gate["detail"].as_str().unwrap().contains("by configured admin key at 20"));
    }
    admin.post("/v1/tenants/default/resume", &Value::Null).await.unwrap();
    admin.post(&act("resume"), &Value::Null).await.unwrap();
    let lane = admin.post(&act("breaker"), &json!({"force": "auto"})).await.unwrap();
    assert_eq!((&lane["state"], &lane["breaker"]), (&json!("ready"), &json!("closed")));
    for orders in ["pause/", "breaker/"] {
        assert!(store.documents(orders).await.unwrap().is_empty());
    }
}

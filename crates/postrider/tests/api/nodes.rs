//! Two servers over one store: what is changed on one of them holds on the other within a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use postrider::client::Client;
use postrider_core::ports::store::Store;
use postrider_store::{MemoryStore, SystemClock};
use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, TestReply, message, reply};

async fn two_nodes() -> (ServerFixture, ServerFixture) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    (ServerFixture::over(store.clone()).await, ServerFixture::over(store).await)
}

async fn get(client: &Client, path: &str) -> TestReply {
    reply(client, Method::GET, path, "").await
}

/// Asks until the answer is as wanted, for one second.
async fn within_a_second(client: &Client, path: &str, wanted: impl Fn(&TestReply) -> bool) {
    let begin = Instant::now();
    loop {
        let answer = get(client, path).await;
        if wanted(&answer) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(1), "{path}: {}", answer.body);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn put(client: &Client, path: &str, body: Value) {
    let answer = reply(client, Method::PUT, path, body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn a_setting_of_one_node_holds_on_the_other() {
    let (one, two) = two_nodes().await;
    let (first, second) = (one.admin(), two.admin());
    let path = "/v1/classes/news";
    put(&first, path, json!({"ttl_s": 60})).await;
    within_a_second(&second, path, |news| news.body["ttl_s"] == 60).await;
    let mut news = message();
    news["class"] = json!("news");
    assert_eq!(two.post(news.to_string()).await.status, 202, "it is in force, too");
    put(&second, path, json!({"ttl_s": 70})).await;
    put(&second, "/v1/tenants/acme", json!({"weight": 3})).await;
    within_a_second(&first, path, |news| news.body["ttl_s"] == 70).await;
    within_a_second(&first, "/v1/tenants/acme", |acme| acme.body["weight"] == 3.0).await;
    assert_eq!(reply(&first, Method::DELETE, path, "").await.status, 204);
    within_a_second(&second, path, |news| news.status == 404).await;
    assert_eq!(two.post(news.to_string()).await.status, 422);
    let tenant = get(&second, "/v1/tenants/acme").await;
    assert_eq!(tenant.body["weight"], 3.0, "what was not changed stays");
}

#[tokio::test]
async fn an_order_of_one_node_holds_on_the_other_until_either_takes_it_back() {
    let (one, two) = two_nodes().await;
    let (first, second) = (one.admin(), two.admin());
    assert_eq!(one.post(message().to_string()).await.status, 202);
    let lane = first.get("/v1/lanes").await.unwrap()["lanes"][0]["id"].clone();
    let act = |what: &str| format!("/v1/lanes/{lane}/{what}");
    let path = format!("/v1/lanes/{lane}");
    let order = async |client: &Client, path: &str, body: Value| {
        client.post(path, &body).await.unwrap();
    };
    order(&first, &act("pause"), Value::Null).await;
    within_a_second(&second, &path, |lane| lane.body["held_by"] == "lane not paused").await;
    order(&second, &act("resume"), Value::Null).await;
    within_a_second(&first, &path, |lane| lane.body["state"] == "ready").await;
    order(&first, &act("breaker"), json!({"force": "open"})).await;
    within_a_second(&second, &path, |lane| lane.body["breaker"] == "forced_open").await;
    order(&second, &act("breaker"), json!({"force": "auto"})).await;
    within_a_second(&first, &path, |lane| lane.body["breaker"] == "closed").await;
    let provider = json!({"channel": "webhook", "provider": "https://example.com"});
    order(&first, "/v1/providers/pause", provider.clone()).await;
    within_a_second(&second, &path, |lane| lane.body["held_by"] == "provider not paused").await;
    order(&second, "/v1/providers/resume", provider).await;
    within_a_second(&first, &path, |lane| lane.body["state"] == "ready").await;
    order(&first, "/v1/tenants/default/pause", Value::Null).await;
    let tenant = "/v1/tenants/default";
    within_a_second(&second, tenant, |tenant| tenant.body["paused"]["by"].is_string()).await;
    order(&second, "/v1/tenants/default/resume", Value::Null).await;
    within_a_second(&first, tenant, |tenant| tenant.body.get("paused").is_none()).await;
}

#[tokio::test]
async fn a_paused_lane_without_work_is_listed_and_resumed_by_every_node() {
    let (one, two) = two_nodes().await;
    let (first, second) = (one.admin(), two.admin());
    let sent = one.post(message().to_string()).await;
    let lane = first.get("/v1/lanes").await.unwrap()["lanes"][0]["id"].clone();
    first.post(&format!("/v1/lanes/{lane}/pause"), &Value::Null).await.unwrap();
    let cancel = format!("/v1/messages/{}/cancel", sent.body["id"].as_str().unwrap());
    first.post(&cancel, &Value::Null).await.unwrap();
    let is_idle = |lanes: &TestReply| {
        let listed = &lanes.body["lanes"][0];
        (&listed["id"], &listed["pending"], &listed["state"])
            == (&lane, &json!(0), &json!("blocked"))
    };
    within_a_second(&second, "/v1/lanes", is_idle).await;
    let resumed = second.post(&format!("/v1/lanes/{lane}/resume"), &Value::Null).await.unwrap();
    assert_eq!(resumed["state"], "ready");
    let is_empty = |lanes: &TestReply| lanes.body["lanes"].as_array().is_some_and(Vec::is_empty);
    within_a_second(&first, "/v1/lanes", is_empty).await;
}

#[tokio::test]
async fn a_template_of_one_node_is_used_by_the_other() {
    let (one, two) = two_nodes().await;
    let (first, second) = (one.admin(), two.admin());
    let path = "/v1/templates/shipped";
    let mut order = message();
    (order["content"], order["template"]) = (json!({}), json!({"name": "shipped"}));
    for title in ["Shipped", "On its way"] {
        put(&first, path, json!({"locales": {"en": {"title": title}}})).await;
        let shown = |it: &TestReply| it.body["locales"]["en"]["title"] == title;
        within_a_second(&second, path, shown).await;
        assert_eq!(two.post(order.to_string()).await.status, 202);
    }
    assert_eq!(reply(&second, Method::DELETE, path, "").await.status, 204);
    within_a_second(&first, path, |it| it.status == 404).await;
    assert_eq!(one.post(order.to_string()).await.status, 422);
}

#[tokio::test]
async fn an_api_key_works_on_every_node_and_is_revoked_on_every_node() {
    let (one, two) = two_nodes().await;
    let body = json!({"name": "shop", "scope": "tenant", "tenant": "acme"});
    let made = one.admin().post("/v1/keys", &body).await.unwrap();
    let key = made["key"].as_str().unwrap();
    within_a_second(&two.client(key), "/v1/deliveries", |answer| answer.status == 200).await;
    assert_eq!(get(&one.client(key), "/v1/deliveries").await.status, 200);
    let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(reply(&two.admin(), Method::DELETE, &path, "").await.status, 204);
    assert_eq!(reply(&two.admin(), Method::DELETE, &path, "").await.status, 404);
    within_a_second(&one.client(key), "/v1/deliveries", |answer| answer.status == 401).await;
    assert_eq!(get(&two.client(key), "/v1/deliveries").await.status, 401);
}

#[tokio::test]
async fn signing_keys_are_the_same_on_every_node_also_after_a_rotation() {
    let (one, two) = two_nodes().await;
    let acme = Some("acme".to_owned());
    let (first, second) = (one.admin().for_tenant(acme.clone()), two.admin().for_tenant(acme));
    for path in ["/v1/webhook-secrets", "/v1/vapid"] {
        // Both make the first keys of a tenant that they do not know.
        let (ours, theirs) = tokio::join!(get(&first, path), get(&second, path));
        assert_eq!(ours.body, theirs.body);
        let rotated = first.post(&format!("{path}/rotate"), &Value::Null).await.unwrap();
        within_a_second(&second, path, |keys| keys.body == rotated).await;
        let again = second.post(&format!("{path}/rotate"), &Value::Null).await.unwrap();
        within_a_second(&first, path, |keys| keys.body == again).await;
        let all = again.as_object().unwrap().values().next().unwrap();
        assert_eq!(all.as_array().unwrap().len(), 3, "no key of the other node is lost");
    }
}

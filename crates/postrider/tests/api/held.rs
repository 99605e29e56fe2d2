//! Held deliveries are shown, and released by those who may.

use http::Method;
use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, message, reply};

const PATH: &str = "/v1/deliveries/release";

async fn held(client: &postrider::client::Client) -> (Value, usize) {
    let stats = client.get("/v1/stats").await.unwrap();
    let listed = client.get("/v1/deliveries?held=true").await.unwrap();
    (stats["held"].clone(), listed["items"].as_array().unwrap().len())
}

#[tokio::test]
async fn a_tenant_releases_its_own_and_an_admin_all() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let all = server.admin().for_tenant(Some("*".to_owned()));
    let acme = server.client(&server.key("tenant", "acme").await);
    for client in [&admin, &admin, &acme] {
        client.post("/v1/messages", &message()).await.unwrap();
    }
    server.running.app.store.hold_pending().await.unwrap();
    assert_eq!(held(&acme).await, (json!(1), 1));
    assert_eq!(held(&all).await, (json!(3), 3));
    let done = acme.post(PATH, &json!({"filter": {}})).await.unwrap();
    assert_eq!(done, json!({"released": 1}));
    let id = admin.get("/v1/deliveries?held=true").await.unwrap()["items"][0]["id"].clone();
    assert_eq!(acme.post(PATH, &json!({"ids": [id]})).await.unwrap()["released"], 0, "not its own");
    let done = all.post(PATH, &json!({"filter": {"channel": "webhook"}, "rate_per_s": 10})).await;
    assert_eq!(done.unwrap(), json!({"released": 2}));
    assert_eq!(held(&all).await, (json!(0), 0));
}

#[tokio::test]
async fn a_release_that_makes_no_sense_is_refused() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    for (body, field) in [
        (json!({}), "ids or filter"),
        (json!({"ids": [], "filter": {}}), "ids or filter"),
        (json!({"filter": {}, "rate_per_s": 0}), "rate_per_s"),
        (json!({"filter": {"since": "yesterday"}}), "since"),
        (json!({"ids": ["msg_1"]}), "ids"),
    ] {
        let refused = reply(&admin, Method::POST, PATH, body.to_string()).await;
        assert_eq!(refused.status, 422, "{body}");
        assert_eq!(refused.body["errors"][0]["field"], field, "{body}");
    }
    let reader = server.client(&server.key("read", "default").await);
    let refused = reply(&reader, Method::POST, PATH, json!({"filter": {}}).to_string()).await;
    assert_eq!(refused.status, 403);
}

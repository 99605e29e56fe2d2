//! A full store refuses messages, and shows before that it fills up.

use http::Method;
use http_body_util::BodyExt as _;
use postrider::client::whole;
use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, message, reply};

async fn full() -> ServerFixture {
    let server = ServerFixture::with("[capacity]\ntenant_deliveries_max = 2\n").await;
    for _ in 0..2 {
        assert_eq!(server.post(message().to_string()).await.status, 202);
    }
    server
}

#[tokio::test]
async fn without_room_a_message_gets_429_with_the_time_to_come_again() {
    let server = full().await;
    let body = whole(message().to_string().into());
    let client = server.admin();
    let answer = client.send(Method::POST, "/v1/messages", "application/json", body).await.unwrap();
    assert_eq!(answer.status(), 429);
    let wait: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=300).contains(&wait), "{wait}");
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let problem: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["type"], "urn:postrider:problem:tenant_full");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("nothing of this message was accepted"), "{detail}");
}

#[tokio::test]
async fn in_a_batch_each_line_says_so_for_itself() {
    let server = ServerFixture::with("[capacity]\ntenant_deliveries_max = 2\n").await;
    let lines: String = (0..3).map(|_| format!("{}\n", message())).collect();
    let body = whole(lines.into());
    let path = "/v1/messages/batch";
    let answer = server.admin().send(Method::POST, path, "application/x-ndjson", body).await;
    let bytes = answer.unwrap().into_body().collect().await.unwrap().to_bytes();
    let lines: Vec<Value> = String::from_utf8_lossy(&bytes)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [202, 202, 429]);
    assert!(lines[2]["retry_after_s"].as_u64().unwrap() >= 1);
    assert_eq!(lines[2]["error"]["status"], 429);
}

#[tokio::test]
async fn everything_but_new_work_goes_on_and_shows_how_full_it_is() {
    let server = full().await;
    let admin = server.admin();
    let stats = admin.get("/v1/stats").await.unwrap();
    assert_eq!(stats["capacity"]["fill"], 1.0);
    assert_eq!(stats["capacity"]["deliveries_max"], 2);
    assert_eq!(stats["server_capacity"]["deliveries"], 2);
    let tenant = admin.get("/v1/tenants/default").await.unwrap();
    assert_eq!(tenant["capacity"]["deliveries"], 2);
    assert_eq!(reply(&admin, Method::GET, "/readyz", "").await.status, 200);
    let listed = admin.get("/v1/deliveries").await.unwrap();
    let message = listed["items"][0]["message"].as_str().unwrap().to_owned();
    admin.post(&format!("/v1/messages/{message}/cancel"), &Value::Null).await.unwrap();
    assert_eq!(server.post(postrider_testkit::server::message().to_string()).await.status, 202);
}

#[tokio::test]
async fn a_tenant_can_be_given_more_at_once() {
    let server = full().await;
    assert_eq!(server.post(message().to_string()).await.status, 429);
    let more = json!({"deliveries_max": 3}).to_string();
    let set = reply(&server.admin(), Method::PUT, "/v1/tenants/default", more).await;
    assert_eq!((set.status, &set.body["capacity"]["deliveries_max"]), (200, &json!(3)));
    assert_eq!(server.post(message().to_string()).await.status, 202);
    assert_eq!(server.post(message().to_string()).await.status, 429);
}

#[tokio::test]
async fn metrics_tell_how_full_it_is_and_what_was_refused_for_it() {
    let server = full().await;
    assert_eq!(server.post(message().to_string()).await.status, 429);
    let answer = server
        .admin()
        .send(Method::GET, "/metrics", "text/plain", whole(Default::default()))
        .await
        .unwrap();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    for line in [
        "postrider_lag_seconds 0",
        "postrider_capacity_used_deliveries 2",
        "postrider_capacity_deliveries 20000000",
        "postrider_refused_total{outcome=\"tenant_full\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test]
async fn metrics_that_are_not_public_are_the_operators_alone() {
    let server = ServerFixture::with("[server]\nmetrics_public = false\n").await;
    let tenant = server.client(&server.key("tenant", "acme").await);
    assert_eq!(reply(&tenant, Method::GET, "/metrics", "").await.status, 403);
    assert_eq!(reply(&server.admin(), Method::GET, "/metrics", "").await.status, 200);
}

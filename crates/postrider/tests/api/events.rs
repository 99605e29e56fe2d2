//! Live events: a listener gets the events of its own deliveries and no others.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use postrider::client::{Client, whole};

use crate::dead_letters::doomed;
use postrider_testkit::server::ServerFixture;

async fn listen(client: &Client) -> hyper::body::Incoming {
    let path = "/v1/events";
    let asked = client.send(Method::GET, path, "application/json", whole(Bytes::new()));
    let response = asked.await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response.into_body()
}

/// Reads until `word` comes, or the stream ends.
async fn hear(body: &mut hyper::body::Incoming, word: &str) -> String {
    let mut text = String::new();
    while !text.contains(word) {
        let frame = tokio::time::timeout(Duration::from_secs(10), body.frame()).await;
        let Some(frame) = frame.expect("an event in time") else { break };
        text += std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap();
    }
    text
}

#[tokio::test]
async fn a_listener_hears_of_its_own_deliveries_until_the_server_ends() {
    let server = ServerFixture::with_local_targets().await;
    let (a, b) = (server.key("tenant", "a").await, server.key("tenant", "b").await);
    let (mut of_a, mut of_b) = (listen(&server.client(&a)).await, listen(&server.client(&b)).await);
    let sent = server.client(&a).post("/v1/messages", &doomed()).await.unwrap();
    let heard = hear(&mut of_a, "event: finished").await;
    assert!(heard.contains("event: attempted"), "{heard}");
    assert!(heard.contains(sent["deliveries"][0]["id"].as_str().unwrap()), "{heard}");
    assert!(!heard.contains("/hook"), "an endpoint was told: {heard}");
    let end = tokio::spawn(server.running.shutdown());
    assert_eq!(hear(&mut of_b, "event:").await, "", "another tenant's events were told");
    assert!(end.await.unwrap());
}

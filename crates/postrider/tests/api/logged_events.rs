//! Events for others: a receiver gets the events of its subscription, signed, in order, each at least once; a reader
//! goes on where it was. A receiver that fails costs nothing, and nobody hears of what is not theirs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use postrider::client::{Client, whole};
use postrider_channels::webhook::{WebhookSecret, sign};
use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::{ServerFixture, reply};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);

/// A call that arrived.
struct ReceivedCall {
    headers: HeaderMap,
    body: Bytes,
    status: u16,
}

/// Receives messages and events; the test chooses the status of each path.
struct HookReceiver {
    address: SocketAddr,
    calls: Arc<Mutex<Vec<ReceivedCall>>>,
    events_status: Arc<AtomicU16>,
}

impl HookReceiver {
    async fn start() -> Self {
        let (calls, events_status) =
            (Arc::<Mutex<Vec<_>>>::default(), Arc::new(AtomicU16::new(200)));
        let (kept, status) = (calls.clone(), events_status.clone());
        let tries = Arc::<Mutex<HashMap<String, u32>>>::default();
        let router =
            Router::new().fallback(async move |uri: http::Uri, headers: HeaderMap, body: Bytes| {
                let status = match uri.path() {
                    "/events" => status.load(Ordering::Relaxed),
                    // Fails at the first try of each delivery.
                    "/second" => {
                        let id = headers["webhook-id"].to_str().unwrap().to_owned();
                        let mut tries = tries.lock().unwrap();
                        let tries = tries.entry(id).or_default();
                        *tries += 1;
                        if *tries == 1 { 503 } else { 200 }
                    }
                    "/refused" => 400,
                    _ => 200,
                };
                if uri.path() == "/events" {
                    kept.lock().unwrap().push(ReceivedCall { headers, body, status });
                }
                StatusCode::from_u16(status).unwrap()
            });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, calls, events_status }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Events that were taken, in the order of their arrival.
    fn events(&self) -> Vec<Value> {
        let calls = self.calls.lock().unwrap();
        let taken = calls.iter().filter(|call| call.status == 200);
        let pages = taken.map(|call| serde_json::from_slice::<Value>(&call.body).unwrap());
        pages.flat_map(|page| page["events"].as_array().unwrap().clone()).collect()
    }

    async fn await_events(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let begin = Instant::now();
        loop {
            let events = self.events();
            if wanted(&events) {
                return events;
            }
            assert!(begin.elapsed() < PATIENCE, "what came: {events:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn server() -> ServerFixture {
    ServerFixture::with(&format!("{LOCAL_TARGETS}[limits]\nevent_subscriptions_max = 3\n")).await
}

async fn send(client: &Client, url: String, class: &str) -> String {
    let message = json!({
        "to": {"address": {"channel": "webhook", "url": url}},
        "content": {"title": "Shipped"}, "class": class, "tags": ["orders"],
        "retry": {"retries": 3, "base_ms": 50, "kind": "fixed", "jitter": "none"},
    });
    let sent = client.post("/v1/messages", &message).await.unwrap();
    sent["deliveries"][0]["id"].as_str().unwrap().to_owned()
}

fn types_of(events: &[Value], delivery: &str) -> Vec<String> {
    let own = events.iter().filter(|event| event["delivery"] == delivery);
    own.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_gets_signed_events_in_order_and_others_get_nothing_of_them() {
    let (server, receiver) = (server().await, HookReceiver::start().await);
    let (a, b) = (server.key("tenant", "a").await, server.key("tenant", "b").await);
    let (a, b) = (server.client(&a), server.client(&b));
    let request = json!({"name": "mine", "url": receiver.url("/events")});
    let made = a.post("/v1/event-subscriptions", &request).await.unwrap();
    assert_eq!((&made["state"], &made["tenant"]), (&json!("active"), &json!("a")), "{made}");
    let second = send(&a, receiver.url("/second"), "transactional").await;
    let refused = send(&a, receiver.url("/refused"), "otp").await;
    let foreign = send(&b, receiver.url("/hook"), "transactional").await;
    let is_there = |events: &[Value]| {
        types_of(events, &second).len() >= 2 && !types_of(events, &refused).is_empty()
    };
    let events = receiver.await_events(is_there).await;
    assert_eq!(types_of(&events, &second), ["delivery.retrying", "delivery.sent"]);
    assert_eq!(types_of(&events, &refused), ["delivery.failed"]);
    assert!(types_of(&events, &foreign).is_empty(), "another tenant's: {events:#?}");
    let failed = events.iter().find(|event| event["delivery"] == refused).unwrap();
    for (field, value) in [
        ("tenant", json!("a")),
        ("reason", json!("permanent")),
        ("class", json!("otp")),
        ("channel", json!("webhook")),
        ("status", json!(400)),
        ("tags", json!(["orders"])),
        ("provider", json!(receiver.url(""))),
        ("attempt", json!(1)),
        ("state", json!("failed")),
    ] {
        assert_eq!(failed[field], value, "{failed:#}");
    }
    assert!(!failed.to_string().contains("/refused"), "an endpoint is told: {failed}");

    let secrets = format!("/v1/event-subscriptions/{}/secrets", made["id"].as_str().unwrap());
    let secret =
        a.get(&secrets).await.unwrap()["secrets"][0]["secret"].as_str().unwrap().to_owned();
    let secret = [Arc::new(WebhookSecret::parse(&secret).unwrap())];
    {
        let calls = receiver.calls.lock().unwrap();
        let call = &calls[0];
        let header = |name: &str| call.headers[name].to_str().unwrap();
        let at = header("webhook-timestamp").parse().unwrap();
        let expected = sign(&secret, header("webhook-id"), at, &call.body);
        assert_eq!(header("webhook-signature"), expected);
    }
    // Deliveries of events are no events, and neither is the test of a subscription.
    let path = format!("/v1/event-subscriptions/{}", made["id"].as_str().unwrap());
    a.post(&format!("{path}/test"), &json!({})).await.unwrap();
    let is_test = |event: &Value| event["type"] == "subscription.test";
    receiver.await_events(|events| events.iter().any(is_test)).await;
    let page = a.get("/v1/events?after=start&limit=1000").await.unwrap();
    assert_eq!(page["events"].as_array().unwrap().len(), 3, "{page:#}");
    assert_eq!(reply(&b, Method::GET, &path, "").await.status, 404);
    let audit = server.admin().get("/v1/audit?action=event_subscription.create").await.unwrap();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "{audit}");
    let deleted = reply(&a, Method::DELETE, &path, "").await;
    assert_eq!(deleted.status, 204);
    assert_eq!(reply(&a, Method::GET, "/v1/events?after=start", "").await.status, 422);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_fails_has_one_delivery_in_the_queue_and_misses_nothing() {
    let (server, receiver) = (server().await, HookReceiver::start().await);
    let a = server.key("tenant", "a").await;
    let a = server.client(&a);
    receiver.events_status.store(503, Ordering::Relaxed);
    let pattern = json!({"types": ["delivery.sent"], "classes": ["otp"]});
    let request = json!({"url": receiver.url("/events"), "events": pattern});
    let made = a.post("/v1/event-subscriptions", &request).await.unwrap();
    let path = format!("/v1/event-subscriptions/{}", made["id"].as_str().unwrap());
    let mut sent = Vec::new();
    for n in 0..40 {
        sent.push(send(&a, receiver.url("/hook"), "otp").await);
        if n % 4 == 0 {
            send(&a, receiver.url("/hook"), "transactional").await;
        }
    }
    postrider_testkit::server::eventually(&a, "/v1/stats", |stats| stats["states"]["sent"] == 50)
        .await;
    let pending =
        postrider_testkit::server::eventually(&a, &path, |found| found["delivery"].is_string())
            .await;
    let own = format!("postrider-events.{}", made["id"].as_str().unwrap());
    let admin = server.admin().for_tenant(Some(own));
    let queued = admin.get("/v1/deliveries").await.unwrap();
    assert_eq!(queued["items"].as_array().unwrap().len(), 1, "{queued:#}");
    assert_eq!(queued["items"][0]["id"], pending["delivery"]);
    receiver.events_status.store(200, Ordering::Relaxed);
    let events = receiver.await_events(|events| events.len() >= 40).await;
    let mut received: Vec<_> =
        events.iter().map(|event| event["delivery"].as_str().unwrap().to_owned()).collect();
    received.sort_unstable();
    sent.sort_unstable();
    assert_eq!(received, sent, "each once, and only those of the class");
    let done =
        postrider_testkit::server::eventually(&a, &path, |found| found["received"] == 40).await;
    assert_eq!(done["state"], "active", "{done:#}");
}

/// Reads a stream until it has so many events; answers their ids and the position of the last one.
async fn read_stream(client: &Client, path: &str, count: usize) -> (Vec<String>, String) {
    let headers = [("accept", "text/event-stream")];
    let asked = client.send_with(Method::GET, path, &headers, whole(Bytes::new()));
    let response = asked.await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut body, mut text) = (response.into_body(), String::new());
    while text.matches("\n\n").count() < count {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("events in time");
        text += std::str::from_utf8(&frame.unwrap().unwrap().into_data().unwrap()).unwrap();
    }
    let of = |name: &'static str| text.lines().filter_map(move |line| line.strip_prefix(name));
    let ids = of("data: ").map(|data| {
        let event: Value = serde_json::from_str(data).unwrap();
        event["id"].as_str().unwrap().to_owned()
    });
    (ids.take(count).collect(), of("id: ").take(count).last().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_goes_on_where_it_was_by_page_and_by_stream() {
    let (server, receiver) = (server().await, HookReceiver::start().await);
    let a = server.key("tenant", "a").await;
    let a = server.client(&a);
    let early = reply(&a, Method::GET, "/v1/events?after=start", "").await;
    assert_eq!(early.body["type"], "urn:postrider:problem:no_event_subscription");
    a.post("/v1/event-subscriptions", &json!({"name": "reader"})).await.unwrap();
    for _ in 0..7 {
        send(&a, receiver.url("/hook"), "otp").await;
    }
    let all = postrider_testkit::server::eventually(&a, "/v1/events?after=start", |page| {
        page["events"].as_array().unwrap().len() == 7
    })
    .await;
    let id = |event: &Value| event["id"].as_str().unwrap().to_owned();
    let all: Vec<_> = all["events"].as_array().unwrap().iter().map(id).collect();
    let (mut next, mut read) = ("start".to_owned(), Vec::new());
    loop {
        let page = a.get(&format!("/v1/events?limit=2&after={next}")).await.unwrap();
        read.extend(page["events"].as_array().unwrap().iter().map(id));
        next = page["next"].as_str().unwrap().to_owned();
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(read, all);
    let (first, position) = read_stream(&a, "/v1/events?after=start", 3).await;
    assert_eq!(first, all[..3]);
    let (rest, _) = read_stream(&a, &format!("/v1/events?after={position}"), 4).await;
    assert_eq!(rest, all[3..]);
    let none = a.get("/v1/events?after=start&types=delivery.failed,address.*").await.unwrap();
    assert_eq!(none["events"], json!([]));
    let address = json!({"channel": "webhook", "url": receiver.url("/x"), "recipient": "u-1"});
    let made = a.post("/v1/addresses", &address).await.unwrap();
    a.delete(&format!("/v1/addresses/{}", made["id"].as_str().unwrap())).await.unwrap();
    let page = a.get("/v1/events?after=start&types=address.*").await.unwrap();
    let types: Vec<_> =
        page["events"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(types, ["address.registered", "address.deleted"]);
    assert_eq!(page["events"][0]["address"], made["id"]);
}

#[tokio::test]
async fn what_cannot_be_subscribed_is_refused_with_the_field() {
    let server = server().await;
    let a = server.key("tenant", "a").await;
    let a = server.client(&a);
    for (body, field) in [
        (json!({"events": {"types": ["delivery.lost"]}}), "types"),
        (json!({"events": {"channels": ["fax"]}}), "channels"),
        (json!({"after": "yesterday"}), "after"),
        (json!({"name": "x\u{7}"}), "name"),
        (json!({"url": "ftp://example.com/x"}), "url"),
    ] {
        let refused = reply(&a, Method::POST, "/v1/event-subscriptions", body.to_string()).await;
        assert_eq!(refused.status, 422, "{body}: {}", refused.body);
        let named = refused.body["errors"][0]["field"].as_str().unwrap();
        assert!(named.ends_with(field), "{body}: {}", refused.body);
    }
    for _ in 0..3 {
        a.post("/v1/event-subscriptions", &json!({})).await.unwrap();
    }
    let full = reply(&a, Method::POST, "/v1/event-subscriptions", "{}").await;
    assert_eq!(
        (full.status, &full.body["errors"][0]["field"]),
        (403, &json!("limits.event_subscriptions_max"))
    );
    for (query, field) in [
        ("after=x", "after"),
        ("after=now&types=nothing", "types"),
        ("after=now&channel=fax", "channel"),
        ("after=now&limit=0", "limit"),
        ("types=delivery.sent", "after"),
    ] {
        let refused = reply(&a, Method::GET, &format!("/v1/events?{query}"), "").await;
        assert_eq!(refused.status, 422, "{query}");
        assert_eq!(refused.body["errors"][0]["field"], field, "{query}");
    }
}

//! Alerts: by a backup, without room in the queue, without a store that takes them; and what people say of problems.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use postrider_store::{EmbeddedStore, StoreOptions, SystemClock};
use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::{ServerFixture, eventually, message, reply};
use serde_json::{Value, json};

use super::alert_receiver::{ALERTED_IN, TestReceiver};

/// A problem is resolved in this time after its cause ended.
const RESOLVED_IN: Duration = Duration::from_secs(60);

fn route(pager: &TestReceiver) -> String {
    format!(
        "{LOCAL_TARGETS}[problems]\nresolves_after_s = 10\n\
         [alerts.routes.oncall]\nkind = \"webhook\"\nurl = \"{}\"\n",
        pager.url("/page")
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_has_room_for_the_alert_that_it_is_full() {
    let pager = TestReceiver::start().await;
    let settings = format!("{}[capacity]\ndeliveries_max = 3\n", route(&pager));
    let server = ServerFixture::with(&settings).await;
    for _ in 0..3 {
        assert_eq!(server.post(message().to_string()).await.status, 202);
    }
    assert_eq!(server.post(message().to_string()).await.status, 429);
    pager.alert("capacity", "opened", ALERTED_IN).await;
    let waiting = server.admin().get("/v1/deliveries").await.unwrap();
    for item in waiting["items"].as_array().unwrap() {
        let path = format!("/v1/messages/{}/cancel", item["message"].as_str().unwrap());
        server.admin().post(&path, &Value::Null).await.unwrap();
    }
    pager.alert("capacity", "resolved", RESOLVED_IN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_takes_nothing_new_is_told_without_the_queue() {
    let pager = TestReceiver::start().await;
    let dir = tempfile::tempdir().unwrap();
    // No reserve can be made where a folder is in the way.
    let in_the_way = dir.path().join("postrider.reserve");
    std::fs::create_dir(&in_the_way).unwrap();
    let store =
        EmbeddedStore::open(dir.path(), Arc::new(SystemClock), StoreOptions::default()).unwrap();
    let server = ServerFixture::build(&route(&pager), Arc::new(store)).await;
    assert_eq!(server.post(message().to_string()).await.status, 503);
    let opened = pager.alert("store", "opened", ALERTED_IN).await;
    assert!(
        opened["what"].as_str().unwrap().contains("disk of the data folder is full"),
        "{opened}"
    );
    // Told once, although it is looked at every five seconds.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(pager.alerts().len(), 1, "{:#?}", pager.alerts());
    std::fs::remove_dir(&in_the_way).unwrap();
    let resolved = pager.alert("store", "resolved", RESOLVED_IN).await;
    assert_eq!(resolved["problem"], opened["problem"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_that_had_no_room_is_sent_when_there_is_some() {
    let pager = TestReceiver::start().await;
    // The tenant of the alerts has no room of its own.
    let settings = format!(
        "{}[tenants.postrider-alerts]\ndeliveries_max = 1\n[accounts.apple]\nchannel = \"apns\"\n\
         tenant = \"acme\"\ncredential = \"file:/nowhere/apple.pem\"\n",
        route(&pager)
    );
    let store = postrider_store::MemoryStore::new(Arc::new(SystemClock));
    let server = ServerFixture::build(&settings, Arc::new(store)).await;
    let own = server.client(&server.key("send", "postrider-alerts").await);
    let waiting = own.post("/v1/messages", &message()).await.unwrap();
    let admin = server.admin();
    let is_one = |list: &Value| list["problems"].as_array().is_some_and(|all| all.len() == 1);
    eventually(&admin, "/v1/problems", is_one).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(pager.alerts().is_empty(), "there is no room for it");
    let id = waiting["id"].as_str().unwrap();
    own.post(&format!("/v1/messages/{id}/cancel"), &Value::Null).await.unwrap();
    pager.alert("credential_failing", "opened", ALERTED_IN).await;
}

/// A server whose account has no credential: a problem from the start.
async fn without_credential(more: &str) -> ServerFixture {
    let text = format!(
        "{LOCAL_TARGETS}[accounts.apple]\nchannel = \"apns\"\ntenant = \"acme\"\n\
         credential = \"file:/nowhere/apple.pem\"\n{more}"
    );
    ServerFixture::with(&text).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_that_is_not_sent_goes_by_the_backup() {
    let (broken, backup) = (TestReceiver::start().await, TestReceiver::start().await);
    broken.answers(503);
    let routes = format!(
        "[alerts]\nbackup_after_s = 5\nlink_base = \"https://p.example\"\n\
         [alerts.routes.first]\nkind = \"webhook\"\nurl = \"{}\"\nbackup = \"second\"\n\
         [alerts.routes.second]\nkind = \"slack\"\nurl = \"{}\"\n",
        broken.url("/a"),
        backup.url("/b")
    );
    let server = without_credential(&routes).await;
    broken.alert("credential_failing", "opened", ALERTED_IN).await;
    let begin = Instant::now();
    let text = loop {
        if let Some(body) = backup.bodies.lock().unwrap().first() {
            break body["text"].as_str().unwrap_or_default().to_owned();
        }
        assert!(begin.elapsed() < ALERTED_IN, "the backup was never used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(text.contains("https://p.example/problems/prb_"), "{text}");
    assert!(text.contains("postrider doctor"), "the remedy is missing: {text}");
    let admin = server.admin();
    let listed = admin.get("/v1/alerts").await.unwrap();
    assert_eq!(listed["routes"][1]["is_backup"], true, "{listed}");
    assert!(!listed.to_string().contains("127.0.0.1"), "no URL is shown: {listed}");
    let tested = admin.post("/v1/alerts/test", &json!({"route": "second"})).await.unwrap();
    assert!(tested["alerts"][0]["delivery"].is_string(), "{tested}");
    let wrong = reply(&admin, Method::POST, "/v1/alerts/test", r#"{"route":"third"}"#).await;
    assert_eq!((wrong.status, &wrong.body["errors"][0]["field"]), (422, &json!("route")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_problem_is_acknowledged_and_muted_by_those_whom_it_concerns_only() {
    let server = without_credential("").await;
    let admin = server.admin();
    let is_one = |list: &Value| list["problems"].as_array().is_some_and(|all| all.len() == 1);
    let list = eventually(&admin, "/v1/problems", is_one).await;
    let problem = &list["problems"][0];
    assert_eq!(
        (&problem["kind"], &problem["provider"]),
        (&json!("credential_failing"), &json!("apple"))
    );
    assert_eq!(problem["status_page"], "https://developer.apple.com/system-status/");
    let path = format!("/v1/problems/{}", problem["id"].as_str().unwrap());
    let act = async |key: &str, what: &str, body: &str| {
        let path = format!("{path}/{what}");
        let answer = reply(&server.client(key), Method::POST, &path, body.to_owned()).await;
        (answer.status, answer.body["state"].clone())
    };
    let (own, other) = (server.key("tenant", "acme").await, server.key("tenant", "shop").await);
    assert_eq!(server.client(&own).get(&path).await.unwrap()["tenants"][0]["tenant"], "acme");
    assert_eq!(reply(&server.client(&other), Method::GET, &path, "").await.status, 404);
    let none = server.client(&other).get("/v1/problems?state=all").await.unwrap();
    assert_eq!(none["problems"], json!([]));
    let key = postrider_testkit::ADMIN_KEY;
    assert_eq!(act(&other, "acknowledge", "").await.0, 404);
    assert_eq!(act(&own, "acknowledge", "").await, (200, json!("acknowledged")));
    assert_eq!(act(key, "acknowledge", "").await, (200, json!("acknowledged")));
    assert_eq!(act(key, "mute", r#"{"for_s":60}"#).await, (200, json!("muted")));
    assert_eq!(act(key, "mute", r#"{"for_s":0}"#).await.0, 422);
    assert_eq!(act(key, "unmute", "").await, (200, json!("acknowledged")));
    assert_eq!(act(key, "unacknowledge", "").await, (200, json!("open")));
    let audit = admin.get("/v1/audit?action=problem.mute").await.unwrap();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "{audit}");
    let wrong = reply(&admin, Method::GET, "/v1/problems?kind=bad_luck", "").await;
    assert_eq!((wrong.status, &wrong.body["errors"][0]["field"]), (422, &json!("kind")));
}

//! A full disk: nothing is half accepted, the caller gets a time to retry, and the server recovers without a restart.
//! Idle connections do not keep other callers out.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use postrider::client::whole;
use postrider_store::{EmbeddedStore, StoreOptions, SystemClock};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use postrider_testkit::server::{ServerFixture, eventually, message, reply};

#[tokio::test]
async fn a_full_store_answers_503_with_retry_after_and_heals() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock);
    let store = EmbeddedStore::open(dir.path(), clock, StoreOptions::default()).unwrap();
    let store = Arc::new(store);
    let server = ServerFixture::over(store.clone()).await;
    assert_eq!(server.post(message().to_string()).await.status, 202);

    store.limit_size(Some(1)).await.unwrap();
    let mut large = message();
    large["content"]["body"] = "x".repeat(200_000).into();
    let body = whole(large.to_string().into());
    let admin = server.admin();
    let full = admin.send(Method::POST, "/v1/messages", "application/json", body).await.unwrap();
    assert_eq!(full.status(), 503);
    assert_eq!(full.headers()["retry-after"], "5");
    let stats = reply(&server.admin(), Method::GET, "/v1/stats", "").await;
    assert_eq!(stats.body["messages"], 1, "nothing is half-accepted");

    store.limit_size(None).await.unwrap();
    assert_eq!(server.post(large.to_string()).await.status, 202);
}

#[tokio::test]
async fn who_has_no_room_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let in_the_way = dir.path().join("postrider.reserve");
    std::fs::create_dir(&in_the_way).unwrap();
    let clock = Arc::new(SystemClock);
    let store = EmbeddedStore::open(dir.path(), clock, StoreOptions::default()).unwrap();
    let server = ServerFixture::over(Arc::new(store)).await;
    let ready = async || reply(&server.admin(), Method::GET, "/readyz", "").await;
    let refused = ready().await;
    assert_eq!(refused.status, 503);
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("free space"), "{detail}");
    assert_eq!(server.post(message().to_string()).await.status, 503);

    std::fs::remove_dir(&in_the_way).unwrap();
    let healed = async {
        while ready().await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), healed).await.unwrap();
    assert_eq!(server.post(message().to_string()).await.status, 202);
}

#[tokio::test]
async fn a_connection_that_asks_nothing_is_closed() {
    let server = ServerFixture::with("[server]\nheader_timeout_s = 1\n").await;
    for beginning in ["", "PRI * HT", "GET / HT"] {
        let mut idle = tokio::net::TcpStream::connect(server.running.addr).await.unwrap();
        idle.write_all(beginning.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let closed = idle.read_to_end(&mut rest);
        let closed = tokio::time::timeout(std::time::Duration::from_secs(10), closed).await;
        assert!(closed.is_ok(), "still open after {beginning:?}");
    }
}

#[tokio::test]
async fn nothing_is_revealed_while_its_entry_in_the_audit_log_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock);
    let store = EmbeddedStore::open(dir.path(), clock, StoreOptions::default()).unwrap();
    let store = Arc::new(store);
    let server = ServerFixture::over(store.clone()).await;
    let admin = server.admin();
    let sent = server.post(message().to_string()).await.body;
    let export = serde_json::json!({"kind": "export", "filter": {"channel": "webhook"}});
    let job = admin.post("/v1/jobs", &export).await.unwrap();
    let job = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    eventually(&admin, &job, |job| job["state"] == "done").await;
    let paths = [
        format!("/v1/messages/{}/content", sent["id"].as_str().unwrap()),
        "/v1/webhook-secrets".to_owned(),
        format!("{job}/result"),
    ];
    let read = async |path: &str| {
        let body = whole("".into());
        admin.send(Method::GET, path, "application/json", body).await.unwrap().status().as_u16()
    };
    for path in &paths {
        assert_eq!(read(path).await, 200, "{path}");
    }
    store.limit_size(Some(1)).await.unwrap();
    // The data file has free pages, which others use up.
    let mut large = message();
    large["content"]["body"] = "x".repeat(2_000).into();
    let mut accepted = 0;
    while server.post(large.to_string()).await.status == 202 {
        accepted += 1;
        assert!(accepted < 1_000, "the disk is never full");
    }
    for path in &paths {
        let mut status = 200;
        for _ in 0..200 {
            status = read(path).await;
            if status != 200 {
                break;
            }
        }
        assert_eq!(status, 503, "{path}");
    }
}

#[tokio::test]
async fn no_new_secret_is_handed_out_while_its_entry_in_the_audit_log_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let clock = Arc::new(SystemClock);
        EmbeddedStore::open(dir.path(), clock, StoreOptions::default()).unwrap()
    };
    drop(open());
    // Everything can be written but the audit log.
    let database = rusqlite::Connection::open(dir.path().join("postrider.db")).unwrap();
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no room'); END";
    database.execute_batch(refuse).unwrap();
    drop(database);
    let server = ServerFixture::over(Arc::new(open())).await;
    let admin = server.admin();
    let new_key = json!({"name": "mine", "scope": "admin", "tenant": "*"});
    let subscription = json!({"name": "a", "url": "https://a.example/", "enabled": false});
    let made = reply(&admin, Method::POST, "/v1/event-subscriptions", subscription.to_string());
    let made = made.await.body;
    let rotate = format!("/v1/event-subscriptions/{}/secrets/rotate", made["id"].as_str().unwrap());
    for (path, body) in [
        ("/v1/keys", new_key),
        ("/v1/webhook-secrets/rotate", json!({})),
        (&rotate, json!({})),
        ("/v1/sign-in-codes", json!({})),
        ("/v1/portal-links", json!({"tenant": "acme"})),
    ] {
        let answer = reply(&admin, Method::POST, path, body.to_string()).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.body);
        assert_eq!(answer.body["type"], "urn:postrider:problem:not_audited", "{}", answer.body);
    }
}

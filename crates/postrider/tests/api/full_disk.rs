//! A full disk: nothing is half accepted, the caller gets a time to retry, and the server recovers without a restart.
//! Idle connections do not keep other callers out.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use postrider::client::whole;
use postrider_store::{EmbeddedStore, StoreOptions, SystemClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use postrider_testkit::server::{ServerFixture, message, reply};

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

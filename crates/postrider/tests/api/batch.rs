//! Batches: one answer per line, in order, with errors in their place.

use http::Method;
use http_body_util::BodyExt as _;
use postrider::client::whole;
use serde_json::Value;

use postrider_testkit::ADMIN_KEY;
use postrider_testkit::server::{ServerFixture, message};

async fn batch(server: &ServerFixture, body: String) -> Vec<Value> {
    let client = server.admin();
    let path = "/v1/messages/batch";
    let sent = client.send(Method::POST, path, "application/x-ndjson", whole(body.into()));
    let bytes = sent.await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

#[tokio::test]
async fn results_come_in_order_with_errors_in_their_place() {
    let server = ServerFixture::start().await;
    let good = message().to_string();
    let huge = format!("{{\"x\":\"{}\"}}", "y".repeat(1 << 20));
    let body = format!("{good}\n\nnot json\n{good}\n{huge}\n{{}}\n{good}");
    let results = batch(&server, body).await;
    let statuses: Vec<_> = results.iter().map(|r| r["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [202, 400, 202, 413, 422, 202]);
    let indexes: Vec<_> = results.iter().map(|r| r["index"].as_u64().unwrap()).collect();
    assert_eq!(indexes, [0, 1, 2, 3, 4, 5]);
    assert!(results[0]["deliveries"][0]["id"].as_str().unwrap().starts_with("dlv_"));
    assert!(results[1]["error"]["detail"].is_string());
}

#[tokio::test]
async fn thousands_of_lines_are_answered_one_by_one() {
    let server = ServerFixture::start().await;
    let mut body = String::new();
    for n in 0..3000 {
        let mut line = message();
        line["idempotency_key"] = format!("k-{}", n % 1500).into();
        body += &format!("{line}\n");
    }
    let results = batch(&server, body).await;
    assert_eq!(results.len(), 3000);
    for (n, result) in results.iter().enumerate() {
        assert_eq!((result["index"].as_u64(), &result["status"]), (Some(n as u64), &202.into()));
        assert_eq!(result["id"], results[n % 1500]["id"], "line {n}");
    }
    let duplicates = results.iter().filter(|r| r["duplicate"] == true).count();
    assert_eq!(duplicates, 1500);
    let stats = server.admin().get("/v1/stats").await.unwrap();
    assert_eq!((&stats["messages"], &stats["totals"]["accepted"]), (&1500.into(), &1500.into()));
}

#[tokio::test]
async fn one_key_for_a_whole_batch_is_refused() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = ServerFixture::start().await;
    let mut stream = tokio::net::TcpStream::connect(server.running.addr).await.unwrap();
    let head = format!(
        "POST /v1/messages/batch HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN_KEY}\r\n\
         content-type: application/x-ndjson\r\nidempotency-key: k\r\ncontent-length: 0\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    assert!(answer.contains("an idempotency_key in each line"), "{answer}");
}

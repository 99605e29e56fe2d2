//! Statements of the documentation that once differed from the server.

use postrider_testkit::ADMIN_KEY;
use postrider_testkit::server::{ServerFixture, eventually, reply};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::dead_letters::doomed;

#[tokio::test]
async fn a_list_of_dead_letters_names_nobody() {
    let server = ServerFixture::with_local_targets().await;
    let admin = server.admin();
    let mut message = doomed();
    let mut address = message["to"]["address"].clone();
    address["recipient"] = "zoe-91".into();
    let known = admin.post("/v1/addresses", &address).await.unwrap();
    message["to"] = json!({"address": known["id"]});
    let sent = admin.post("/v1/messages", &message).await.unwrap();
    let is_there = |page: &Value| page["items"].as_array().is_some_and(|items| items.len() == 1);
    let page = eventually(&admin, "/v1/dead-letters", is_there).await;
    assert!(!page.to_string().contains("zoe-91"), "{page}");
    let id = sent["deliveries"][0]["id"].as_str().unwrap();
    let one = admin.get(&format!("/v1/deliveries/{id}")).await.unwrap();
    assert_eq!(one["recipient"], "zoe-91", "who asks for one delivery sees it");
}

#[tokio::test]
async fn a_batch_belongs_to_the_trace_of_its_caller() {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", receiver.local_addr().unwrap());
    let server = ServerFixture::with_local_targets().await;
    let line =
        json!({"to": {"address": {"channel": "webhook", "url": url}}, "content": {"title": "x"}});
    let mut stream = tokio::net::TcpStream::connect(server.running.addr).await.unwrap();
    let head = format!(
        "POST /v1/messages/batch HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\n\
         content-type: application/x-ndjson\r\ntraceparent: {TRACE}\r\ncontent-length: {}\r\n\r\n{line}",
        ADMIN_KEY,
        line.to_string().len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut call, _) = receiver.accept().await.unwrap();
    let mut received = String::new();
    let mut part = [0; 4096];
    while !received.contains("\r\n\r\n") {
        let read = call.read(&mut part).await.unwrap();
        assert!(read > 0, "{received}");
        received += &String::from_utf8_lossy(&part[..read]);
    }
    assert!(
        received.to_ascii_lowercase().contains("traceparent: 00-0af7651916cd43dd"),
        "{received}"
    );
}

#[tokio::test]
async fn the_same_content_to_several_addresses_is_a_repeat() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    for n in 0..2 {
        let url = format!("https://example.com/{n}");
        let address = json!({"channel": "webhook", "url": url, "recipient": "zoe-91"});
        admin.post("/v1/addresses", &address).await.unwrap();
    }
    let message = |title: &str| {
        json!({"to": {"recipient": "zoe-91"}, "content": {"title": title}, "dedupe": "content"})
            .to_string()
    };
    let send =
        async |title| reply(&admin, http::Method::POST, "/v1/messages", message(title)).await.body;
    let first = send("a").await;
    assert_eq!(
        (first["deliveries"].as_array().unwrap().len(), &first["duplicate"]),
        (2, &json!(false))
    );
    let second = send("a").await;
    assert_eq!((&second["id"], &second["duplicate"]), (&first["id"], &json!(true)));
    assert_eq!(send("b").await["duplicate"], false);
}

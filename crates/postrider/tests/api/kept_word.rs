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

#[tokio::test]
async fn deleting_an_address_cancels_what_is_queued_for_it() {
    let server = ServerFixture::with_local_targets().await;
    let admin = server.admin();
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", receiver.local_addr().unwrap());
    let address = json!({"channel": "webhook", "url": url, "recipient": "zoe-91"});
    let known = admin.post("/v1/addresses", &address).await.unwrap();
    let soon = (jiff::Timestamp::now() + jiff::SignedDuration::from_millis(1_500)).to_string();
    let message =
        json!({"to": {"recipient": "zoe-91"}, "content": {"title": "x"}, "send_at": soon});
    let sent = admin.post("/v1/messages", &message).await.unwrap();
    let id = known["id"].as_str().unwrap();
    reply(&admin, http::Method::DELETE, &format!("/v1/addresses/{id}"), String::new()).await;
    let path = format!("/v1/deliveries/{}", sent["deliveries"][0]["id"].as_str().unwrap());
    eventually(&admin, &path, |delivery| delivery["state"] == "cancelled").await;
    let called = tokio::time::timeout(std::time::Duration::from_millis(1), receiver.accept()).await;
    assert!(called.is_err(), "nobody was called");
}

#[tokio::test]
async fn a_campaign_reaches_everybody_once_whatever_the_lists() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    for (who, urls) in [("ann", 1), ("ben", 2), ("eve", 1)] {
        for n in 0..urls {
            let url = format!("https://example.com/{who}/{n}");
            let address = json!({"channel": "webhook", "url": url, "recipient": who});
            admin.post("/v1/addresses", &address).await.unwrap();
        }
    }
    let send = async |to: Value, run: Option<&str>| {
        let mut message = json!({"to": to, "content": {"title": "Sale"}, "campaign": "spring"});
        if let Some(run) = run {
            message["campaign_run"] = run.into();
        }
        reply(&admin, http::Method::POST, "/v1/messages", message.to_string()).await.body
    };
    let figures = |answer: &Value| {
        let count = answer["deliveries"].as_array().unwrap().len();
        (count, answer["duplicate"] == true, answer["repeated"].as_u64().unwrap_or(0))
    };
    let first = send(json!({"recipients": ["ann", "ben"]}), None).await;
    assert_eq!(figures(&first), (3, false, 0), "{first}");
    let second = send(json!({"recipients": ["ben", "eve"]}), None).await;
    assert_eq!(figures(&second), (1, false, 2), "only eve is new: {second}");
    let alone = send(json!({"recipient": "ann"}), None).await;
    assert_eq!((&alone["id"], &alone["duplicate"]), (&first["id"], &json!(true)), "{alone}");
    let all = send(json!({"recipients": ["eve", "ben", "ann"]}), None).await;
    assert_eq!((all["duplicate"].as_bool(), all["repeated"].as_u64()), (Some(true), Some(4)));
    let next_run = send(json!({"recipients": ["ann", "ben", "eve"]}), Some("2")).await;
    assert_eq!(figures(&next_run), (4, false, 0), "{next_run}");
    let lone_run = json!({"to": {"recipient": "ann"}, "content": {}, "campaign_run": "2"});
    let refused = reply(&admin, http::Method::POST, "/v1/messages", lone_run.to_string()).await;
    assert_eq!(
        (refused.status, &refused.body["errors"][0]["field"]),
        (422, &json!("campaign_run"))
    );
}

#[tokio::test]
async fn an_operator_may_set_the_window_of_ttl_0_and_the_longest_retry_after() {
    let server = ServerFixture::with(
        "[network]\nallow_private_targets = true\nallow_plain_http = true\n[dispatch]\n\
         now_or_never_s = 3\nretry_after_address_s_max = 40\nretry_after_provider_s_max = 40\n",
    )
    .await;
    let admin = server.admin();
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", receiver.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = receiver.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = "HTTP/1.1 429 Slow\r\nretry-after: 86400\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    // Another address each: one that asked to wait is left alone.
    let message = |ttl_s: u32| {
        let url = format!("{url}/{ttl_s}");
        json!({"to": {"address": {"channel": "webhook", "url": url}}, "content": {}, "ttl_s": ttl_s})
    };
    let sent = admin.post("/v1/messages", &message(0)).await.unwrap();
    let path = format!("/v1/messages/{}", sent["id"].as_str().unwrap());
    let shown = admin.get(&path).await.unwrap();
    let window = time(&shown["expires_at"]).duration_since(time(&shown["created_at"]));
    assert_eq!(window.as_secs(), 3, "{shown}");
    let sent = admin.post("/v1/messages", &message(86_000)).await.unwrap();
    let path = format!("/v1/deliveries/{}", sent["deliveries"][0]["id"].as_str().unwrap());
    let waiting = eventually(&admin, &path, |delivery| delivery["log"][0]["next_at"].is_string());
    let waiting = waiting.await;
    let attempt = &waiting["log"][0];
    let wait = time(&attempt["next_at"]).duration_since(time(&attempt["at"])).as_secs();
    // A quarter more, so that not all come back at once.
    assert!((40..=51).contains(&wait), "{waiting}");
}

/// A receiver that answers every call with this status.
async fn start_answering(status: u16) -> String {
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", receiver.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = receiver.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let answer =
                format!("HTTP/1.1 {status} No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    url
}

#[tokio::test]
async fn an_operator_may_set_how_long_a_repeat_is_recognised() {
    let settings = "[network]\nallow_private_targets = true\nallow_plain_http = true\n[dispatch]\n\
                    dedup_window_s = 3\n";
    let server = ServerFixture::with(settings).await;
    let admin = server.admin();
    let address = json!({"channel": "webhook", "url": start_answering(204).await});
    // At least until it expires.
    let message = json!({"to": {"address": address}, "content": {"title": "x"},
        "dedupe": "content", "ttl_s": 3});
    let send =
        async || reply(&admin, http::Method::POST, "/v1/messages", message.to_string()).await.body;
    let first = send().await;
    let repeat = send().await;
    assert_eq!((&repeat["id"], &repeat["duplicate"]), (&first["id"], &json!(true)), "{repeat}");
    let started = std::time::Instant::now();
    while send().await["duplicate"] == true {
        assert!(started.elapsed().as_secs() < 20, "a repeat is still recognised");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn an_operator_may_set_how_long_a_delivery_waits_for_a_person() {
    let settings = "[network]\nallow_private_targets = true\nallow_plain_http = true\n[dispatch]\n\
                    park_s = 77\n[[classify]]\nservice = \"webhook\"\nstatus = 401\noutcome = \"config\"\n";
    let server = ServerFixture::with(settings).await;
    let admin = server.admin();
    let address = json!({"channel": "webhook", "url": start_answering(401).await});
    let message = json!({"to": {"address": address}, "content": {}, "ttl_s": 86_000});
    let sent = admin.post("/v1/messages", &message).await.unwrap();
    let path = format!("/v1/deliveries/{}", sent["deliveries"][0]["id"].as_str().unwrap());
    let waiting = eventually(&admin, &path, |delivery| delivery["log"][0]["next_at"].is_string());
    let attempt = &waiting.await["log"][0];
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let wait = time(&attempt["next_at"]).duration_since(time(&attempt["at"])).as_secs();
    assert!((76..=78).contains(&wait), "{attempt}");
}

#[tokio::test]
async fn a_reload_of_the_breaker_holds_for_accounts_too() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "s3cret").unwrap();
    let settings = format!(
        "[network]\nallow_private_targets = true\nallow_plain_http = true\n\
         [breaker]\nopen_s = 3000\nopen_s_max = 6000\n\
         [accounts.gateway]\nchannel = \"sms\"\nprovider = \"http\"\ntenant = \"*\"\n\
         url = \"{}/send\"\nfields = {{ to = \"{{to}}\", text = \"{{text}}\" }}\nauth = \"bearer\"\n\
         credential = \"file:{}\"\n",
        start_answering(401).await,
        secret.display()
    );
    let server = ServerFixture::with(&settings).await;
    let admin = server.admin();
    let shorter = json!({"open_s": 30, "open_s_max": 30}).to_string();
    let set = reply(&admin, http::Method::PUT, "/v1/limits/breaker", shorter).await;
    assert_eq!(set.status, 200, "{:?}", set.body);
    let address = json!({"channel": "sms", "phone": "+4915112345678"});
    let message = json!({"to": {"address": address}, "content": {"title": "x"}});
    admin.post("/v1/messages", &message).await.unwrap();
    let held = |page: &Value| page["accounts"][0]["until"].is_string();
    let shown = eventually(&admin, "/v1/accounts", held).await;
    let until = shown["accounts"][0]["until"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let wait = until.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((1..=60).contains(&wait), "{wait} s: {shown}");
}

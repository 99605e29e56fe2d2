//! Mistakes in a message of any channel: JSON, types, numbers, names, depth.

use http::Method;
use serde_json::{Value, json};

use super::{Table, check};
use postrider_testkit::server::{ServerFixture, message, reply};

#[tokio::test]
async fn what_is_no_message_is_refused_at_the_gate() {
    let address = json!({"channel": "webhook", "url": "https://example.com/hook"});
    let table = Table::new(address, json!({"title": "Shipped", "data": {"order": 91}}))
        .each("ttl_s", &[json!(-1), json!(2_419_201), json!(1.5), json!("60"), json!(true)])
        .raw("a TTL beyond all bounds", "\"to\":", "\"ttl_s\":99999999999999999999999,\"to\":")
        .raw("a TTL of 1e999", "\"to\":", "\"ttl_s\":1e999,\"to\":")
        .each(
            "send_at",
            &[json!("tomorrow"), json!(1_800_000_000), json!("2199-01-01T00:00:00Z"), json!("")],
        )
        .each(
            "class",
            &[json!("nonsense"), json!(""), json!(5), json!("a\nb"), json!("x".repeat(257))],
        )
        .each("priority", &[json!("urgent"), json!(1), json!("HIGH")])
        .each("dedupe", &[json!("yes"), json!(true)])
        .each(
            "tags",
            &[json!("news"), json!([""]), json!([1]), json!(vec!["x"; 17]), json!(["a\u{0}"])],
        )
        .each("campaign", &[json!(""), json!(["x"]), json!("x".repeat(257))])
        .each("collapse_key", &[json!(""), json!("a\r\nb"), json!("ü".repeat(129))])
        .each("idempotency_key", &[json!(""), json!(7), json!("x".repeat(257))])
        .each("retry", &[json!("never"), json!([]), json!({"retrys": 3}), json!({"retries": -1})])
        .each("retry", &[json!({"retries": 101}), json!({"kind": "quick"}), json!({"factor": 0.5})])
        .each("content", &[json!("Shipped"), json!([]), json!(5), json!({"titel": "x"})])
        .each("content.title", &[json!(5), json!(["x"]), json!({})])
        .each(
            "content.url",
            &[json!(5), json!("javascript:alert(1)"), json!("https://a.example/\r\n")],
        )
        .each("content.email", &[json!([]), json!("x")])
        .each("to", &[json!("x"), json!([]), json!({}), json!(null), json!({"adress": {}})])
        .each(
            "to",
            &[
                json!({"recipients": []}),
                json!({"recipient": 5}),
                json!({"recipients": "u-1"}),
                json!({"recipient": "u-1", "recipients": ["u-2"]}),
                json!({"topic": "news"}),
                json!({"recipient": "nobody-knows"}),
                json!({"address": "adr_0001"}),
                json!({"address": "ada.lovelace@example.org"}),
                json!({"address": "https://example.com/hook/secret"}),
                json!({"address": ["webhook", "https://example.com/hook"]}),
                json!({"address": 5}),
                json!({"address": {}}),
                json!({"address": {"channel": "pigeon"}}),
                json!({"address": {"channel": 5}}),
                json!({"address": {"channel": {"token": "secret"}}}),
            ],
        )
        .set(
            "a fallback that the class never uses",
            "to.fallback",
            json!([{"channel": "webhook", "url": "https://b.example"}]),
        )
        .set("a fallback that is no list", "to.fallback", "adr_0001")
        .set("an unknown field", "titel", "x")
        .raw("a field twice", "{\"", "{\"ttl_s\":1,\"ttl_s\":2,\"")
        .raw("a field of the content twice", "\"title\":", "\"title\":\"a\",\"title\":")
        .raw(
            "a field of the address twice",
            "\"channel\":",
            "\"url\":\"https://a.example\",\"channel\":",
        )
        .raw("half a character", "Shipped", "\\ud83d")
        .raw("half a character in a name", "\"title\"", "\"titl\\ud83d\"")
        .raw("a bare control character", "Shipped", "Ship\u{1}ped")
        .raw("a message in a list", "{\"", "[{\"")
        .raw("something behind it", "{\"content\"", "{} {\"content\"")
        .raw("deep data", "{\"order\":91}", &format!("{}{}", "[".repeat(70), "]".repeat(70)));
    check("message", table).await;
}

#[tokio::test]
async fn a_list_for_a_body_and_what_is_no_text_at_all_are_refused() {
    let server = ServerFixture::start().await;
    let good = message().to_string();
    for body in [
        format!("[{good}]").into_bytes(),
        b"".to_vec(),
        b"null".to_vec(),
        b"\"x\"".to_vec(),
        b"\xff\xfe{}".to_vec(),
        good.replace("Shipped", "Ship\u{e9}")
            .into_bytes()
            .into_iter()
            .filter(|b| *b != 0xc3)
            .collect(),
        good.as_bytes()[..good.len() - 1].to_vec(),
        format!("{good}}}").into_bytes(),
    ] {
        let reply = server.post(body.clone()).await;
        let text = String::from_utf8_lossy(&body);
        assert!(matches!(reply.status, 400 | 422), "{text}: {}", reply.body);
        assert_eq!(reply.content_type, "application/problem+json");
    }
}

/// Whoever reads by recursion would run out of stack: the server must neither crash nor take it in.
#[tokio::test]
async fn json_of_a_hundred_thousand_levels_is_refused_everywhere() {
    let server = ServerFixture::with("[server]\nbody_bytes_max = 4194304\n").await;
    let deep = format!("{}1{}", "[".repeat(400_000), "]".repeat(400_000));
    let nested = format!("{}1{}", "{\"a\":".repeat(200_000), "}".repeat(200_000));
    let good = message().to_string();
    for deep in [&deep, &nested] {
        for (from, to) in [
            ("\"Shipped\"", format!("\"x\",\"data\":{deep}")),
            ("\"Shipped\"", deep.clone()),
            ("\"Shipped\"", format!("\"x\",\"webhook\":{{\"payload\":{deep}}}")),
            ("\"https://example.com/hook\"", deep.clone()),
            ("\"webhook\"", deep.clone()),
            ("{\"content\"", format!("{{\"tags\":{deep},\"content\"")),
            ("{\"content\"", format!("{{\"retry\":{deep},\"content\"")),
            ("{\"content\"", format!("{{\"unknown\":{deep},\"content\"")),
        ] {
            assert!(good.contains(from), "{from} in {good}");
            let reply = server.post(good.replacen(from, &to, 1)).await;
            let short: String = to.chars().take(40).collect();
            assert!(matches!(reply.status, 400 | 422), "{short}: {}", reply.body);
            let told = reply.body.to_string();
            assert!(told.len() < 1_000, "{short}: told {} bytes", told.len());
        }
        assert!(matches!(server.post(deep.clone()).await.status, 400 | 422));
        for path in ["/v1/addresses", "/v1/keys", "/v1/dead-letters/replay"] {
            let reply = reply(&server.admin(), Method::POST, path, deep.clone()).await;
            assert!(matches!(reply.status, 400 | 422), "{path}");
        }
    }
    assert_eq!(server.post(good).await.status, 202, "still there");
}

#[tokio::test]
async fn a_message_that_no_disk_should_hold_is_refused_unread() {
    let server = ServerFixture::start().await;
    let mut large = message();
    large["content"]["body"] = "x".repeat(1 << 20).into();
    let reply = server.post(large.to_string()).await;
    assert_eq!((reply.status, &reply.body["title"]), (413, &json!("The body is too large")));
    let batch = format!("{large}\n{}\n", message());
    let client = server.admin();
    let whole = postrider::client::whole(batch.into());
    let sent = client.send(Method::POST, "/v1/messages/batch", "application/x-ndjson", whole).await;
    let bytes = http_body_util::BodyExt::collect(sent.unwrap().into_body()).await.unwrap();
    let text = String::from_utf8(bytes.to_bytes().to_vec()).unwrap();
    let statuses: Vec<Value> =
        text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["status"].clone()).collect();
    assert_eq!(statuses, [413, 202]);
}

//! Servers: webhooks, and plain HTTP requests.

use serde_json::{Value, json};

use super::{Table, check};

/// URLs that nobody may be sent to.
const URLS: [&str; 19] = [
    "",
    "hook",
    "/hook",
    "example.com/hook",
    "http://example.com/hook/secret",
    "ftp://example.com/hook",
    "javascript:alert(1)",
    "https://",
    "https://user:password@example.com/hook",
    "https://token@example.com/hook",
    "https://example.com/hook#fragment",
    "https://127.0.0.1/hook",
    "https://[::ffff:10.0.0.1]/hook",
    "https://2130706433/hook",
    "https://metadata.google.internal/hook",
    "https://example.com/ho ok",
    "https://example.com/hook\r\nHost: evil.example",
    "https://exa%6dple.com/hook",
    "https://bücher.example/hook",
];

#[tokio::test]
async fn what_no_webhook_can_be_is_refused_at_the_gate() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let address =
        json!({"channel": "webhook", "url": "https://example.com/hook", "secrets": [secret]});
    let table = Table::new(address, json!({"title": "Shipped"}))
        .each("to.address.url", &URLS)
        .set(
            "a URL too long",
            "to.address.url",
            format!("https://example.com/{}", "x".repeat(2048)),
        )
        .each("to.address.url", &[json!(1), json!(null), json!({})])
        .without("to.address.url")
        .each(
            "to.address.secrets",
            &[json!(secret), json!([1]), json!([secret, "MfKQ9r8GKYqrTwjUPD8"])],
        )
        .each("to.address.secrets", &[json!(["whsec_%%%"]), json!(["whsec_AAAA"]), json!([""])])
        .set("four secrets", "to.address.secrets", json!([secret, secret, secret, secret]))
        .set("unknown field of the address", "to.address.secret", secret)
        .set("unknown field beside the payload", "content.webhook.body", "x")
        .set("the webhook as a text", "content.webhook", "x");
    check("webhook", table).await;
}

#[tokio::test]
async fn what_no_request_can_be_is_refused_at_the_gate() {
    let address = json!({"channel": "http", "method": "PUT", "url": "https://example.com/orders/91",
        "headers": {"x-source": "shop"}});
    let many: serde_json::Map<_, Value> = (0..65).map(|n| (format!("x-{n}"), json!("v"))).collect();
    let table = Table::new(address, json!({"http": {"body": {"paid": true}}}))
        .each("to.address.url", &URLS)
        .each("to.address.method", &["", "CONNECT", "trace", "GET /x HTTP/1.1\r\nHost: y", "PÜT"])
        .set("a method that is no text", "to.address.method", 1)
        .set("a method too long", "to.address.method", "M".repeat(33))
        .each("to.address.headers", &[
            json!({"Host": "evil.example"}),
            json!({"Content-Length": "5"}),
            json!({"Transfer-Encoding": "chunked"}),
            json!({"Connection": "close"}),
            json!({"TE": "trailers", "Upgrade": "h2c", "Expect": "100-continue"}),
            json!({"Keep-Alive": "x", "Trailer": "x", "Proxy-Connection": "x", "HTTP2-Settings": "x"}),
            json!({"x-a": "1\r\nx-evil: 2"}),
            json!({"x-a\r\nx-evil": "2"}),
            json!({"x-a": "nul\u{0}"}),
            json!({"x-a": "bell\u{7}"}),
            json!({":path": "/"}),
            json!({"": "x"}),
            json!({"x a": "x"}),
            json!({"X-A": "1", "x-a": "2"}),
            json!({"x-a": 5}),
            json!({"x-a": ["1", "2"]}),
            json!("x-a: 1"),
            json!([["x-a", "1"]]),
        ])
        .each("to.address.headers", &[
            json!({"Authorization": "Bearer secret-of-the-shop"}),
            json!({"Cookie": "session=secret-of-the-shop"}),
            json!({"X-Api-Key": "secret-of-the-shop"}),
            json!({"Proxy-Authorization": "Basic c2VjcmV0"}),
        ])
        .set("65 headers", "to.address.headers", many)
        .set("headers of more than 8 KiB", "to.address.headers", json!({"x-a": "v".repeat(8192)}))
        .each("to.address.credential", &["Bearer secret-of-the-shop", "env:", "file:", "env:A B", "vault:x"])
        .set("a credential that is no text", "to.address.credential", 1)
        .without("to.address.url")
        .set("unknown field of the address", "to.address.body", "x")
        .set("unknown field beside the body", "content.http.headers", json!({}));
    check("http", table).await;
}

//! Receipts from end to end: the URL is taken out of a push that the fake push service decrypted, as a service worker
//! takes it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_sandbox::ReceiverRequest;
use serde_json::{Value, json};

use super::fixture::{ChannelsFixture, state};

const PUBLIC: &str = "https://push.example/base";
const SETTINGS: &str = "\n[server]\npublic_url = \"https://push.example/base/\"\n";

/// A server that knows its public URL, and a browser.
struct ReceiptFixture {
    channels: ChannelsFixture,
    address: Value,
}

/// What the server answered to a receipt.
struct ReceiptReply {
    status: u16,
    head: String,
}

impl ReceiptFixture {
    fn with(settings: &str) -> Self {
        let channels = ChannelsFixture::with_settings(settings);
        let address = channels.subscription(&json!({}));
        Self { channels, address }
    }

    /// A delivery that its push service accepted, and what the browser got.
    fn sent(&self, content: Value) -> (String, Value) {
        let message = json!({"to": {"address": self.address}, "content": content});
        let id = self.channels.send(&message);
        assert_eq!(state(&self.channels.ended(&id)), "sent");
        let receiver = self.address["endpoint"].as_str().unwrap().rsplit('/').next().unwrap();
        let push = self.channels.last(&format!("push/{receiver}"));
        let body = push["body"].as_str().unwrap();
        (id, serde_json::from_str(body).unwrap_or_else(|_| json!(body)))
    }

    /// The same, and the path for its receipts.
    fn sent_with_path(&self) -> (String, String) {
        let (id, push) = self.sent(json!({"title": "Shipped"}));
        let url = push["receipt"].as_str().expect("a URL for receipts");
        let path = url.strip_prefix(PUBLIC).expect("the public URL").to_owned();
        assert!(path.starts_with("/v1/receipts/"), "{path}");
        (id, path)
    }

    /// Sends a receipt as a browser does: without a key.
    fn report(&self, path: &str, content_type: &str, body: &str) -> ReceiptReply {
        self.post(
            path,
            &format!("origin: https://shop.example\r\ncontent-type: {content_type}"),
            body,
        )
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> ReceiptReply {
        let mut stream = TcpStream::connect(self.channels.server_at()).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: push.example\r\nconnection: close\r\n{headers}\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let head = answer.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        ReceiptReply { status, head }
    }

    /// The status of a receipt of this event.
    fn tell(&self, path: &str, event: &str) -> u16 {
        let reply =
            self.report(path, "text/plain;charset=UTF-8", &json!({"event": event}).to_string());
        assert!(reply.head.contains("access-control-allow-origin: *"), "{}", reply.head);
        reply.status
    }

    fn delivery(&self, id: &str) -> Value {
        self.channels.api("GET", &format!("/v1/deliveries/{id}"), &Value::Null)
    }

    /// A line of the metrics that begins so.
    fn metric(&self, begin: &str) -> Option<String> {
        let metrics = self.channels.try_api("GET", "/metrics", &Value::Null).body;
        metrics.lines().find_map(|line| line.strip_prefix(begin)).map(|n| n.trim().to_owned())
    }
}

#[test]
fn a_push_that_is_displayed_and_clicked_makes_its_delivery_seen_and_clicked() {
    let fixture = ReceiptFixture::with(SETTINGS);
    fixture.channels.api(
        "POST",
        "/v1/event-subscriptions",
        &json!({"name": "reader", "events": {"types": ["delivery.*"]}}),
    );
    let (id, path) = fixture.sent_with_path();
    assert_eq!(fixture.tell(&path, "displayed"), 204);
    let seen = fixture.delivery(&id);
    assert_eq!((state(&seen), &seen["receipts"][0]["event"]), ("seen", &json!("displayed")));
    assert_eq!(seen["log"].as_array().unwrap().len(), 1, "no attempt");
    for event in ["displayed", "clicked", "displayed", "late", "dismissed"] {
        assert_eq!(fixture.tell(&path, event), 204, "{event}");
    }
    let clicked = fixture.delivery(&id);
    let events: Vec<_> =
        clicked["receipts"].as_array().unwrap().iter().map(|r| &r["event"]).collect();
    assert_eq!(state(&clicked), "clicked", "nothing goes back");
    assert_eq!(events, ["displayed", "clicked", "late", "dismissed"], "each once");
    let listed = fixture.channels.api("GET", "/v1/deliveries?state=clicked", &Value::Null);
    assert_eq!(listed["items"][0]["id"], json!(id));
    let stats = fixture.channels.api("GET", "/v1/stats", &Value::Null);
    assert_eq!(
        (&stats["states"]["clicked"], &stats["states"]["sent"]),
        (&json!(1), &Value::Null),
        "{stats:#}"
    );
    let logged = fixture.channels.api("GET", "/v1/events?after=start", &Value::Null);
    let types: Vec<_> = logged["events"].as_array().unwrap().iter().map(|e| &e["type"]).collect();
    assert_eq!(types, ["delivery.sent", "delivery.seen", "delivery.clicked"]);
    let count = |event: &str| {
        let labels = format!("postrider_receipts_total{{channel=\"webpush\",outcome=\"{event}\"}}");
        fixture.metric(&labels).unwrap_or_default()
    };
    assert_eq!(["displayed", "clicked", "late", "dismissed"].map(count), ["1", "1", "1", "1"]);
    let repeated = fixture.metric("postrider_receipts_not_recorded_total{outcome=\"repeated\"}");
    assert_eq!(repeated.as_deref(), Some("2"));
    let finished = "postrider_finished_total{channel=\"webpush\"";
    assert!(
        fixture.metric(finished).unwrap().ends_with("outcome=\"sent\"} 1"),
        "accepted stays accepted"
    );
}

#[test]
fn what_is_no_receipt_of_ours_is_refused_and_changes_nothing() {
    let fixture = ReceiptFixture::with(SETTINGS);
    let (id, path) = fixture.sent_with_path();
    let (token, displayed) = (path.rsplit('/').next().unwrap(), r#"{"event":"displayed"}"#);
    let turned: String = token.chars().rev().collect();
    let long = "x".repeat(5_000);
    let long_event = format!("{{\"event\":\"{long}\"}}");
    for (path, body, status) in [
        (format!("/v1/receipts/{turned}"), displayed, 404),
        (format!("{path}A"), displayed, 404),
        (path[..path.len() - 1].to_owned(), displayed, 404),
        ("/v1/receipts/x".to_owned(), displayed, 404),
        ("/v1/receipts/%00%ff".to_owned(), displayed, 400),
        (format!("/v1/receipts/{long}"), displayed, 404),
        (path.clone(), "", 400),
        (path.clone(), "{", 400),
        (path.clone(), "[]", 422),
        (path.clone(), "\u{0}", 400),
        (path.clone(), r#"{"event":"sent"}"#, 422),
        (path.clone(), r#"{"event":"bounced"}"#, 422),
        (path.clone(), r#"{"event":7}"#, 422),
        (path.clone(), r#"{"event":"displayed","at":"x"}"#, 422),
        (path.clone(), long_event.as_str(), 413),
    ] {
        let reply = fixture.report(&path, "text/plain", body);
        let shown: String = body.chars().take(40).collect();
        assert_eq!(reply.status, status, "{} {shown}: {}", &path[..path.len().min(90)], reply.head);
    }
    assert_eq!(fixture.report(&path, "application/xml", displayed).status, 415);
    let after = fixture.delivery(&id);
    assert_eq!((state(&after), &after["receipts"]), ("sent", &Value::Null));
    let forged = fixture.metric("postrider_receipts_not_recorded_total{outcome=\"forged\"}");
    assert_eq!(forged.as_deref(), Some("5"));
    let malformed = fixture.metric("postrider_receipts_not_recorded_total{outcome=\"malformed\"}");
    assert_eq!(malformed.as_deref(), Some("10"));
    let audit = fixture.channels.api("GET", "/v1/audit", &Value::Null).to_string();
    assert!(!audit.contains("receipts"), "{audit}");
    assert!(!fixture.channels.log().contains(token), "no token is logged");
    assert_eq!(fixture.tell(&path, "displayed"), 204, "the token still works");
}

#[test]
fn a_time_that_cannot_be_is_replaced() {
    let fixture = ReceiptFixture::with(SETTINGS);
    let (id, path) = fixture.sent_with_path();
    for (event, at) in [("displayed", 1), ("clicked", i64::MAX), ("dismissed", i64::MIN)] {
        let body = json!({"id": id, "event": event, "at": at, "more": [1]}).to_string();
        assert_eq!(fixture.report(&path, "application/json", &body).status, 204);
    }
    for receipt in fixture.delivery(&id)["receipts"].as_array().unwrap() {
        assert_eq!(receipt["at"], receipt["recorded_at"], "{receipt}");
    }
}

#[test]
fn a_push_has_a_url_for_receipts_only_where_it_is_wanted_and_there_is_room() {
    let fixture = ReceiptFixture::with("");
    let (_, push) = fixture.sent(json!({"title": "Shipped"}));
    assert_eq!(push["receipt"], Value::Null, "{push}");
    let fixture = ReceiptFixture::with(SETTINGS);
    let (_, push) = fixture.sent(json!({"webpush": {"raw": "own text"}}));
    assert_eq!(push, "own text");
    let length = |title: usize| {
        let content = json!({"title": "x".repeat(title)});
        let message = json!({"to": {"address": fixture.address}, "content": content});
        fixture.channels.try_api("POST", "/v1/messages", &message)
    };
    let (_, push) = fixture.sent(json!({"title": "x"}));
    let room = 3993 - push.to_string().len() + 1;
    assert_eq!(length(room).status, 202);
    let refused = length(room + 1);
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.contains("3994 bytes"), "{}", refused.body);
}

#[test]
fn one_source_that_sends_too_many_receipts_is_refused_and_deliveries_go_on() {
    let limits = "[receipts]\naddress_per_s = 1\naddress_burst = 30\n";
    let fixture = ReceiptFixture::with(&format!("{SETTINGS}{limits}"));
    let (_, path) = fixture.sent_with_path();
    let forged = format!("{path}A");
    let statuses: Vec<u16> = (0..200).map(|_| fixture.tell(&forged, "displayed")).collect();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!(statuses[..30].iter().all(|status| *status == 404) && refused >= 150, "{statuses:?}");
    let reply = fixture.report(&path, "text/plain", r#"{"event":"displayed"}"#);
    assert!(reply.status == 429 && reply.head.contains("retry-after: "), "{}", reply.head);
    let limited = fixture.metric("postrider_receipts_not_recorded_total{outcome=\"limited\"}");
    assert_eq!(limited, Some((refused + 1).to_string()));
    fixture.sent(json!({"title": "Next"}));
}

/// What Twilio posts, with its signature by this auth token.
fn signed(url: &str, fields: &[(&str, &str)], token: &str) -> (String, String) {
    let mut sorted = fields.to_vec();
    sorted.sort_unstable();
    let text: String =
        sorted.iter().fold(url.to_owned(), |text, (name, value)| text + name + value);
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, token.as_bytes());
    let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let kind = "content-type: application/x-www-form-urlencoded";
    (format!("{kind}\r\nx-twilio-signature: {signature}"), body)
}

#[test]
fn what_twilio_reports_about_a_text_message_is_verified_and_recorded() {
    let fixture = ReceiptFixture::with(SETTINGS);
    let mut samples = fixture.channels.samples(|_| ReceiverRequest::default());
    samples.retain(|sample| sample.channel == "sms");
    let phone = &samples[0].receiver;
    let sent = || {
        let content = json!({"title": "Shipped"});
        let id =
            fixture.channels.send(&json!({"to": {"address": phone.address}, "content": content}));
        assert_eq!(state(&fixture.channels.ended(&id)), "sent");
        let form = fixture.channels.last(&phone.path())["body"].as_str().unwrap().to_owned();
        let mut form = url::form_urlencoded::parse(form.as_bytes()).into_owned();
        let url = form.find(|(name, _)| name == "StatusCallback").unwrap().1;
        assert!(url.starts_with(&format!("{PUBLIC}/v1/callbacks/phone/")), "{url}");
        (id, url)
    };
    let tell = |url: &str, fields: &[(&str, &str)], token: &str| {
        let (headers, body) = signed(url, fields, token);
        fixture.post(url.strip_prefix(PUBLIC).unwrap(), &headers, &body).status
    };
    let (id, url) = sent();
    let status = |status| [("MessageSid", "SM1"), ("MessageStatus", status)];
    assert_eq!(tell(&url, &status("delivered"), "another"), 404, "not signed by Twilio");
    assert_eq!(state(&fixture.delivery(&id)), "sent");
    for status in ["queued", "sent", "delivered", "sent", "delivered"].map(status) {
        assert_eq!(tell(&url, &status, "demo"), 204);
    }
    let delivered = fixture.delivery(&id);
    assert_eq!(
        (state(&delivered), delivered["receipts"].as_array().unwrap().len()),
        ("delivered", 1)
    );
    assert_eq!(tell(&url, &[("MessageSid", "SM1")], "demo"), 422);
    let other = url.replace("/phone/", "/nobody/");
    assert_eq!(tell(&other, &status("delivered"), "demo"), 404);
    let (id, url) = sent();
    let stopped = [("MessageStatus", "failed"), ("ErrorCode", "21610")];
    assert_eq!(tell(&url, &stopped, "demo"), 204);
    assert_eq!(fixture.delivery(&id)["receipts"][0]["event"], "undelivered");
    let suppressed = fixture.channels.api("GET", "/v1/suppressions", &Value::Null);
    assert_eq!(suppressed["items"][0]["complaint"]["source"], "provider", "{suppressed:#}");
    let next = json!({"to": {"address": phone.address}, "content": {"title": "Again"}});
    let next = fixture.channels.ended(&fixture.channels.send(&next));
    assert_eq!(state(&next), "suppressed", "who said STOP gets nothing more");
}

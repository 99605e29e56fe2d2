//! One message per channel, all eight, to addresses that are written into the message: each arrives once and says
//! how long it lives in its provider's own field. `cargo xtask prove channels` prints the table.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::town::{Town, state};

const TTL_S: i64 = 600;
const ANDROID: &str = "dQw4w9WgXcQ:APA91bHun4MxP5egoKMwt2KZFBaFUH";
const APPLE: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";
const SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// How a channel says how long a message lives.
struct Sent {
    channel: &'static str,
    /// The sandbox's receiver, as `/sandbox/last/…` knows it.
    receiver: String,
    address: Value,
    field: &'static str,
    /// From the request that arrived.
    value: fn(&Value) -> Option<String>,
    /// The seconds that are left by that value, at this time.
    left_s: fn(&str, i64) -> Option<i64>,
}

#[test]
fn one_message_per_channel_arrives_once_with_its_ttl_in_the_provider_s_own_field() {
    let town = Town::new();
    town.sandbox("PUT", "/sandbox/hooks/orders", &json!({ "secret": SECRET }));
    let channels = channels(&town);
    assert_eq!(channels.len(), 8);
    let ids: Vec<String> = channels.iter().map(|sent| town.send(&message(&sent.address))).collect();
    println!("{:<8} {:<28} value", "channel", "TTL field");
    for (sent, id) in channels.iter().zip(&ids) {
        let delivery = town.ended(id);
        assert_eq!(state(&delivery), "sent", "{}: {delivery:#}", sent.channel);
        assert_eq!(delivery["attempts"], 1, "{}: {delivery:#}", sent.channel);
        let arrived = town.last(&sent.receiver);
        let Some(value) = (sent.value)(&arrived) else {
            assert_eq!(sent.channel, "chat", "{arrived:#}");
            println!("{:<8} {:<28} –", sent.channel, sent.field);
            continue;
        };
        let left = (sent.left_s)(&value, now_s());
        println!("{:<8} {:<28} {value}", sent.channel, sent.field);
        assert!(
            left.is_some_and(|left| (TTL_S - 10..=TTL_S).contains(&left)),
            "{} {}: {value}",
            sent.channel,
            sent.field
        );
    }
    let received = town.received();
    for kind in ["push", "fcm", "apns", "email", "sms", "hook", "http", "chat"] {
        assert_eq!(received["by_kind"][kind], 1, "{kind}: {received:#}");
    }
    assert_eq!((&received["accepted"], &received["distinct"]), (&json!(8), &json!(8)));
    assert_eq!((&received["duplicates"], &received["unverified"]), (&json!(0), &json!(0)));
}

fn message(address: &Value) -> Value {
    json!({"to": {"address": address}, "ttl_s": TTL_S, "content": {"title": "Shipped", "body": "Order 91"}})
}

fn channels(town: &Town) -> Vec<Sent> {
    let push = town.subscription(&json!({}));
    let id = push["endpoint"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let url = |path: &str| format!("{}{path}", town.https);
    let sent = |channel, receiver: &str, address, field, value, left_s| Sent {
        channel,
        receiver: receiver.to_owned(),
        address,
        field,
        value,
        left_s,
    };
    let hook = json!({"channel": "webhook", "url": url("/hook/orders"), "secrets": [SECRET]});
    let http = json!({"channel": "http", "method": "POST", "url": url("/http/orders")});
    let apple = json!({"channel": "apns", "token": APPLE, "topic": "com.example.app"});
    vec![
        sent("webpush", &format!("push/{id}"), push, "TTL", |r| header(r, "ttl"), seconds),
        sent(
            "fcm",
            &format!("fcm/{ANDROID}"),
            json!({"channel": "fcm", "token": ANDROID}),
            "message.android.ttl",
            fcm_ttl,
            seconds,
        ),
        sent(
            "apns",
            &format!("apns/{APPLE}"),
            apple,
            "apns-expiration",
            |r| header(r, "apns-expiration"),
            moment,
        ),
        sent(
            "email",
            "email/ada@example.org",
            json!({"channel": "email", "email": "ada@example.org"}),
            "MAIL FROM … BY= (DELIVERBY)",
            |r| header(r, "deliver-by"),
            seconds,
        ),
        sent(
            "sms",
            "sms/+4915112345678",
            json!({"channel": "sms", "phone": "+4915112345678"}),
            "ValidityPeriod",
            validity,
            seconds,
        ),
        sent(
            "webhook",
            "hook/orders",
            hook,
            "postrider-expires",
            |r| header(r, "postrider-expires"),
            moment,
        ),
        sent(
            "http",
            "http/orders",
            http,
            "postrider-expires",
            |r| header(r, "postrider-expires"),
            moment,
        ),
        sent(
            "chat",
            "chat/slack.orders",
            json!({"channel": "chat", "url": url("/slack/orders")}),
            "none",
            |_| None,
            seconds,
        ),
    ]
}

fn header(request: &Value, name: &str) -> Option<String> {
    request["headers"][name].as_str().map(str::to_owned)
}

fn fcm_ttl(request: &Value) -> Option<String> {
    let body: Value = serde_json::from_str(request["body"].as_str()?).ok()?;
    body["message"]["android"]["ttl"].as_str().map(str::to_owned)
}

fn validity(request: &Value) -> Option<String> {
    let mut fields = request["body"].as_str()?.split('&').filter_map(|pair| pair.split_once('='));
    fields.find(|(name, _)| *name == "ValidityPeriod").map(|(_, value)| value.to_owned())
}

/// `600`, `600s` or `600;R`.
fn seconds(value: &str, _now_s: i64) -> Option<i64> {
    value.trim_end_matches(";R").trim_end_matches('s').parse().ok()
}

/// Seconds since 1970.
fn moment(value: &str, now_s: i64) -> Option<i64> {
    Some(value.parse::<i64>().ok()? - now_s)
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

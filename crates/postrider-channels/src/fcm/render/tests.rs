//! What a message becomes for FCM.

use std::sync::Arc;

use postrider_core::model::message::Envelope;
use postrider_core::{Class, DeliveryId, Message, MessageId, TenantId};

use super::*;
use crate::fcm::FcmTarget;
use crate::target::ChannelTarget;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn read(text: &str) -> Result<Map<String, Value>, Vec<FieldError>> {
    let content = Content::parse(text).unwrap();
    draft(&content, &FcmContent::of(&content).unwrap())
}

fn attempt(ttl_s: u32, class: Class) -> Attempt {
    let expires_at = ttl::expires_at(NOW, None, ttl_s, ttl::DISPATCH_WINDOW);
    let message = Message {
        id: MessageId(7),
        tenant: TenantId::new("acme"),
        class: class.name.clone(),
        created_at: NOW,
        expires_at,
        ttl_s,
        envelope: Envelope { collapse_key: Some("ord-91".into()), ..Envelope::default() },
        content: "{}".into(),
    };
    let device = FcmDevice::Token("t".into());
    Attempt {
        delivery: DeliveryId(9),
        message: Arc::new(message),
        class: Arc::new(class),
        target: Arc::new(FcmTarget { device, project: None }.to_target()),
        number: 1,
        now: NOW,
        expires_at,
        is_one_shot: ttl_s == 0,
        address_since: None,
        resign: false,
        replays: 0,
        account: None,
        span: None,
        slot: 0,
    }
}

fn sent(text: &str, attempt: &Attempt, now: Timestamp) -> Value {
    let device = FcmDevice::Token("t0ken".into());
    let body = finish(read(text).unwrap(), &device, attempt, now);
    serde_json::from_str::<Value>(&body).unwrap()["message"].take()
}

#[test]
fn a_message_says_the_same_to_android_apple_and_the_web() {
    let attempt = attempt(3600, Class::default());
    let later = NOW + Duration::from_millis(600_500);
    let text = r#"{"title":"a","body":"b","url":"https://x.example","data":{"n":1,"s":"t"}}"#;
    let expected = json!({
        "token": "t0ken",
        "notification": {"title": "a", "body": "b"},
        "data": {"n": "1", "s": "t", "url": "https://x.example"},
        "android": {"ttl": "2999s", "priority": "NORMAL", "collapseKey": "ord-91"},
        "apns": {"headers": {
            "apns-expiration": "1800003600", "apns-priority": "10", "apns-push-type": "alert",
            "apns-collapse-id": "ord-91",
        }},
        "webpush": {
            "headers": {"TTL": "2999", "Urgency": "normal",
                "Topic": topic(&TenantId::new("acme"), "ord-91")},
            "fcmOptions": {"link": "https://x.example"},
        },
    });
    assert_eq!(sent(text, &attempt, later), expected);
}

#[test]
fn now_or_never_is_0_for_everybody() {
    let message = sent(r#"{"title":"a"}"#, &attempt(0, Class::default()), NOW);
    assert_eq!(message["android"]["ttl"], "0s");
    assert_eq!(message["apns"]["headers"]["apns-expiration"], "0");
    assert_eq!(message["webpush"]["headers"]["TTL"], "0");
}

#[test]
fn data_alone_to_apple_is_a_background_push_of_priority_5() {
    let message = sent(r#"{"data":{"a":"b"}}"#, &attempt(60, Class::default()), NOW);
    assert_eq!(message["apns"]["headers"]["apns-priority"], "5");
    assert_eq!(message["apns"]["headers"]["apns-push-type"], "background");
    assert_eq!(message["apns"]["payload"]["aps"]["content-available"], 1);
}

#[test]
fn an_urgent_class_is_sent_with_high_priority() {
    let class = Class { urgency: Urgency::High, ..Class::default() };
    assert_eq!(sent(r#"{"title":"a"}"#, &attempt(60, class), NOW)["android"]["priority"], "HIGH");
}

#[test]
fn a_message_of_its_own_wins_but_lives_no_longer_than_what_is_left() {
    let own = r#"{"fcm":{"message":{"data":{"k":"v"},"android":{"ttl":"9999s","priority":"HIGH","collapse_key":"mine"}}}}"#;
    let android = sent(own, &attempt(60, Class::default()), NOW)["android"].take();
    assert_eq!(android, json!({"ttl": "60s", "priority": "HIGH", "collapse_key": "mine"}));
    let own = r#"{"fcm":{"message":{"apns":{"headers":{"APNS-Expiration":"9999999999"}},
                  "webpush":{"headers":{"ttl":"9999"}}}}}"#;
    let message = sent(own, &attempt(60, Class::default()), NOW);
    assert_eq!(message["webpush"]["headers"]["TTL"], "60", "{message}");
    assert_eq!(message["webpush"]["headers"].get("ttl"), None);
    let end = (NOW.0 / 1_000 + 60).to_string();
    assert_eq!(message["apns"]["headers"]["apns-expiration"], end, "{message}");
    let short = r#"{"fcm":{"message":{"webpush":{"headers":{"TTL":"5"}}}}}"#;
    let message = sent(short, &attempt(60, Class::default()), NOW);
    assert_eq!(message["webpush"]["headers"]["TTL"], "5", "{message}");
    let short = r#"{"fcm":{"message":{"android":{"ttl":"3.5s"}}}}"#;
    assert_eq!(sent(short, &attempt(60, Class::default()), NOW)["android"]["ttl"], "3s");
}

#[test]
fn what_fcm_would_refuse_is_refused_with_its_field() {
    let fields = |text: &str| -> Vec<String> {
        read(text).unwrap_err().into_iter().map(|error| error.field).collect()
    };
    assert_eq!(fields(r#"{"fcm":{"message":{"data":{"n":1}}}}"#), ["fcm.message.data.n"]);
    for name in ["from", "message_type", "google.x", "gcm.y"] {
        let text = format!(r#"{{"data":{{"{name}":"x"}}}}"#);
        assert_eq!(fields(&text), [format!("data.{name}")]);
    }
    for target in ["token", "fid", "topic", "condition"] {
        let text = format!(r#"{{"fcm":{{"message":{{"{target}":"x"}}}}}}"#);
        assert_eq!(fields(&text), [format!("fcm.message.{target}")]);
    }
    assert_eq!(fields(r#"{"fcm":{"message":[]}}"#), ["fcm.message"]);
    assert_eq!(fields(r#"{"fcm":{"message":{"android":1}}}"#), ["fcm.message.android"]);
}

#[test]
fn keys_and_values_may_have_4096_bytes_together() {
    let sized = |len: usize| read(&format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(len - 1)));
    assert!(sized(4096).is_ok());
    assert_eq!(sized(4097).unwrap_err()[0].found, "4097 bytes");
}

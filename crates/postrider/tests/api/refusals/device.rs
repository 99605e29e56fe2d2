//! Devices: FCM, APNs, and browsers by Web Push.

use serde_json::{Value, json};

use super::{Table, check};

const DEVICE: &str = "dQw4w9WgXcQ:APA91bHun4MxP5egoKMwt2KZFBaFUH";
const APPLE: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";
const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

fn x(len: usize) -> String {
    "x".repeat(len)
}

#[tokio::test]
async fn what_fcm_would_refuse_is_refused_at_the_gate() {
    let message = "content.fcm.message";
    let at = |place: &str| format!("{message}.{place}");
    let table = Table::new(json!({"channel": "fcm", "token": DEVICE}), json!({"title": "Hi"}))
        .each("to.address.token", &["", "short", "a token of words", "tok\nen-with-a-break"])
        .each("to.address.token", &[json!(17), json!(null), json!([DEVICE])])
        .set("a token too long", "to.address.token", x(4097))
        .set("a token in another script", "to.address.token", "тест-тест-тест-тест")
        .set("token and fid", "to.address.fid", "cXZ1b3R4cXZ1b3R4cXZ1b3")
        .without("to.address.token")
        .each("to.address.project", &["", "My Project", "../../other"])
        .set("unknown field of the address", "to.address.tocken", "x")
        .each(
            "content.data",
            &[
                json!({"from": "x"}),
                json!({"message_type": "x"}),
                json!({"google.sent": "x"}),
                json!({"gcm.y": "x", "collapse_key": "y"}),
                json!({"": "x"}),
            ],
        )
        .set("more than 4096 bytes", "content.data", json!({"k": x(4096)}))
        .set("a body of more than 4096 bytes", "content.body", x(4097))
        .each(message, &[json!("x"), json!([]), json!(7)])
        .each(message, &[json!({"token": DEVICE}), json!({"topic": "news"}), json!({"fid": "x"})])
        .each(message, &[json!({"condition": "'a' in topics"}), json!({"titel": "x"})])
        .each(&at("data"), &[json!({"n": 1}), json!({"n": {"m": "x"}}), json!({"from": "x"})])
        .each(&at("data"), &[json!([1]), json!("x")])
        .each(&at("notification"), &[json!("x"), json!({"titel": "x"}), json!({"title": 5})])
        .each(&at("android"), &[json!(1), json!({"prio": "HIGH"})])
        .each(&at("android.ttl"), &[json!(3600), json!("3600"), json!("-1s"), json!("2419201s")])
        .each(&at("android.ttl"), &[json!("1e999s"), json!("NaNs"), json!("s"), json!("")])
        .each(&at("android.priority"), &[json!("urgent"), json!(10)])
        .set("android data that is no text", &at("android.data"), json!({"n": 1}))
        .set("collapse key that is no text", &at("android.collapseKey"), 1)
        .each(&at("apns"), &[json!([]), json!({"payload": "x"}), json!({"header": {}})])
        .each(&at("apns.headers"), &[json!({"apns-priority": 5}), json!({"x": "a\r\nb: c"})])
        .each(&at("webpush.headers"), &[json!("TTL"), json!({"TTL": 60})])
        .set(
            "a link that is not https",
            &at("webpush.fcmOptions"),
            json!({"link": "http://x.example"}),
        )
        .set("more than 4096 bytes of its own", &at("data"), json!({"k": x(4096)}))
        .set("more than 4096 bytes for Android", &at("android.data"), json!({"k": x(4096)}))
        .set("unknown field beside the message", "content.fcm.messages", json!({}));
    check("fcm", table).await;
}

#[tokio::test]
async fn what_apple_would_refuse_is_refused_at_the_gate() {
    let address = json!({"channel": "apns", "token": APPLE, "topic": "com.example.app"});
    let silent = json!({"aps": {"content-available": 1}});
    let table = Table::new(address, json!({"title": "Hi"}))
        .each("to.address.token", &["", "zz", "00fc1", "00 fc 13", "<00fc13adff785122>"])
        .each("to.address.token", &[json!(17), json!(null)])
        .set("a token too long", "to.address.token", "00".repeat(257))
        .without("to.address.token")
        .without("to.address.topic")
        .each("to.address.topic", &["", "com.example app", "com.example\r\napns-id: 1"])
        .set("a topic too long", "to.address.topic", x(256))
        .each("to.address.environment", &["prod", "Production", "", "development"])
        .set("an environment that is no text", "to.address.environment", true)
        .set("unknown field of the address", "to.address.bundle", "x")
        .each("content.apns.payload", &[json!("x"), json!([]), json!({}), json!({"alert": "x"})])
        .each("content.apns.payload", &[json!({"aps": "x"}), json!({"aps": null})])
        .each("content.apns.push_type", &[json!("shout"), json!(""), json!("Alert"), json!(3)])
        .each("content.apns.push_type", &["background", "mdm"])
        .each("content.apns.priority", &[json!(0), json!(7), json!(300), json!(-1)])
        .each("content.apns.priority", &[json!("10"), json!(5.5)])
        .set("background with priority 10", "content.apns", json!({"payload": silent, "priority": 10}))
        .set("background with priority 1", "content.apns", json!({"payload": silent, "priority": 1}))
        .set(
            "background with an alert",
            "content.apns",
            json!({"payload": {"aps": {"alert": "x", "content-available": 1}}, "push_type": "background"}),
        )
        .set(
            "an alert for MDM",
            "content.apns",
            json!({"payload": {"mdm": "PushMagic"}, "push_type": "alert"}),
        )
        .set("more than 4096 bytes", "content.body", x(4096))
        .set("more than 4096 bytes of its own", "content.apns.payload", json!({"aps": {"alert": x(4096)}}))
        .set(
            "more than 5120 bytes for a call",
            "content.apns",
            json!({"payload": {"aps": {}, "x": x(5120)}, "push_type": "voip"}),
        )
        .set("unknown field beside the payload", "content.apns.topic", "x")
        .set("31 days", "ttl_s", 31 * 86_400);
    check("apns", table).await;
}

fn keys(p256dh: &str, auth: &str) -> Value {
    json!({"p256dh": p256dh, "auth": auth})
}

#[tokio::test]
async fn what_no_push_service_would_take_is_refused_at_the_gate() {
    let endpoint = "https://push.example.com/wpush/v2/secret";
    let address = json!({"channel": "webpush", "endpoint": endpoint, "keys": keys(P256DH, AUTH)});
    let off_curve = P256DH.replacen("xsr7", "xsr8", 1);
    let table = Table::new(address, json!({"title": "Hi"}))
        .each("to.address.endpoint", &["", "push.example.com/x", "http://push.example.com/wpush/x"])
        .each(
            "to.address.endpoint",
            &[
                "https://push.example.com:8443/wpush/x",
                "https://user:pass@push.example.com/wpush/x",
                "https://169.254.169.254/latest/meta-data",
                "https://push.example.com/wpush/x#fragment",
            ],
        )
        .set(
            "an endpoint too long",
            "to.address.endpoint",
            format!("https://push.example.com/{}", x(2048)),
        )
        .set("an endpoint that is no text", "to.address.endpoint", 1)
        .set("a point off the curve", "to.address.keys", keys(&off_curve, AUTH))
        .set(
            "a compressed point",
            "to.address.keys",
            keys("AlVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcx", AUTH),
        )
        .set("a short point", "to.address.keys", keys("BCVxsr7N", AUTH))
        .set("no base64 at all", "to.address.keys", keys("not!base64", AUTH))
        .set("an empty point", "to.address.keys", keys("", AUTH))
        .set("a short auth", "to.address.keys", keys(P256DH, "BTBZMqHH6r4"))
        .set("a long auth", "to.address.keys", keys(P256DH, P256DH))
        .set("keys as a list", "to.address.keys", json!([P256DH, AUTH]))
        .set("keys that are a text", "to.address.keys", P256DH)
        .set("an unknown key", "to.address.keys.p256", P256DH)
        .without("to.address.keys")
        .without("to.address.keys.auth")
        .without("to.address.endpoint")
        .set("an old browser", "to.address.encodings", json!(["aesgcm"]))
        .set("an old browser's choice", "to.address.contentEncoding", "aesgcm")
        .set("encodings that are no list", "to.address.encodings", "aes128gcm")
        .set("a VAPID key that is none", "to.address.vapid_key", "adr_0001")
        .set("an expiration that is no time", "to.address.expirationTime", "soon")
        .set("unknown field of the address", "to.address.p256dh", P256DH)
        .set("3994 bytes of its own", "content.webpush.raw", x(3994))
        .set("too much for one record", "content.body", x(3993))
        .set("raw that is no text", "content.webpush.raw", json!({"title": "x"}))
        .set("unknown field beside raw", "content.webpush.topic", "x")
        .set("29 days", "ttl_s", 29 * 86_400);
    check("webpush", table).await;
}

//! The most common mistakes of senders, tried on the real server: the sandbox has the provider's name and refuses
//! what the real one refuses. Mistakes that need a clock or a broken connection are tried in the channels'
//! conformance tests; docs/channels.md lists all of them.

use std::process::Command;

use serde_json::{Value, json};

use super::fixture::{ChannelsFixture, state};

const APPLE: &str = "web.push.apple.com";
const MICROSOFT: &str = "wns2-par02p.notify.windows.com";
const MOZILLA: &str = "updates.push.services.mozilla.com";

fn to(address: &Value) -> Value {
    json!({"to": {"address": address}, "ttl_s": 600, "content": {"title": "Shipped", "body": "Order 91"}})
}

/// The receiver's name in the sandbox.
fn receiver(address: &Value) -> String {
    format!("push/{}", address["endpoint"].as_str().unwrap().rsplit('/').next().unwrap())
}

/// Sends it and expects that it is taken at the first attempt.
fn taken(fixture: &ChannelsFixture, message: &Value) -> Value {
    let delivery = fixture.ended(&fixture.send(message));
    assert_eq!((state(&delivery), &delivery["attempts"]), ("sent", &json!(1)), "{delivery:#}");
    delivery
}

#[test]
fn mistake_02_apple_gets_a_contact_that_it_accepts_and_a_placeholder_is_refused_at_the_start() {
    let fixture = ChannelsFixture::with_host_name(APPLE);
    taken(&fixture, &to(&fixture.subscription(&json!({"service": "apple"}))));
    assert_eq!(fixture.received()["bad_vapid"], 0);
    let folder = tempfile::tempdir().unwrap();
    for subject in ["mailto:me@localhost", "https://localhost/", "ops@example.com", ""] {
        let file = folder.path().join("postrider.toml");
        std::fs::write(&file, format!("[webpush]\nsubject = \"{subject}\"\n")).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(["serve", "--config", file.to_str().unwrap()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("webpush.subject"), "{subject}: {said}");
    }
}

#[test]
fn mistake_03_old_subscriptions_keep_the_key_that_they_were_made_with() {
    let fixture = ChannelsFixture::new();
    let active = || fixture.api("GET", "/v1/vapid", &Value::Null)["keys"][0]["public_key"].clone();
    let old = fixture.subscription(&json!({"applicationServerKey": active()}));
    let registered = fixture.api("POST", "/v1/addresses", &old)["id"].clone();
    let first = active();
    fixture.api("POST", "/v1/vapid/rotate", &Value::Null);
    assert_ne!(active(), first, "a new key");
    let new = fixture.subscription(&json!({"applicationServerKey": active()}));
    taken(&fixture, &to(&registered));
    taken(&fixture, &to(&new));
    assert_eq!(fixture.received()["bad_vapid"], 0);
    let signed_with = |address: &Value| {
        let request = fixture.last(&receiver(address));
        let header = request["headers"]["authorization"].as_str().unwrap().to_owned();
        header.rsplit_once("k=").unwrap().1.to_owned()
    };
    assert_eq!((json!(signed_with(&old)), json!(signed_with(&new))), (first, active()));
}

#[test]
fn mistake_07_the_ttl_is_always_said_and_fits_microsoft_s_cache_policy() {
    let fixture = ChannelsFixture::with_host_name(MICROSOFT);
    for (ttl_s, policy) in [(0, "no-cache"), (600, "cache")] {
        let address = fixture.subscription(&json!({"service": "wns"}));
        let mut message = to(&address);
        message["ttl_s"] = json!(ttl_s);
        taken(&fixture, &message);
        let headers = &fixture.last(&receiver(&address))["headers"];
        assert_eq!(headers["x-wns-cache-policy"], policy);
        let told: i64 = headers["ttl"].as_str().unwrap().parse().unwrap();
        assert!((ttl_s - 10..=ttl_s).contains(&told) && told >= 0, "{told}");
    }
}

#[test]
fn mistake_09_what_fits_is_padded_within_what_bridges_take_and_what_does_not_is_refused_at_once() {
    let fixture = ChannelsFixture::with_host_name(MOZILLA);
    let length = |plain: usize| {
        let address = fixture.subscription(&json!({"service": "mozilla"}));
        let mut message = to(&address);
        message["content"] = json!({"webpush": {"raw": "x".repeat(plain)}});
        taken(&fixture, &message);
        let request = fixture.last(&receiver(&address));
        assert_eq!(request["body"].as_str().unwrap().len(), plain, "one record, whole");
        request["headers"]["content-length"].as_str().unwrap().parse::<usize>().unwrap()
    };
    const OVERHEAD: usize = 103;
    assert_eq!(length(1), length(200), "short ones look alike");
    assert!(length(2744) <= 2744 + OVERHEAD, "never padded beyond what a bridge takes");
    assert_eq!(length(3993), 4096);
    let mut large = to(&fixture.subscription(&json!({})));
    large["content"] = json!({"webpush": {"raw": "x".repeat(3994)}});
    let refused = fixture.try_api("POST", "/v1/messages", &large);
    assert_eq!(refused.status, 422, "{}", refused.body);
}

#[test]
fn mistake_10_microsoft_s_406_is_throttling_and_waits_as_long_as_it_says() {
    let fixture = ChannelsFixture::with_host_name(MICROSOFT);
    let address = fixture.subscription(&json!({"service": "wns", "script": ["429:900", "ok"]}));
    let mut message = to(&address);
    message["ttl_s"] = json!(3600);
    let is_tried =
        |delivery: &Value| state(delivery) != "sending" && delivery["log"][0].is_object();
    let delivery = fixture.once(&fixture.send(&message), is_tried);
    let attempt = &delivery["log"][0];
    assert_eq!((&attempt["status"], &attempt["code"]), (&json!(406), &json!("channelthrottled")));
    assert_eq!(
        (&attempt["outcome"], &attempt["retry_after"]),
        (&json!("retry_after"), &json!("900"))
    );
    assert_eq!(state(&delivery), "retrying", "{delivery:#}");
    let received = fixture.received();
    assert_eq!((&received["total"], &received["retry_after_violations"]), (&json!(1), &json!(0)));
}

#[test]
fn mistake_12_an_endpoint_that_is_over_is_never_called_again_and_a_dead_one_never_at_all() {
    let fixture = ChannelsFixture::new();
    for status in ["404", "410"] {
        let address = fixture.subscription(&json!({"script": [status]}));
        let delivery = fixture.ended(&fixture.send(&to(&address)));
        assert_eq!(state(&delivery), "gone", "{delivery:#}");
        let calls = fixture.received()["total"].clone();
        let again = fixture.ended(&fixture.send(&to(&address)));
        assert_eq!(state(&again), "gone", "{again:#}");
        assert_eq!(fixture.received()["total"], calls, "{status}: nobody was called");
    }
    let calls = fixture.received()["total"].clone();
    let mut dead = fixture.subscription(&json!({}));
    dead["endpoint"] = json!("https://permanently-removed.invalid/fcm/send/x");
    assert_eq!(state(&fixture.ended(&fixture.send(&to(&dead)))), "gone");
    assert_eq!(fixture.received()["total"], calls);
}

#[test]
fn mistake_13_any_collapse_key_becomes_a_topic_that_apple_accepts() {
    let fixture = ChannelsFixture::with_host_name(APPLE);
    for key in ["new_event", "13-characters", "ä key with spaces that is longer than 32 characters"]
    {
        let address = fixture.subscription(&json!({"service": "apple"}));
        let mut message = to(&address);
        message["collapse_key"] = json!(key);
        taken(&fixture, &message);
        let topic = fixture.last(&receiver(&address))["headers"]["topic"].clone();
        assert_eq!(topic.as_str().map(str::len), Some(32), "{key}");
    }
}

#[test]
fn mistake_15_one_bad_recipient_spoils_neither_the_others_nor_their_connection() {
    let fixture = ChannelsFixture::new();
    let mail = |name: &str| json!({"channel": "email", "email": format!("{name}@example.org")});
    let wish = json!({"script": ["550"], "stage": "rcpt"});
    fixture.sandbox("PUT", "/sandbox/email/nobody@example.org", &wish);
    let names = ["ada", "nobody", "grace"];
    let ids: Vec<_> = names.iter().map(|name| fixture.send(&to(&mail(name)))).collect();
    let states: Vec<_> = ids.iter().map(|id| state(&fixture.ended(id)).to_owned()).collect();
    assert_eq!((states[0].as_str(), states[2].as_str()), ("sent", "sent"));
    assert_ne!(states[1], "sent");
}

#[test]
fn mistake_16_any_public_host_is_taken_and_none_that_leads_inside() {
    let open = ChannelsFixture::strict();
    let mut address = open.subscription(&json!({}));
    address["endpoint"] = json!("https://push.self-hosted.example/up/abc");
    let accepted = open.try_api("POST", "/v1/messages", &to(&address));
    assert_eq!(accepted.status, 202, "no list of allowed hosts: {}", accepted.body);
    for inside in [
        "https://127.0.0.1/x",
        "https://10.0.0.7/x",
        "https://169.254.169.254/latest",
        "https://[::1]/",
    ] {
        address["endpoint"] = json!(inside);
        let refused = open.try_api("POST", "/v1/messages", &to(&address));
        assert_eq!(refused.status, 422, "{inside}: {}", refused.body);
    }
    assert_eq!(open.received()["total"], 0);
}

#[test]
fn mistake_17_what_the_provider_said_is_there_to_be_read() {
    let fixture = ChannelsFixture::with_host_name(MOZILLA);
    let address = fixture.subscription(&json!({"service": "mozilla", "script": ["413"]}));
    let delivery = fixture.ended(&fixture.send(&to(&address)));
    let attempt = &delivery["log"][0];
    assert_eq!((&attempt["status"], &attempt["code"]), (&json!(413), &json!("104")));
    assert!(attempt["detail"].as_str().unwrap().contains("larger than 4096"), "{attempt:#}");
    let id = delivery["id"].as_str().unwrap();
    let why = fixture.api("GET", &format!("/v1/deliveries/{id}/explain"), &Value::Null).to_string();
    assert!(why.contains("larger than 4096"), "{why}");
    let secret = address["endpoint"].as_str().unwrap().rsplit('/').next().unwrap();
    assert!(!why.contains(secret), "the endpoint is nobody's business");
}

/// Not among the mistakes, but of their kind: a mail that went to whoever answered.
#[test]
fn a_relay_whose_certificate_nobody_vouches_for_gets_no_mail() {
    let fixture = ChannelsFixture::without_trust();
    let id = fixture.send(&to(&json!({"channel": "email", "email": "ada@example.org"})));
    let delivery = fixture.once(&id, |delivery| delivery["log"][0].is_object());
    let attempt = &delivery["log"][0];
    assert_eq!(
        (&attempt["outcome"], &attempt["code"]),
        (&json!("config"), &json!("tls")),
        "{attempt:#}"
    );
    assert_eq!(delivery["attempts"], 0, "no attempt is used up");
    assert_eq!(fixture.received()["total"], 0);
}

//! What the rest of the program keeps of each channel: stored addresses, the keys of repeats, and the
//! form of `content`. Versions differ; what is stored stays.

use std::borrow::Cow;
use std::sync::Arc;

use postrider_channels::address::Serves;
use postrider_channels::registry::{content_schema, kinds};
use postrider_channels::{ChannelTarget, NetworkPolicy};
use postrider_channels::{apns, chat, email, fcm, http, ntfy, sms, telegram, webhook, webpush};
use postrider_core::model::content::Content;
use postrider_core::{ChannelIntake, Target};

/// Addresses as version 0.1 stored them, with their locators.
const STORED: [(&str, &str); 9] = [
    (
        r#"{"channel":"webpush","endpoint":"https://push.example/a","p256dh":"p","auth":"a"}"#,
        "https://push.example/a",
    ),
    (
        r#"{"channel":"webhook","url":"https://hook.example/x","secrets":["whsec_a","whsec_b"]}"#,
        "https://hook.example/x",
    ),
    (
        r#"{"channel":"http","method":"PUT","url":"https://api.example/x","headers":{"x-a":"1"},"credential":"env:A"}"#,
        "https://api.example/x",
    ),
    (r#"{"channel":"fcm","device":{"token":"token-1"},"project":"p"}"#, "token-1"),
    (r#"{"channel":"fcm","device":{"fid":"fid-1"}}"#, "fid-1"),
    (
        r#"{"channel":"apns","token":"00ff","topic":"a.b","environment":"sandbox","worked":"production"}"#,
        "00ff",
    ),
    (r#"{"channel":"email","email":"ada@example.org","name":"Ada \"A\" L."}"#, "ada@example.org"),
    (r#"{"channel":"sms","phone":"+4915112345678"}"#, "+4915112345678"),
    (r#"{"channel":"chat","url":"https://chat.example/1"}"#, "https://chat.example/1"),
];

fn reread<'a, T: ChannelTarget<'a>>(target: &'a Target) -> (String, Cow<'a, str>) {
    let fields: T = target.read().expect("a stored address");
    (fields.to_target().as_json().to_owned(), fields.into_locator())
}

#[test]
fn addresses_of_earlier_versions_are_read_and_written_unchanged() {
    for (stored, locator) in STORED {
        let target = Target::from_stored(stored).unwrap();
        let (written, found) = match target.channel() {
            webpush::KIND => reread::<webpush::WebpushTarget<'_>>(&target),
            webhook::KIND => reread::<webhook::WebhookTarget<'_>>(&target),
            http::KIND => reread::<http::HttpTarget<'_>>(&target),
            fcm::KIND => reread::<fcm::FcmTarget<'_>>(&target),
            apns::KIND => reread::<apns::ApnsTarget<'_>>(&target),
            email::KIND => reread::<email::EmailTarget<'_>>(&target),
            sms::KIND => reread::<sms::SmsTarget<'_>>(&target),
            chat::KIND => reread::<chat::ChatTarget<'_>>(&target),
            other => panic!("{other} is not listed here"),
        };
        assert_eq!((&*written, &*found), (stored, locator));
    }
}

/// An intake, an address as it is stored, and what keeps messages apart: the method and the caller's own body.
type RepeatCase = (Box<dyn ChannelIntake>, &'static str, &'static str, Option<&'static str>);

#[test]
fn the_parts_of_a_dedupe_key_stay_the_same() {
    let policy = NetworkPolicy::default();
    let serves: Serves = Arc::new(|_| true);
    let text = r#"{"title":"t","webpush":{"raw":"x"},"webhook":{"payload":1},"http":{"body":2},
        "fcm":{"message":{"a":3}},"apns":{"payload":{"b":4}},"telegram":{"text":"x"},"ntfy":{"message":"x"}}"#;
    let content = Content::parse(text).unwrap();
    let cases: Vec<RepeatCase> = vec![
        (Box::new(webpush::WebpushIntake { policy, receipts: None }), STORED[0].0, "POST", None),
        (Box::new(webhook::WebhookIntake { policy }), STORED[1].0, "POST", Some("1")),
        (
            Box::new(http::HttpIntake {
                policy,
                credentials: std::sync::Arc::new(http::EnvAndFiles::default()),
                names: http::SecretNames::default(),
            }),
            STORED[2].0,
            "PUT",
            Some("2"),
        ),
        (
            Box::new(fcm::FcmIntake { serves: serves.clone() }),
            STORED[3].0,
            "fcm",
            Some(r#"{"a":3}"#),
        ),
        (
            Box::new(apns::ApnsIntake { serves: serves.clone() }),
            STORED[5].0,
            "apns",
            Some(r#"{"b":4}"#),
        ),
        (
            Box::new(telegram::TelegramIntake { serves: serves.clone() }),
            r#"{"channel":"telegram","chat_id":"5"}"#,
            "telegram",
            None,
        ),
        (
            Box::new(ntfy::NtfyIntake { serves }),
            r#"{"channel":"ntfy","topic":"shop"}"#,
            "ntfy",
            None,
        ),
    ];
    for (intake, stored, method, body) in cases {
        let target = Target::from_stored(stored).unwrap();
        assert_eq!(target.channel(), intake.kind());
        assert_eq!(intake.method(&target), method, "{stored}");
        assert_eq!(intake.own_body(&content).map(|raw| raw.get()), body, "{stored}");
    }
}

#[test]
fn a_message_lives_28_days_at_most_and_for_apns_30() {
    const DAY_S: u32 = 24 * 3600;
    assert_eq!(apns::TRAITS.ttl_s_max, 30 * DAY_S);
    for traits in [fcm::TRAITS, webpush::TRAITS, webhook::TRAITS, http::TRAITS] {
        assert_eq!(traits.ttl_s_max, 28 * DAY_S);
    }
}

#[test]
fn what_is_wrong_with_content_is_named_by_field() {
    let wrong = |text: &str| {
        let error = content_schema().read(text).unwrap_err();
        (error.field, error.found, error.allowed)
    };
    let is = |field: &str, found: &str, allowed: &str| {
        (field.to_owned(), found.to_owned(), allowed.to_owned())
    };
    let kinds = kinds();
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    let all = format!("one of title, body, url, data, {}", names.join(", "));
    assert_eq!(wrong(r#"{"titel":"x"}"#), is("titel", "unknown field", &all));
    assert_eq!(wrong(r#"{"email":{"html":["x"]}}"#), is("email.html", "a list", "a string"));
    assert_eq!(wrong(r#"{"email":"secret"}"#), is("email", "a string", "an object"));
    assert_eq!(wrong(r#"{"email":["x"]}"#), is("email", "a list", "an object"));
    assert_eq!(wrong(r#"{"sms":{"text":true}}"#), is("sms.text", "true or false", "a string"));
    assert_eq!(wrong(r#"{"sms":{"txt":"x"}}"#), is("sms.txt", "unknown field", "text"));
    let twice = r#"{"email":{"text":"a","text":"b"}}"#;
    assert_eq!(wrong(twice), is("email.text", "given twice", "given once"));
    let (field, found, _) = wrong(r#"{"apns":{"priority":1e999}}"#);
    assert_eq!((&*field, &*found), ("apns.priority", "number out of range"));
    assert!(content_schema().read(r#"{"email":null,"sms":{"text":"x"}}"#).is_ok());
}

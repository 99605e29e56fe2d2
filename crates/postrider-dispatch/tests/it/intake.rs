//! What the intake takes, and what it answers to the rest.

use postrider_core::ports::store::{DedupKey, Intake as _, Registry};
use postrider_dispatch::{IntakeAnswer, IntakeRefusal, RefusalKind, Submission};

use crate::fixture::DispatchFixture;

async fn admit(
    fixture: &DispatchFixture,
    bodies: &[&str],
) -> Vec<Result<IntakeAnswer, IntakeRefusal>> {
    let submit = |body: &&str| Submission {
        body: (*body).to_owned().into(),
        idempotency_key: None,
        traceparent: None,
    };
    fixture.intake.admit(&fixture.tenant, bodies.iter().map(submit).collect()).await
}

async fn refusal(body: &str) -> IntakeRefusal {
    admit(&DispatchFixture::new(vec![]), &[body]).await.pop().unwrap().expect_err(body)
}

const HOOK: &str = r#""to":{"address":{"channel":"webhook","url":"https://hooks.example/a"}}"#;

#[tokio::test]
async fn a_repeat_gets_the_first_answer_whatever_the_order_of_its_fields() {
    let fixture = DispatchFixture::new(vec![]);
    let first = format!(r#"{{{HOOK},"content":{{"title":"a"}},"idempotency_key":"k"}}"#);
    let again = format!(r#"{{"idempotency_key": "k", "content": {{"title": "a"}}, {HOOK}}}"#);
    let other = format!(r#"{{{HOOK},"content":{{"title":"b"}},"idempotency_key":"k"}}"#);
    let answers = admit(&fixture, &[&first, &again, &other]).await;
    let Ok(IntakeAnswer { message, deliveries, duplicate: false, .. }) = &answers[0] else {
        panic!("{answers:?}")
    };
    let expected = IntakeAnswer {
        message: *message,
        deliveries: deliveries.clone(),
        duplicate: true,
        repeated: 0,
        withheld: Vec::new(),
    };
    assert_eq!(answers[1], Ok(expected));
    assert_eq!(answers[2].as_ref().unwrap_err().kind, RefusalKind::IdempotencyConflict);
}

#[tokio::test]
async fn a_channel_that_is_not_configured_is_refused_with_what_to_configure() {
    let to = |channel: &str| format!(r#"{{"to":{{"address":{{"channel":"{channel}"}}}}}}"#);
    for channel in ["fcm", "apns", "email", "sms"] {
        let refusal = refusal(&to(channel)).await;
        let error = &refusal.errors[0];
        assert_eq!(
            (refusal.kind, &*error.field, &*error.found),
            (
                RefusalKind::InvalidMessage,
                "to.address.channel",
                &*format!("{channel}, which is not configured")
            )
        );
        assert!(error.allowed.contains("webhook"), "{error:?}");
        assert!(error.allowed.contains("configure [accounts.NAME]"), "{error:?}");
    }
    assert_eq!(refusal(&to("pigeon")).await.errors[0].found, "pigeon");
}

#[tokio::test]
async fn keys_belong_to_their_tenant() {
    let fixture = DispatchFixture::new(vec![]);
    let body = format!(r#"{{{HOOK},"idempotency_key":"k"}}"#);
    assert!(matches!(
        admit(&fixture, &[&body]).await[0],
        Ok(IntakeAnswer { duplicate: false, .. })
    ));
    let other = postrider_core::TenantId::new("other");
    let submission = Submission { body: body.into(), idempotency_key: None, traceparent: None };
    assert!(matches!(
        fixture.intake.admit(&other, vec![submission]).await[0],
        Ok(IntakeAnswer { duplicate: false, .. })
    ));
}

#[tokio::test]
async fn a_campaign_reaches_an_address_once() {
    let fixture = DispatchFixture::new(vec![]);
    let first = format!(r#"{{{HOOK},"campaign":"spring","content":{{"title":"a"}}}}"#);
    let second = format!(r#"{{{HOOK},"campaign":"spring","content":{{"title":"b"}}}}"#);
    let answers = admit(&fixture, &[&first, &second]).await;
    assert!(matches!(answers[1], Ok(IntakeAnswer { duplicate: true, .. })), "{answers:?}");
}

#[tokio::test]
async fn http_requests_are_deduplicated_by_content_unless_told_otherwise() {
    let fixture = DispatchFixture::new(vec![]);
    let request = |url: &str, more: &str| {
        format!(
            r#"{{"to":{{"address":{{"channel":"http","method":"PUT","url":"{url}"}}}},"content":{{"http":{{"body":{{"a":1}}}}}}{more}}}"#
        )
    };
    let same = request("https://api.example/x?y=1", "");
    let other = request("https://api.example/x?y=2", "");
    let forced = request("https://api.example/x?y=1", r#","dedupe":"none""#);
    let answers = admit(&fixture, &[&same, &same, &other, &forced]).await;
    assert!(matches!(answers[0], Ok(IntakeAnswer { duplicate: false, .. })));
    assert!(matches!(answers[1], Ok(IntakeAnswer { duplicate: true, .. })));
    assert!(matches!(answers[2], Ok(IntakeAnswer { duplicate: false, .. })));
    assert!(matches!(answers[3], Ok(IntakeAnswer { duplicate: false, .. })));
}

#[tokio::test]
async fn one_bad_message_does_not_spoil_the_batch() {
    let fixture = DispatchFixture::new(vec![]);
    let good = format!("{{{HOOK}}}");
    let answers = admit(&fixture, &[&good, "{", &good]).await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert_eq!(answers[1].as_ref().unwrap_err().kind, RefusalKind::InvalidJson);
}

#[tokio::test]
async fn a_refusal_names_the_field_what_was_found_and_what_is_allowed() {
    let table = [
        (format!(r#"{{{HOOK},"ttl_s":-1}}"#), "ttl_s", "-1"),
        (format!(r#"{{{HOOK},"ttl_s":"soon"}}"#), "ttl_s", "\"soon\""),
        (format!(r#"{{{HOOK},"ttl":1}}"#), "ttl", "unknown field"),
        (format!(r#"{{{HOOK},"class":"urgent"}}"#), "class", "urgent"),
        (format!(r#"{{{HOOK},"content":{{"titel":"x"}}}}"#), "content.titel", "unknown field"),
        (format!(r#"{{{HOOK},"content":[]}}"#), "content", "a list"),
        (format!(r#"{{{HOOK},"priority":"asap"}}"#), "priority", "\"asap\""),
        (format!(r#"{{{HOOK},"send_at":"tomorrow"}}"#), "send_at", "tomorrow"),
        (format!(r#"{{{HOOK},"retry":{{"retries":1000000}}}}"#), "retry.retries", "1000000"),
        (r#"{"content":{}}"#.to_owned(), "to", "nothing"),
        (r#"{"to":{"topic":"news"}}"#.to_owned(), "to.topic", "a topic"),
        (r#"{"to":{"recipient":"nobody"}}"#.to_owned(), "to", "no active address"),
        (r#"{"to":{"address":{"channel":"pigeon"}}}"#.to_owned(), "to.address.channel", "pigeon"),
        (
            r#"{"to":{"address":{"channel":"webhook","url":"http://a.example"}}}"#.to_owned(),
            "to.address.url",
            "http://",
        ),
        (
            r#"{"to":{"address":{"channel":"http","url":"https://a.example","headers":{"Authorization":"x"}}}}"#.to_owned(),
            "to.address.headers.authorization",
            "a credential",
        ),
    ];
    for (body, field, found) in table {
        let refusal = refusal(&body).await;
        assert_eq!(refusal.kind, RefusalKind::InvalidMessage, "{body}");
        let error = &refusal.errors[0];
        assert_eq!((error.field.as_str(), error.found.as_str()), (field, found), "{body}");
        assert!(!error.allowed.is_empty(), "{body}");
    }
}

#[tokio::test]
async fn an_endpoint_never_appears_in_a_refusal() {
    let body = r#"{"to":{"address":{"channel":"webhook","url":"http://secret.example/token"}}}"#;
    assert!(!format!("{:?}", refusal(body).await).contains("secret.example"));
}

#[tokio::test]
async fn a_recipient_named_twice_is_told_once() {
    let fixture = DispatchFixture::new(vec![]);
    let address = r#"{"channel":"webhook","url":"https://hooks.example/a","recipient":"ann"}"#;
    let address = fixture.intake.check_address(&fixture.tenant, address.as_bytes()).await.unwrap();
    fixture.store.put_address(address).await.unwrap();
    let answers = admit(&fixture, &[r#"{"to":{"recipients":["ann","ann","\u0061nn"]}}"#]).await;
    let Ok(IntakeAnswer { deliveries, duplicate: false, .. }) = &answers[0] else {
        panic!("{answers:?}")
    };
    assert_eq!(deliveries.len(), 1);
}

#[tokio::test]
async fn a_message_names_only_so_many_recipients() {
    let names = vec![r#""nobody""#; 10_001].join(",");
    let refusal = refusal(&format!(r#"{{"to":{{"recipients":[{names}]}}}}"#)).await;
    let error = &refusal.errors[0];
    assert_eq!((error.field.as_str(), error.found.as_str()), ("to.recipients", "10001 recipients"));
}

#[tokio::test]
async fn a_campaign_reaches_each_address_of_a_recipient_once_in_any_order() {
    let fixture = DispatchFixture::new(vec![]);
    let register = async |who: &str, url: &str| {
        let json = format!(r#"{{"channel":"webhook","url":"{url}","recipient":"{who}"}}"#);
        let address = fixture.intake.check_address(&fixture.tenant, json.as_bytes()).await.unwrap();
        fixture.store.put_address(address).await.unwrap();
    };
    register("ann", "https://hooks.example/a").await;
    register("ben", "https://hooks.example/b").await;
    let first = r#"{"to":{"recipients":["ann","ben"]},"campaign":"spring"}"#;
    let again = r#"{"to":{"recipients":["ben","ann"]},"campaign":"spring"}"#;
    assert!(matches!(
        admit(&fixture, &[first]).await[0],
        Ok(IntakeAnswer { duplicate: false, .. })
    ));
    let repeat = admit(&fixture, &[again]).await;
    assert!(
        matches!(repeat[0], Ok(IntakeAnswer { duplicate: true, repeated: 2, .. })),
        "{repeat:?}"
    );
    register("ann", "https://hooks.example/another").await;
    let rest = admit(&fixture, &[again]).await;
    let Ok(IntakeAnswer { deliveries, duplicate: false, repeated: 2, .. }) = &rest[0] else {
        panic!("{rest:?}")
    };
    assert_eq!(deliveries.len(), 1, "only the new address of ann");
}

#[tokio::test]
async fn an_alternative_address_is_checked_like_the_first_and_needs_a_class_that_uses_it() {
    let with = |class: &str, fallback: &str| {
        format!(
            r#"{{"to":{{"address":{{"channel":"webhook","url":"https://a.example/"}},"fallback":{fallback}}},"class":"{class}"}}"#
        )
    };
    let mut fixture = DispatchFixture::new(vec![]);
    fixture.add_class(postrider_core::Class {
        name: "flexible".into(),
        when_open: postrider_core::model::class::WhenOpen::FallBack,
        ..postrider_core::Class::default()
    });
    let good = r#"{"channel":"webhook","url":"https://b.example/"}"#;
    let five = format!("[{}]", [good; 5].join(","));
    let bodies = [
        with("flexible", &format!("[{good},{good}]")),
        with("flexible", &format!(r#"[{good},{{"channel":"webhook","url":"http://x"}}]"#)),
        with("flexible", r#"["adr_nobody"]"#),
        with("flexible", &five),
        with("otp", &format!("[{good}]")),
        format!(r#"{{"to":{{"recipient":"u-1","fallback":[{good}]}},"class":"flexible"}}"#),
    ];
    let answers = admit(&fixture, &bodies.each_ref().map(String::as_str)).await;
    assert!(answers[0].is_ok(), "{:?}", answers[0]);
    let field = |n: usize| answers[n].as_ref().unwrap_err().errors[0].field.clone();
    assert_eq!(field(1), "to.fallback[1].url");
    assert_eq!(field(2), "to.fallback[0]");
    assert_eq!([field(3), field(4), field(5)], ["to.fallback", "to.fallback", "to.fallback"]);
}

/// Keys are stored: a repeat must be recognised across an upgrade. These were made by version 0.1.
#[tokio::test]
async fn keys_of_content_are_the_same_as_in_earlier_versions() {
    let fixture = DispatchFixture::new(vec![]);
    let own = r#"{"webhook":{"payload":"{\"a\": 1}"},"http":{"body":{"b":  2}}}"#;
    let http = r#""channel":"http","method":"put","url":"https://api.example.com/x?y=1""#;
    let hook = r#""channel":"webhook","url":"https://hooks.example.com:443/x""#;
    for (address, content, key) in [
        (http, r#"{"title":"Hi"}"#, "eb3ecd101837c3cfa8decf1eac3a8176"),
        (http, own, "725d1e362f76caeeb481a1c355e6f707"),
        (hook, r#"{"title":"Hi"}"#, "b33c1ed19a4bcf6f16f0350def42347d"),
        (hook, own, "d0befe0d243a31f9ee7c0eb5ed94511d"),
    ] {
        let body = format!(
            r#"{{"to":{{"address":{{{address}}}}},"content":{content},"dedupe":"content"}}"#
        );
        let submission = Submission { body: body.into(), idempotency_key: None, traceparent: None };
        let acme = postrider_core::TenantId::new("acme");
        assert!(fixture.intake.admit(&acme, vec![submission]).await[0].is_ok());
        let window = std::time::Duration::from_secs(86_400);
        let key = u128::from_str_radix(key, 16).unwrap().to_be_bytes();
        let known = DedupKey { key, fingerprint: [0; 16], window };
        let repeats = fixture.store.repeats(vec![known]).await.unwrap();
        assert!(repeats[0].is_some(), "{content} by {address}");
    }
}

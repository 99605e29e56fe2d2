//! What each channel alone promises about what it puts on the wire.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use postrider_channels::ChannelTarget;
use postrider_channels::http::HttpTarget;
use postrider_channels::webhook::WebhookTarget;
use postrider_channels::webpush::{WebpushTarget, topic};
use postrider_core::model::message::{Envelope, Message, Priority};
use postrider_core::{Attempt, KeyId, Outcome, TenantId};

use crate::fixture::{AUTH, P256DH, SECRET, Subject, SubjectFixture, UA_PRIVATE};
use crate::provider::{Answer, Line, Provider, Received};

fn with_message(attempt: &Attempt, change: impl FnOnce(&mut Message)) -> Attempt {
    let mut message = (*attempt.message).clone();
    change(&mut message);
    Attempt { message: Arc::new(message), ..attempt.clone() }
}

/// Sends one attempt and looks at what arrived.
async fn arrived(subject: Subject, change: impl FnOnce(Attempt) -> Attempt) -> Received {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(subject);
    let report = fixture.one(change(fixture.attempt(&provider.url("/x?y=z")))).await;
    assert_eq!(report.outcome, Outcome::Accepted, "{report:?}");
    provider.received().remove(0)
}

fn header<'a>(received: &'a Received, name: &str) -> Option<&'a str> {
    received.headers.get(name).map(|value| value.to_str().unwrap())
}

/// HKDF written a second time, from its definition: extract, then one block of expand.
fn hkdf(salt: &[u8], ikm: &[u8], info: &[&[u8]], len: usize) -> Vec<u8> {
    let mac = |key: &[u8], parts: &[&[u8]]| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        hmac::sign(&key, &parts.concat()).as_ref().to_vec()
    };
    let prk = mac(salt, &[ikm]);
    mac(&prk, &[info, &[&[1]]].concat())[..len].to_vec()
}

/// What the browser would read.
fn decrypt(body: &[u8]) -> String {
    let b64 = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let private = PrivateKey::from_private_key(&ECDH_P256, &b64(UA_PRIVATE)).unwrap();
    let (salt, sender, record) = (&body[..16], &body[21..86], &body[86..]);
    let ikm = agree(&private, UnparsedPublicKey::new(&ECDH_P256, sender), (), |shared| {
        Ok(hkdf(&b64(AUTH), shared, &[b"WebPush: info\0", &b64(P256DH), sender], 32))
    })
    .unwrap();
    let key = hkdf(salt, &ikm, &[b"Content-Encoding: aes128gcm\0"], 16);
    let nonce = hkdf(salt, &ikm, &[b"Content-Encoding: nonce\0"], 12);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
    let nonce = Nonce::try_assume_unique_for_key(&nonce).unwrap();
    let mut record = record.to_vec();
    let plain = key.open_in_place(nonce, Aad::empty(), &mut record).unwrap();
    let end = plain.iter().rposition(|b| *b == 2).unwrap();
    String::from_utf8(plain[..end].to_vec()).unwrap()
}

#[tokio::test]
async fn a_push_has_its_headers_and_can_be_read_by_its_browser() {
    let received = arrived(Subject::Webpush, |attempt| attempt).await;
    assert_eq!(header(&received, "ttl"), Some("3600"));
    assert_eq!(header(&received, "urgency"), Some("normal"));
    assert_eq!(header(&received, "content-encoding"), Some("aes128gcm"));
    assert_eq!(header(&received, "content-type"), Some("application/octet-stream"));
    assert_eq!(header(&received, "topic"), None);
    assert!(header(&received, "authorization").unwrap().starts_with("vapid t=ey"));
    assert_eq!(
        decrypt(&received.body),
        r#"{"id":"dlv_00000000000000000000000009","title":"Shipped","body":"Order 91 is on its way","sent_at":1800000000000,"expires_at":1800003600000}"#
    );
}

#[tokio::test]
async fn a_push_says_how_long_it_has_left_and_how_urgent_it_is() {
    let received = arrived(Subject::Webpush, |attempt| {
        let attempt = with_message(&attempt, |message| {
            message.envelope = Envelope {
                priority: Some(Priority::High),
                collapse_key: Some("ord-91".into()),
                ..Envelope::default()
            };
        });
        Attempt { expires_at: attempt.now + Duration::from_millis(90_500), ..attempt }
    })
    .await;
    assert_eq!(header(&received, "ttl"), Some("90"));
    assert_eq!(header(&received, "urgency"), Some("high"));
    assert_eq!(header(&received, "topic"), Some(&*topic(&TenantId::new("acme"), "ord-91")));
}

#[tokio::test]
async fn now_or_never_stays_zero_and_an_empty_push_has_no_coding() {
    let never = |attempt: Attempt| {
        with_message(&attempt, |message| {
            message.ttl_s = 0;
            message.content = r#"{"webpush":{"raw":""}}"#.into();
        })
    };
    let received = arrived(Subject::Webpush, never).await;
    assert_eq!(header(&received, "ttl"), Some("3600"), "a replay gave it a longer life");
    let soon = |attempt: Attempt| {
        let expires_at = attempt.now + Duration::from_secs(10);
        Attempt { expires_at, is_one_shot: true, ..never(attempt) }
    };
    let received = arrived(Subject::Webpush, soon).await;
    assert_eq!(header(&received, "ttl"), Some("0"));
    assert_eq!(header(&received, "content-encoding"), None);
    assert!(received.body.is_empty() && header(&received, "authorization").is_some());
}

#[tokio::test]
async fn a_dead_sentinel_is_gone_without_a_call() {
    let fixture = SubjectFixture::new(Subject::Webpush);
    let report = fixture.send("https://permanently-removed.invalid/fcm/send/x").await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Gone, Some("dead_endpoint")));
}

#[tokio::test]
async fn a_stale_token_is_signed_anew_once_and_a_fresh_one_that_is_refused_is_our_fault() {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(Subject::Webpush);
    let url = provider.url("/x");
    fixture.send(&url).await;
    fixture.clock.advance(Duration::from_secs(600));
    provider.answers([Answer::status(401), Answer::status(403)]);
    assert_eq!(fixture.send(&url).await.outcome, Outcome::ResignOnce);
    let again = Attempt { resign: true, ..fixture.attempt(&url) };
    assert_eq!(fixture.one(again).await.outcome, Outcome::Config);
    let tokens: Vec<_> = provider.received();
    let token = |n: usize| header(&tokens[n], "authorization").unwrap();
    assert!(token(0) == token(1) && token(1) != token(2));
}

#[tokio::test]
async fn an_expired_token_is_signed_anew_however_young_it_is() {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(Subject::Webpush);
    provider.answers([Answer::status(403).body("token has expired")]);
    assert_eq!(fixture.send(&provider.url("/x")).await.outcome, Outcome::ResignOnce);
}

#[tokio::test]
async fn a_missing_vapid_key_parks_the_push() {
    let fixture = SubjectFixture::new(Subject::Webpush);
    let mut attempt = fixture.attempt("https://push.example.com/x");
    let target = WebpushTarget { vapid_key: Some(KeyId(404)), ..attempt.target.read().unwrap() };
    attempt.target = Arc::new(target.to_target());
    let report = fixture.one(attempt).await;
    assert_eq!(
        (report.outcome, report.code.as_deref()),
        (Outcome::Config, Some("vapid_key_missing"))
    );
}

/// What a receiver does, written from the specification.
fn verify(received: &Received, secret: &str) -> bool {
    let raw = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let (id, time) =
        (header(received, "webhook-id").unwrap(), header(received, "webhook-timestamp").unwrap());
    let mut content = format!("{id}.{time}.").into_bytes();
    content.extend_from_slice(&received.body);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &raw), &content);
    let expected = format!("v1,{}", STANDARD.encode(tag));
    header(received, "webhook-signature").unwrap().split(' ').any(|one| one == expected)
}

#[tokio::test]
async fn a_webhook_is_signed_and_carries_its_delivery_as_key() {
    let received = arrived(Subject::Webhook, |attempt| {
        with_message(&attempt, |message| {
            message.envelope.traceparent =
                Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
        })
    })
    .await;
    assert!(verify(&received, SECRET));
    assert_eq!(header(&received, "webhook-id"), Some("dlv_00000000000000000000000009"));
    assert_eq!(header(&received, "idempotency-key"), Some("dlv_00000000000000000000000009"));
    assert_eq!(header(&received, "webhook-timestamp"), Some("1800000000"));
    assert_eq!(header(&received, "postrider-expires"), Some("1800003600"));
    assert!(header(&received, "traceparent").unwrap().starts_with("00-0af7"));
    assert_eq!(
        received.body,
        r#"{"type":"message","id":"msg_00000000000000000000000007","delivery":"dlv_00000000000000000000000009","content":{"title":"Shipped","body":"Order 91 is on its way"}}"#
    );
}

#[tokio::test]
async fn every_attempt_of_a_webhook_is_signed_anew_under_the_same_id() {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(Subject::Webhook);
    let attempt = fixture.attempt(&provider.url("/x"));
    fixture.one(attempt.clone()).await;
    fixture.clock.advance(Duration::from_secs(600));
    fixture.one(attempt).await;
    let received = provider.received();
    assert!(received.iter().all(|r| verify(r, SECRET)));
    assert_eq!(header(&received[0], "webhook-id"), header(&received[1], "webhook-id"));
    assert_eq!(header(&received[1], "webhook-timestamp"), Some("1800000600"));
}

#[tokio::test]
async fn an_endpoint_s_own_secrets_win_and_all_of_them_sign() {
    let own = [
        "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "whsec_//////////////////////////////////////////8=",
    ];
    let received = arrived(Subject::Webhook, |attempt| {
        let known: WebhookTarget<'_> = attempt.target.read().unwrap();
        let target = WebhookTarget { secrets: own.map(Cow::from).into(), ..known }.to_target();
        Attempt { target: Arc::new(target), ..attempt }
    })
    .await;
    assert!(own.iter().all(|secret| verify(&received, secret)));
    assert!(!verify(&received, SECRET));
}

#[tokio::test]
async fn a_webhook_s_own_payload_replaces_the_body_byte_for_byte() {
    let received = arrived(Subject::Webhook, |attempt| {
        with_message(&attempt, |message| {
            message.content = r#"{"title":"x","webhook":{"payload":{"a":  [1, 2]}}}"#.into();
        })
    })
    .await;
    assert_eq!(received.body, r#"{"a":  [1, 2]}"#);
    assert!(verify(&received, SECRET));
}

#[tokio::test]
async fn what_other_channels_say_does_not_reach_a_webhook() {
    let received = arrived(Subject::Webhook, |attempt| {
        with_message(&attempt, |message| {
            message.content = r#"{"title":"x","webpush":{"raw":"only for browsers"}}"#.into();
        })
    })
    .await;
    let body = std::str::from_utf8(&received.body).unwrap();
    assert!(body.ends_with(r#""content":{"title":"x"}}"#), "{body}");
}

fn http_target(
    attempt: Attempt,
    method: &str,
    headers: &[(&str, &str)],
    credential: Option<&str>,
) -> Attempt {
    let target = HttpTarget {
        method: method.into(),
        headers: headers.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect(),
        credential: credential.map(Into::into),
        ..attempt.target.read().unwrap()
    };
    Attempt { target: Arc::new(target.to_target()), ..attempt }
}

#[tokio::test]
async fn a_plain_request_goes_out_as_written_with_its_credential() {
    let received = arrived(Subject::Http, |attempt| {
        let attempt = with_message(&attempt, |message| {
            message.content = r#"{"http":{"body":"a=1&b=2"}}"#.into();
            message.envelope.idempotency_key = Some("order-91".into());
        });
        let headers = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("x-own", "1"),
            ("connection", "close"),
        ];
        http_target(attempt, "PATCH", &headers, Some("env:TOKEN"))
    })
    .await;
    assert_eq!((received.method.as_str(), received.uri.query()), ("PATCH", Some("y=z")));
    assert_eq!(received.body, "a=1&b=2");
    assert_eq!(header(&received, "content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(header(&received, "x-own"), Some("1"));
    assert_eq!(header(&received, "authorization"), Some("Bearer t0ken"));
    assert_eq!(header(&received, "idempotency-key"), Some("order-91"));
    assert_eq!(header(&received, "postrider-expires"), Some("1800003600"));
    assert!(received.headers.keys().all(|name| !name.as_str().starts_with("webhook-")));
}

#[tokio::test]
async fn a_plain_request_without_a_key_of_its_own_carries_the_message_s_id() {
    let received = arrived(Subject::Http, |attempt| http_target(attempt, "GET", &[], None)).await;
    assert_eq!(header(&received, "idempotency-key"), Some("msg_00000000000000000000000007"));
    assert!(received.body.is_empty());
}

#[tokio::test]
async fn a_missing_credential_parks_the_request() {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(Subject::Http);
    let attempt = http_target(fixture.attempt(&provider.url("/x")), "POST", &[], Some("env:GONE"));
    let report = fixture.one(attempt).await;
    assert_eq!(
        (report.outcome, report.code.as_deref()),
        (Outcome::Config, Some("credential_missing"))
    );
    assert_eq!(provider.connected(), 0);
}

#[tokio::test]
async fn a_push_says_which_key_signed_it_also_where_no_answer_came() {
    let fixture = SubjectFixture::new(Subject::Webpush);
    let provider = Provider::start(Line::Http2).await;
    assert_eq!(fixture.send(&provider.url("/x")).await.key, Some(KeyId(1)));
    assert_eq!(fixture.send("https://127.0.0.1:1/x").await.key, Some(KeyId(1)));
}

/// Whoever takes five streams per connection gets five on each of as many as we may open, before anything
/// waits; and not one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stream_of_every_connection_is_used_before_anything_waits() {
    let provider = Provider::with_streams(Line::Http2, Some(5)).await;
    provider.waits_for(20);
    let fixture = SubjectFixture::new(Subject::Webhook);
    let batch = vec![fixture.attempt(&provider.url("/x")); 200];
    for report in fixture.deliver(batch).await {
        assert_eq!(report.outcome, Outcome::Accepted, "{report:?}");
    }
    assert_eq!((provider.in_flight_most(), provider.connected()), (20, 4));
}

//! Mistakes that senders make most often, where they take a provider that looks at every byte. The others are
//! tried on the real server, and named in docs/channels.md.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_core::Outcome;
use serde_json::Value;

use crate::fixture::{START, Subject, SubjectFixture};
use crate::provider::{Line, Provider, Received};

/// What the token of a push claims.
fn claims(received: &Received) -> Value {
    let header = received.headers["authorization"].to_str().unwrap();
    let token = header.strip_prefix("vapid t=").unwrap().split(',').next().unwrap();
    let claims = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

/// Mistake 1: the audience as a whole URL, without its port, or left over from another service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistake_01_every_service_is_named_in_its_own_token_by_origin_and_port() {
    let (one, other) = tokio::join!(Provider::start(Line::Http2), Provider::start(Line::Http2));
    let fixture = SubjectFixture::new(Subject::Webpush);
    // Taking turns, and all at once: no token may be lent to the neighbour.
    for provider in [&one, &other, &one, &other] {
        let report = fixture.send(&provider.url("/send/abc?x=1")).await;
        assert_eq!(report.outcome, Outcome::Accepted, "{report:?}");
    }
    let batch =
        (0..100).map(|n| fixture.attempt(&[&one, &other][n % 2].url("/send/abc"))).collect();
    fixture.deliver(batch).await;
    for provider in [&one, &other] {
        let received = provider.received();
        assert_eq!(received.len(), 52);
        for push in &received {
            let claims = claims(push);
            assert_eq!(claims["aud"], provider.url(""), "the origin, with its port and no slash");
            let exp = claims["exp"].as_i64().unwrap();
            let ahead = exp - START.as_secs();
            assert!((1..=24 * 3600).contains(&ahead), "{ahead} s ahead");
        }
    }
    // And still so when the token is an old one that is used again.
    fixture.clock.advance(Duration::from_secs(3600));
    fixture.send(&one.url("/send/abc")).await;
    assert_eq!(claims(&one.received()[52])["aud"], one.url(""));
}

//! What is held against an address, and what is not: it takes a key that works for others to blame a
//! subscription, and a host that nobody vouches for to blame its name.

use std::sync::Arc;
use std::time::Duration;

use postrider_channels::ChannelTarget;
use postrider_channels::webpush::WebpushTarget;
use postrider_core::{Attempt, KeyId, Outcome, Report, StrikeKind};

use crate::fixture::{Subject, SubjectFixture};
use crate::provider::{Answer, Line, Provider};

const MISMATCH: &str = "the VAPID credentials in the authorization header do not correspond to \
                        the credentials used to create the subscriptions.";

fn refused() -> Answer {
    Answer::status(403).body(MISMATCH)
}

/// The same attempt to a subscription that named this key.
fn made_with(attempt: Attempt, id: KeyId) -> Attempt {
    let target = WebpushTarget { vapid_key: Some(id), ..attempt.target.read().unwrap() };
    Attempt { target: Arc::new(target.to_target()), ..attempt }
}

fn told(report: &Report) -> (Outcome, Option<&str>, Option<StrikeKind>) {
    (report.outcome.clone(), report.code.as_deref(), report.terms.strike)
}

#[tokio::test]
async fn a_key_mismatch_is_our_fault_until_the_key_works_for_others() {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(Subject::Webpush);
    provider.answers([refused()]);
    let first = fixture.send(&provider.url("/a")).await;
    assert_eq!((first.outcome, first.terms.strike), (Outcome::Config, None));
}

#[tokio::test]
async fn a_subscription_that_refuses_a_working_key_needs_to_resubscribe() {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(Subject::Webpush);
    fixture.send(&provider.url("/others")).await;
    for answer in [refused(), Answer::status(400).body(r#"{"reason":"VapidPkHashMismatch"}"#)] {
        provider.answers([answer]);
        let report = fixture.send(&provider.url("/a")).await;
        let code = Some("key_mismatch.resubscribe");
        assert_eq!(told(&report), (Outcome::DropMessage, code, Some(StrikeKind::Key)));
        assert!(report.detail.is_some(), "the provider's words are kept");
    }
}

#[tokio::test]
async fn a_subscription_that_refuses_the_very_key_it_was_made_with_is_gone() {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(Subject::Webpush);
    fixture.send(&provider.url("/others")).await;
    provider.answers([refused(), refused()]);
    let known = || made_with(fixture.attempt(&provider.url("/a")), KeyId(1));
    let report = fixture.one(known()).await;
    assert_eq!(told(&report), (Outcome::Gone, Some("key_mismatch.proven"), None));
    fixture.clock.advance(Duration::from_secs(3600));
    let report = fixture.one(known()).await;
    assert_ne!(report.outcome, Outcome::Gone, "it worked too long ago to prove anything");
}

#[tokio::test]
async fn a_refused_topic_is_left_out_once_within_the_same_attempt() {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(Subject::Webpush);
    let bad = || Answer::status(400).body(r#"{"reason":"BadWebPushTopic"}"#);
    let collapsing = |url: &str| {
        let attempt = fixture.attempt(url);
        let mut message = (*attempt.message).clone();
        message.envelope.collapse_key = Some("ord-91".into());
        Attempt { message: Arc::new(message), ..attempt }
    };
    provider.answers([bad(), Answer::status(201)]);
    let report = fixture.one(collapsing(&provider.url("/a"))).await;
    assert_eq!(report.outcome, Outcome::Accepted);
    let topics: Vec<_> =
        provider.received().iter().map(|r| r.headers.contains_key("topic")).collect();
    assert_eq!(topics, [true, false]);
    provider.answers([bad(), bad(), bad()]);
    let report = fixture.one(collapsing(&provider.url("/a"))).await;
    assert_eq!(report.outcome, Outcome::DropMessage);
    assert_eq!(provider.received().len(), 4, "once more and no oftener");
    let report = fixture.send(&provider.url("/a")).await;
    assert_eq!(report.outcome, Outcome::DropMessage);
    assert_eq!(provider.received().len(), 5, "there was no topic to leave out");
}

#[tokio::test]
async fn whatever_a_webhook_s_receiver_does_not_take_is_held_against_it() {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(Subject::Webhook);
    let url = provider.url("/hook");
    for status in [301, 400, 404, 429, 500, 503] {
        provider.answers([Answer::status(status)]);
        assert_eq!(fixture.send(&url).await.terms.strike, Some(StrikeKind::Failing), "{status}");
    }
    assert_eq!(fixture.send(&url).await.terms.strike, None, "it took this one");
    let http = SubjectFixture::new(Subject::Http);
    provider.answers([Answer::status(500)]);
    assert_eq!(http.send(&url).await.terms.strike, None, "nobody else's receivers");
}

//! What every channel promises, for those that speak HTTP; [`crate::smtp`] and [`crate::smpp`] hold the others
//! to the same. Who is held to what, and why not, is said in [`crate::matrix`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use postrider_channels::PoolConfig;
use postrider_channels::pool::Request;
use postrider_core::{Attempt, Class, Outcome, Report, Scope, Timestamp};
use serde_json::json;
use tokio::sync::Notify;

use crate::fixture::{Subject, SubjectFixture, network};
use crate::provider::{Answer, Line, OnConnect, Provider, Received};

const BACKOFF: Outcome = Outcome::RetryBackoff { at_least: Duration::ZERO };
const PATH: &str = "/send/c2VjcmV0LXN1YnNjcmlwdGlvbi1pZA?x=1%20y";
const NO_ERROR: u32 = 0;
const ENHANCE_YOUR_CALM: u32 = 11;
const REFUSED_STREAM: u32 = 7;
const INTERNAL_ERROR: u32 = 2;

/// One attempt against one scripted answer.
async fn answered(subject: Subject, answer: Answer) -> Report {
    let provider = Provider::start(Line::Http2).await;
    provider.answers([answer]);
    SubjectFixture::new(subject).send(&provider.url(PATH)).await
}

pub(crate) async fn a_success_is_accepted(subject: Subject) {
    for status in [200, 201, 202, 204] {
        let report = answered(subject, Answer::status(status).header("retry-after", "5")).await;
        assert_eq!((report.outcome, report.status), (Outcome::Accepted, Some(status)));
        assert_eq!(report.retry_after, None);
    }
}

pub(crate) async fn the_url_is_sent_as_written(subject: Subject) {
    for line in [Line::Http2, Line::Http1] {
        let provider = Provider::start(line).await;
        SubjectFixture::new(subject).send(&provider.url(PATH)).await;
        let received = provider.received().remove(0);
        assert_eq!(received.uri.path_and_query().unwrap().as_str(), PATH);
    }
}

pub(crate) async fn throttling_waits_for_the_named_time(subject: Subject) {
    let report = answered(subject, Answer::status(429).header("retry-after", "7")).await;
    let scope = match subject {
        Subject::Http => Scope::Host,
        Subject::Declared(column) => column.throttle_scope,
        Subject::Fcm | Subject::Ses | Subject::SendGrid => Scope::Credential,
        _ => Scope::Target,
    };
    assert_eq!(report.outcome, Outcome::RetryAfter { after: Duration::from_secs(7), scope });
    assert_eq!(report.retry_after.as_deref(), Some("7"));
}

pub(crate) async fn throttling_without_a_time_waits_as_the_table_says(subject: Subject) {
    let report = answered(subject, Answer::status(429)).await;
    assert!(
        matches!(report.outcome, Outcome::RetryAfter { after, .. } if after.as_secs() == 60),
        "{report:?}"
    );
}

pub(crate) async fn a_gone_answer_marks_the_address_as_gone(subject: Subject) {
    let answer = match subject {
        Subject::Fcm => crate::fcm::refusal(404, "NOT_FOUND", "UNREGISTERED", ""),
        Subject::Declared(column) => (column.gone)(),
        _ => Answer::status(410),
    };
    assert_eq!(answered(subject, answer).await.outcome, Outcome::Gone);
}

/// HTTP/2, and HTTP/1.1 where the channel knows that.
fn lines(subject: Subject) -> Vec<Line> {
    match subject {
        Subject::Apns => vec![Line::Http2],
        _ => vec![Line::Http2, Line::Http1],
    }
}

/// Backs off without a word from the provider; FCM never before ten seconds are over.
fn backs_off(subject: Subject) -> Outcome {
    match subject {
        Subject::Fcm => Outcome::RetryBackoff { at_least: Duration::from_secs(10) },
        _ => BACKOFF,
    }
}

pub(crate) async fn a_refusal_drops_the_message_and_says_why_without_the_address(subject: Subject) {
    let address = match subject {
        Subject::Ses | Subject::SendGrid | Subject::Declared(_) => {
            let target = crate::hosted::target(subject, &format!("https://localhost{PATH}"));
            let fields: serde_json::Value = target.read().unwrap();
            let field = match subject {
                Subject::Declared(column) => column.secret_field,
                _ => "email",
            };
            fields[field].as_str().unwrap().to_owned()
        }
        _ => "c2VjcmV0LXN1YnNjcmlwdGlvbi1pZA".to_owned(),
    };
    let echo = format!("bad thing about {address} and {address}");
    let report = answered(subject, Answer::status(400).body(echo)).await;
    assert_eq!(report.outcome, Outcome::DropMessage);
    let told = format!("{:?} {:?}", report.detail, report.code);
    assert!(told.contains("bad thing about"), "{told}");
    assert!(!told.contains(&address), "{told}");
}

pub(crate) async fn a_temporary_failure_is_tried_again(subject: Subject) {
    assert_eq!(answered(subject, Answer::status(503)).await.outcome, backs_off(subject));
    let waits = answered(subject, Answer::status(503).header("retry-after", "13")).await;
    assert!(matches!(waits.outcome, Outcome::RetryAfter { after, .. } if after.as_secs() == 13));
}

pub(crate) async fn a_redirect_is_not_followed(subject: Subject) {
    let (provider, elsewhere) =
        tokio::join!(Provider::start(Line::Http2), Provider::start(Line::Http2));
    provider.answers([Answer::status(307).header("location", elsewhere.url("/"))]);
    assert_eq!(SubjectFixture::new(subject).send(&provider.url(PATH)).await.outcome, BACKOFF);
    assert_eq!((provider.received().len(), elsewhere.connected()), (1, 0));
}

pub(crate) async fn silence_is_ambiguous(subject: Subject) {
    for line in lines(subject) {
        let provider = Provider::start(line).await;
        provider.answers([Answer::silent()]);
        let fixture = SubjectFixture::with(subject, network(), Duration::from_secs(2));
        let report = fixture.send(&provider.url(PATH)).await;
        assert_eq!(report.outcome, Outcome::Ambiguous);
        assert_eq!(report.code.as_deref(), Some("timeout"));
        // A connection on which nothing came back is not used again.
        assert_eq!(fixture.send(&provider.url(PATH)).await.outcome, Outcome::Accepted);
        assert_eq!(provider.connected(), 2);
    }
}

pub(crate) async fn a_failed_connection_is_tried_again(subject: Subject) {
    let provider = Provider::start(Line::Http2).await;
    provider.connects([OnConnect::HangUp]);
    let report = SubjectFixture::new(subject).send(&provider.url(PATH)).await;
    assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("tls")));
    assert_eq!(provider.received().len(), 0);

    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", nobody.local_addr().unwrap().port());
    drop(nobody);
    let report = SubjectFixture::new(subject).send(&url).await;
    assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("connect")));
}

pub(crate) async fn a_name_that_does_not_resolve_is_tried_again(subject: Subject) {
    let report = SubjectFixture::new(subject).send("https://no-such-host.localdomain.test/x").await;
    assert_eq!(report.outcome, BACKOFF);
    // Which of them depends on the resolver of the machine.
    assert!(matches!(report.code.as_deref(), Some("dns" | "no_such_host")), "{report:?}");
}

pub(crate) async fn an_untrusted_certificate_is_refused(subject: Subject) {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::with(
        subject,
        PoolConfig { extra_ca_file: None, ..network() },
        Duration::from_secs(5),
    );
    let report = fixture.send(&provider.url(PATH)).await;
    assert_eq!(provider.received().len(), 0);
    if subject == Subject::Fcm {
        // The first stranger that it meets is the one who gives tokens.
        assert!(matches!(report.outcome, Outcome::Hold { .. }), "{report:?}");
        assert_eq!(report.code.as_deref(), Some("oauth_unavailable"));
        return;
    }
    assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("tls")));
    assert_eq!(report.detail.as_deref(), Some("the certificate's issuer is not trusted"));
}

pub(crate) async fn a_connection_lost_after_the_request_is_ambiguous(subject: Subject) {
    for line in lines(subject) {
        let provider = Provider::start(line).await;
        provider.connects([OnConnect::HangUpAfterRequest]);
        let report = SubjectFixture::new(subject).send(&provider.url(PATH)).await;
        assert_eq!(report.outcome, Outcome::Ambiguous, "{line:?} {report:?}");
    }
    let provider = Provider::start(Line::Http2).await;
    provider.connects([OnConnect::ResetStream(INTERNAL_ERROR)]);
    let report = SubjectFixture::new(subject).send(&provider.url(PATH)).await;
    assert_eq!(report.outcome, Outcome::Ambiguous);
}

pub(crate) async fn a_goaway_costs_nothing_and_leads_to_a_new_connection(subject: Subject) {
    let provider = Provider::start(Line::Http2).await;
    provider.connects([OnConnect::Goaway(NO_ERROR)]);
    let fixture = SubjectFixture::new(subject);
    let ends = fixture.deliver(vec![fixture.attempt(&provider.url(PATH)); 5]).await;
    let accepted = ends.iter().filter(|end| end.outcome == Outcome::Accepted).count();
    let replayed = ends.iter().filter(|end| end.outcome == Outcome::Reconnect).count();
    // Who comes after the GOAWAY finds the new connection already.
    assert!(replayed > 0 && accepted + replayed == 5, "{ends:?}");
    assert_eq!(fixture.send(&provider.url(PATH)).await.outcome, Outcome::Accepted);
    assert_eq!(provider.received().len(), accepted + 1);
    // Apple's take one request each until they are proven, so that there may be one for each call.
    let most = if subject == Subject::Apns { 6 } else { 2 };
    assert!((2..=most).contains(&provider.connected()), "{} connections", provider.connected());
}

pub(crate) async fn a_goaway_with_an_error_is_not_retried_at_once(subject: Subject) {
    let provider = Provider::start(Line::Http2).await;
    provider.connects([OnConnect::Goaway(ENHANCE_YOUR_CALM)]);
    let report = SubjectFixture::new(subject).send(&provider.url(PATH)).await;
    assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("goaway")));
}

pub(crate) async fn a_refused_stream_costs_nothing_and_leads_to_a_new_connection(subject: Subject) {
    let provider = Provider::start(Line::Http2).await;
    provider.connects([OnConnect::ResetStream(REFUSED_STREAM)]);
    let fixture = SubjectFixture::new(subject);
    assert_eq!(fixture.send(&provider.url(PATH)).await.outcome, Outcome::Reconnect);
    // The first refusal may be a limit that we could not know; the second is not.
    assert_eq!(fixture.send(&provider.url(PATH)).await.outcome, Outcome::Reconnect);
    assert_eq!(fixture.send(&provider.url(PATH)).await.outcome, Outcome::Accepted);
    assert_eq!(provider.connected(), 2);
}

pub(crate) async fn a_huge_answer_is_cut_short(subject: Subject) {
    for line in lines(subject) {
        let provider = Provider::start(line).await;
        let huge = Answer::status(500).body("x".repeat(4 << 20));
        provider.answers([huge.clone(), huge]);
        let fixture = SubjectFixture::new(subject);
        let request =
            Request { method: Method::POST, headers: HeaderMap::new(), body: Bytes::new() };
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        let answer = fixture.pool.send(&provider.url(PATH), request, deadline).await.unwrap();
        assert_eq!(answer.body.len(), 16 * 1024);
        let report = fixture.send(&provider.url(PATH)).await;
        assert_eq!(report.outcome, backs_off(subject));
        assert!(report.detail.unwrap().len() <= 1024);
        assert_eq!(fixture.send(&provider.url(PATH)).await.outcome, Outcome::Accepted);
    }
}

pub(crate) async fn http_1_1_is_used_if_the_peer_offers_nothing_newer(subject: Subject) {
    let provider = Provider::start(Line::Http1).await;
    let fixture = SubjectFixture::new(subject);
    for _ in 0..3 {
        assert_eq!(fixture.send(&provider.url(PATH)).await.outcome, Outcome::Accepted);
    }
    assert_eq!(provider.connected(), 1, "kept alive and used again");
    let batch = vec![fixture.attempt(&provider.url(PATH)); 200];
    for report in fixture.deliver(batch).await {
        assert_eq!(report.outcome, Outcome::Accepted);
    }
    assert_eq!(provider.received().len(), 203);
    assert!(provider.connected() <= 32, "{} connections", provider.connected());
}

pub(crate) async fn a_connection_that_the_peer_closes_is_not_used_again(subject: Subject) {
    let provider = Provider::start(Line::Http1).await;
    provider.answers([Answer::status(200).header("connection", "close")]);
    let fixture = SubjectFixture::new(subject);
    for _ in 0..3 {
        assert_eq!(fixture.send(&provider.url(PATH)).await.outcome, Outcome::Accepted);
    }
    assert_eq!(provider.connected(), 2);
}

pub(crate) async fn nothing_is_sent_without_tls_unless_allowed(subject: Subject) {
    let provider = Provider::start(Line::PlainHttp1).await;
    let report = SubjectFixture::new(subject).send(&provider.url(PATH)).await;
    assert_eq!(
        (report.outcome, report.code.as_deref()),
        (Outcome::DropMessage, Some("plain_http"))
    );
    assert_eq!(provider.connected(), 0);
    let network = PoolConfig { allow_plain_http: true, ..network() };
    let fixture = SubjectFixture::with(subject, network, Duration::from_secs(5));
    assert_eq!(fixture.send(&provider.url(PATH)).await.outcome, Outcome::Accepted);
}

pub(crate) async fn a_private_address_is_refused_after_its_name_was_resolved(subject: Subject) {
    let provider = Provider::start(Line::Http2).await;
    let network = PoolConfig { allow_private_targets: false, ..network() };
    let fixture = SubjectFixture::with(subject, network, Duration::from_secs(5));
    let by_number = provider.url(PATH).replace("localhost", "127.0.0.1");
    let mapped = provider.url(PATH).replace("localhost", "[::ffff:127.0.0.1]");
    for url in [provider.url(PATH), by_number, mapped] {
        let report = fixture.send(&url).await;
        assert_eq!(report.outcome, Outcome::DropMessage);
        assert_eq!(report.code.as_deref(), Some("private_address"));
    }
    assert_eq!(provider.connected(), 0);
}

pub(crate) async fn nothing_is_sent_at_or_after_its_expiry(subject: Subject) {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(subject);
    let attempt = fixture.attempt(&provider.url(PATH));
    fixture.clock.advance(Duration::from_secs(3600));
    assert_eq!(fixture.one(attempt.clone()).await.outcome, Outcome::Expired);
    assert_eq!(provider.received().len(), 0);
    let later = Attempt { expires_at: Timestamp(attempt.expires_at.0 + 1), ..attempt };
    assert_eq!(fixture.one(later).await.outcome, Outcome::Accepted);
}

pub(crate) async fn every_attempt_of_a_large_batch_ends_exactly_once_over_few_connections(
    subject: Subject,
) {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(subject);
    let urls: Vec<_> = (0..500).map(|n| provider.url(&format!("/{n}"))).collect();
    let batch = urls.iter().map(|url| fixture.attempt(url)).collect();
    for report in fixture.deliver(batch).await {
        assert_eq!(report.outcome, Outcome::Accepted);
    }
    // With an account there is one URL for all; who it is for is in the body.
    let place = |r: &Received| match subject {
        Subject::Declared(_) if subject.has_accounts() => r.body.clone(),
        Subject::Fcm | Subject::Ses | Subject::SendGrid => r.body.clone(),
        _ => r.uri.path().to_owned().into(),
    };
    let mut paths: Vec<_> = provider.received().iter().map(place).collect();
    paths.sort();
    paths.dedup();
    assert_eq!((paths.len(), provider.received().len()), (500, 500));
    assert!(provider.connected() <= 4, "{} connections", provider.connected());
    assert_eq!(fixture.pool.stats().in_flight, 0);
}

pub(crate) async fn the_peer_s_limit_of_concurrent_calls_is_respected(subject: Subject) {
    let provider = Provider::with_streams(Line::Http2, Some(5)).await;
    let fixture = SubjectFixture::new(subject);
    let batch = vec![fixture.attempt(&provider.url(PATH)); 200];
    for report in fixture.deliver(batch).await {
        // A sixth stream would have been refused, and repeated on another connection.
        assert_eq!(report.outcome, Outcome::Accepted, "{report:?}");
    }
    assert!(provider.in_flight_most() <= 5 * provider.connected());
    assert!(provider.connected() <= 4);
}

pub(crate) async fn many_attempts_connect_once_to_an_unreachable_peer(subject: Subject) {
    let provider = Provider::start(Line::Http2).await;
    provider.connects([OnConnect::HangUp; 100]);
    let fixture = SubjectFixture::new(subject);
    // Fewer than are prepared at once, so that all of them wait for the same connection.
    let batch = vec![fixture.attempt(&provider.url(PATH)); 30];
    for report in fixture.deliver(batch).await {
        assert_eq!(report.outcome, BACKOFF, "{report:?}");
    }
    assert_eq!(provider.connected(), 1);
}

pub(crate) async fn unused_connections_make_room_for_others(subject: Subject) {
    let network = PoolConfig { connections_total_max: 1, ..network() };
    let fixture = SubjectFixture::with(subject, network, Duration::from_secs(5));
    let (one, other) = tokio::join!(Provider::start(Line::Http2), Provider::start(Line::Http2));
    assert_eq!(fixture.send(&one.url(PATH)).await.outcome, Outcome::Accepted);
    assert_eq!(fixture.send(&other.url(PATH)).await.outcome, Outcome::Accepted);
    assert_eq!(fixture.pool.stats().connections, 1);
}

pub(crate) async fn one_bad_attempt_does_not_harm_the_others(subject: Subject) {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(subject);
    let mut batch = ["/a", "\u{0}", "/b"].map(|path| fixture.attempt(&provider.url(path)));
    if subject.has_accounts() {
        batch[1] = fixture.attempt(&provider.url("/b"));
        let mut message = (*batch[1].message).clone();
        message.content = "no content".into();
        batch[1].message = Arc::new(message);
    }
    let ends = fixture.deliver(batch.into()).await;
    let outcomes: Vec<_> = ends.iter().map(|r| r.outcome.name()).collect();
    assert_eq!(outcomes, ["accepted", "drop_message", "accepted"]);
}

pub(crate) async fn refusals_of_webhooks_and_http_are_retried_if_the_class_says_so(
    subject: Subject,
) {
    for status in [400, 401, 403, 404, 413, 422] {
        let provider = Provider::start(Line::Http2).await;
        provider.answers([Answer::status(status), Answer::status(status)]);
        let fixture = SubjectFixture::new(subject);
        let attempt = fixture.attempt(&provider.url(PATH));
        let class = Arc::new(Class { retry_all: true, ..Class::default() });
        let patient = Attempt { class, ..attempt.clone() };
        let (plain, patient) =
            (fixture.one(attempt).await.outcome, fixture.one(patient).await.outcome);
        if matches!(subject, Subject::Webpush | Subject::Chat) {
            assert_eq!(plain, patient, "{status}");
        } else {
            assert_eq!((plain, patient), (Outcome::DropMessage, BACKOFF), "{status}");
        }
    }
}

/// What the provider was shown of the credential.
fn shown(subject: Subject, received: &Received) -> String {
    if let Subject::Declared(column) = subject {
        return (column.credential_of)(received);
    }
    crate::column::authorization(received)
}

/// A receiver may repeat the whole request: as the text of a refusal, in its headers, in an acceptance.
pub(crate) async fn an_echoed_credential_is_not_shown(subject: Subject) {
    for status in [400, 401, 429, 500, 200] {
        let provider = Provider::start(Line::Http2).await;
        provider.answers([Answer::echo(status)]);
        let fixture = SubjectFixture::new(subject);
        let mut attempt = fixture.attempt(&provider.url(PATH));
        if subject == Subject::Http {
            attempt.target = Arc::new(crate::fixture::with_credential(&provider.url(PATH)));
        }
        let target: serde_json::Value = attempt.target.read().unwrap();
        let report = fixture.one(attempt).await;
        let received = provider.received().remove(0);
        let Report { detail, code, provider_id, retry_after, .. } = &report;
        let told = format!("{detail:?} {code:?} {provider_id:?} {retry_after:?}");
        assert!(status == 200 || told.contains("[hidden]"), "{status}: {told}");
        let credential = shown(subject, &received);
        let parts = credential.split([' ', ',']).filter(|part| part.len() > 10);
        for secret in parts.chain([&*credential, "s3cret", "t0ken"]) {
            assert!(!told.contains(secret), "{status}: {secret} in {told}");
        }
        if let Subject::Declared(column) = subject {
            let address = target[column.secret_field].as_str().unwrap().trim_start_matches('+');
            assert!(!told.contains(address), "{status}: {address} in {told}");
        }
    }
}

/// A token of our own making is made anew at once; a secret that an operator changes is read anew when the
/// account is tried again.
pub(crate) async fn a_refused_credential_is_renewed_and_then_accepted(subject: Subject) {
    let provider = Provider::start(Line::Http2).await;
    let fixture = SubjectFixture::new(subject);
    let url = provider.url(PATH);
    fixture.send(&url).await;
    fixture.clock.advance(Duration::from_secs(1_801));
    let refused = match subject {
        Subject::Apns => {
            Answer::status(403).body(json!({"reason": "ExpiredProviderToken"}).to_string())
        }
        Subject::Declared(column) => (column.refused_credential)(),
        _ => Answer::status(401),
    };
    provider.answers([refused]);
    let first = fixture.send(&url).await.outcome;
    let is_configured = matches!(subject, Subject::Ses | Subject::SendGrid | Subject::Declared(_));
    let again = if is_configured {
        assert_eq!(first, Outcome::Config);
        fixture.put_secret("an0ther");
        fixture.clock.advance(Duration::from_secs(600));
        fixture.attempt(&url)
    } else {
        assert_eq!(first, Outcome::ResignOnce);
        Attempt { resign: true, ..fixture.attempt(&url) }
    };
    assert_eq!(fixture.one(again).await.outcome, Outcome::Accepted);
    let seen: Vec<_> =
        provider.received().iter().map(|received| shown(subject, received)).collect();
    // What SES sees is signed, and so differs with the time, too.
    assert!(seen[0] == seen[1] || subject == Subject::Ses, "{seen:?}");
    assert_ne!(seen[1], seen[2]);
}

pub(crate) async fn a_slow_answer_is_waited_for(subject: Subject) {
    for line in lines(subject) {
        let provider = Provider::start(line).await;
        let go = Arc::new(Notify::new());
        provider.answers([Answer::held_until(&go)]);
        let (fixture, url) = (SubjectFixture::new(subject), provider.url(PATH));
        let heard = async {
            provider.heard().await;
            go.notify_one();
        };
        let (report, ()) = tokio::join!(fixture.send(&url), heard);
        assert_eq!(report.outcome, Outcome::Accepted);
        assert_eq!((provider.received().len(), provider.connected()), (1, 1));
    }
}

//! What APNs alone promises: its tokens, its headers, its connections, and the mistakes that others made
//! with it.

use std::sync::Arc;
use std::time::Duration;

use postrider_channels::apns::{ApnsEnvironment, ApnsTarget};
use postrider_channels::{ApnsChannel, ChannelTarget, PoolConfig};
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{Attempt, Outcome, Report, Scope, Target, Timestamp};
use serde_json::json;

use crate::fixture::{ChannelFixture, START, Subject, network};
use crate::provider::{Answer, Line, Provider, Received};
use crate::push::{TOPIC, apns_account, certificate_account};

const DEVICE: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";

fn refusal(status: u16, reason: &str) -> Answer {
    Answer::status(status).body(json!({ "reason": reason }).to_string())
}

fn device(topic: &str, environment: Option<ApnsEnvironment>) -> Target {
    ApnsTarget { token: DEVICE.into(), topic: topic.into(), environment, worked: None }.to_target()
}

fn ok() -> Answer {
    Answer::status(200)
}

struct World {
    fixture: ChannelFixture,
    production: Provider,
    sandbox: Provider,
    channel: ApnsChannel,
}

impl World {
    async fn new() -> Self {
        Self::with(network()).await
    }

    async fn with(network: PoolConfig) -> Self {
        let fixture = ChannelFixture::with(network);
        let (production, sandbox) =
            tokio::join!(Provider::start(Line::Http2), Provider::start(Line::Http2));
        let account = apns_account("main", &production.url(""), &sandbox.url(""));
        let channel =
            ApnsChannel::new(fixture.wiring.clone(), vec![account], BreakerPolicy::default());
        Self { fixture, production, sandbox, channel }
    }

    fn attempt(&self, environment: Option<ApnsEnvironment>) -> Attempt {
        self.fixture.attempt(device(TOPIC, environment))
    }

    fn at_home(&self) -> Attempt {
        self.attempt(Some(ApnsEnvironment::Production))
    }

    async fn send(&self, attempt: Attempt) -> Report {
        self.fixture.deliver(&self.channel, vec![attempt]).await.remove(0)
    }

    async fn answered(&self, answer: Answer) -> Report {
        self.production.answers([answer]);
        self.send(self.at_home()).await
    }
}

fn header(received: &Received, name: &str) -> String {
    received.headers[name].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_carries_every_header_that_apple_reads() {
    let world = World::new().await;
    let mut attempt = world.at_home();
    let mut message = (*attempt.message).clone();
    message.envelope.collapse_key = Some("ord-91".into());
    attempt.message = Arc::new(message);
    world.production.answers([ok().header("apns-id", "abc")]);
    let report = world.send(attempt).await;
    assert_eq!((report.outcome, report.provider_id.as_deref()), (Outcome::Accepted, Some("abc")));
    let received = world.production.received().remove(0);
    assert_eq!(received.uri.path(), format!("/3/device/{DEVICE}"));
    for (name, value) in [
        ("apns-topic", TOPIC),
        ("apns-push-type", "alert"),
        ("apns-priority", "10"),
        ("apns-collapse-id", "ord-91"),
        ("apns-id", "00000000-0000-0000-0000-000000000009"),
        ("apns-expiration", "1800003600"),
    ] {
        assert_eq!(header(&received, name), value, "{name}");
    }
    assert!(header(&received, "authorization").starts_with("bearer ey"));
    let body: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(body["aps"]["alert"]["title"], "Shipped");
}

/// Mistake 6: a new provider token per request, worker or topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistake_06_one_provider_token_serves_all_connections_and_accounts() {
    let fixture = ChannelFixture::new();
    let (a, b) = tokio::join!(Provider::start(Line::Http2), Provider::start(Line::Http2));
    let mut first = apns_account("a", &a.url(""), &a.url(""));
    first.settings.topics = vec![TOPIC.to_owned()];
    let mut second = apns_account("b", &b.url(""), &b.url(""));
    second.settings.credential = first.settings.credential.clone();
    second.settings.topics = vec!["com.example.other".to_owned()];
    let channel =
        ApnsChannel::new(fixture.wiring.clone(), vec![first, second], BreakerPolicy::default());
    let to = |topic: &str| {
        let environment = Some(ApnsEnvironment::Production);
        fixture.attempt(device(topic, environment))
    };
    let batch = (0..200).map(|n| to(if n % 2 == 0 { TOPIC } else { "com.example.other" }));
    for report in fixture.deliver(&channel, batch.collect()).await {
        assert_eq!(report.outcome, Outcome::Accepted);
    }
    let all = [a.received(), b.received()].concat();
    let mut tokens: Vec<_> = all.iter().map(|r| header(r, "authorization")).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!((all.len(), tokens.len()), (200, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_takes_one_request_at_a_time_until_one_was_accepted() {
    let world = World::with(PoolConfig { connections_max: 1, ..network() }).await;
    world.production.answers(vec![refusal(500, "InternalServerError"); 20]);
    let batch = vec![world.at_home(); 15];
    world.fixture.deliver(&world.channel, batch).await;
    assert_eq!(world.production.in_flight_most(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_1_is_not_spoken_to_apple() {
    let fixture = ChannelFixture::new();
    let provider = Provider::start(Line::Http1).await;
    let account = apns_account("main", &provider.url(""), &provider.url(""));
    let channel = ApnsChannel::new(fixture.wiring.clone(), vec![account], BreakerPolicy::default());
    let target = crate::hosted::target(Subject::Apns, &provider.url(&format!("/{DEVICE}")));
    let report = fixture.deliver(&channel, vec![fixture.attempt(target)]).await.remove(0);
    assert_eq!(report.code.as_deref(), Some("http2"));
    assert_eq!(provider.received().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_identifies_us_without_a_token() {
    let fixture = ChannelFixture::new();
    let provider = Provider::start(Line::Http2AskingWhoWeAre).await;
    let account = certificate_account("main", &provider.url(""));
    let channel = ApnsChannel::new(fixture.wiring.clone(), vec![account], BreakerPolicy::default());
    let target = crate::hosted::target(Subject::Apns, &provider.url(&format!("/{DEVICE}")));
    let report = fixture.deliver(&channel, vec![fixture.attempt(target)]).await.remove(0);
    assert_eq!(report.outcome, Outcome::Accepted, "{report:?}");
    let received = provider.received().remove(0);
    assert!(received.has_certificate && !received.headers.contains_key("authorization"));
}

/// Mistake 5: devices of the other environment taken for dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistake_05_a_bad_device_token_erases_nothing_until_the_account_is_proven() {
    let world = World::new().await;
    let bad = || refusal(400, "BadDeviceToken");
    assert_eq!(world.answered(bad()).await.outcome, Outcome::DropMessage);
    assert_eq!(world.answered(ok()).await.outcome, Outcome::Accepted);
    assert_eq!(world.answered(bad()).await.outcome, Outcome::Gone);
    world.fixture.clock.advance(Duration::from_secs(3_600));
    assert_eq!(world.answered(bad()).await.outcome, Outcome::DropMessage, "long ago");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_whose_home_nobody_knows_is_looked_for_in_both_places() {
    let world = World::new().await;
    world.production.answers([refusal(400, "BadDeviceToken")]);
    let report = world.send(world.attempt(None)).await;
    assert_eq!(report.outcome, Outcome::Accepted);
    let places = (world.production.received().len(), world.sandbox.received().len());
    assert_eq!(places, (1, 1));
    world.production.answers([refusal(400, "BadDeviceToken")]);
    world.sandbox.answers([refusal(400, "BadDeviceToken")]);
    assert_eq!(world.send(world.attempt(None)).await.outcome, Outcome::Gone);
}

/// Mistake 8: the expiration as a duration, and TTL 0 as the present time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistake_08_the_expiration_is_a_moment_and_now_or_never_a_literal_zero() {
    let world = World::new().await;
    world.send(world.at_home()).await;
    let mut never = world.at_home();
    let mut message = (*never.message).clone();
    message.ttl_s = 0;
    message.expires_at = START + Duration::from_secs(10);
    (never.expires_at, never.message) = (message.expires_at, Arc::new(message));
    never.is_one_shot = true;
    world.send(never).await;
    let sent: Vec<_> =
        world.production.received().iter().map(|r| header(r, "apns-expiration")).collect();
    assert_eq!(sent, ["1800003600", "0"]);
}

/// Mistake 14: 410 applied to a device that was registered again in the meantime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistake_14_a_410_from_before_the_registration_erases_nothing() {
    let world = World::new().await;
    let gone_at = START.0 - 5_000;
    let gone = json!({"reason": "Unregistered", "timestamp": gone_at}).to_string();
    let told = |since: Option<i64>| {
        world.production.answers([Answer::status(410).body(gone.clone())]);
        let address_since = since.map(Timestamp);
        world.send(Attempt { address_since, ..world.at_home() })
    };
    let later = told(Some(gone_at + 1)).await.outcome;
    assert_eq!(later, Outcome::RetryBackoff { at_least: Duration::from_secs(60) });
    assert_eq!(told(Some(gone_at - 1)).await.outcome, Outcome::Gone);
    assert_eq!(told(None).await.outcome, Outcome::Gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_token_updates_rest_the_account_and_replace_the_connection() {
    let world = World::new().await;
    assert_eq!(world.answered(ok()).await.outcome, Outcome::Accepted);
    let report = world.answered(refusal(429, "TooManyProviderTokenUpdates")).await;
    let after = Duration::from_secs(1_200);
    assert_eq!(report.outcome, Outcome::RetryAfter { after, scope: Scope::Credential });
    let held = world.send(world.at_home()).await.outcome;
    assert!(matches!(held, Outcome::Hold { .. }), "{held:?}");
    world.fixture.clock.advance(after);
    assert_eq!(world.send(world.at_home()).await.outcome, Outcome::Accepted);
    assert_eq!(world.production.connected(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_provider_token_is_signed_anew_only_when_that_is_allowed() {
    let world = World::new().await;
    let expired = || refusal(403, "ExpiredProviderToken");
    assert_eq!(world.answered(ok()).await.outcome, Outcome::Accepted);
    world.fixture.clock.advance(Duration::from_secs(1_300));
    assert_eq!(world.answered(expired()).await.outcome, Outcome::ResignOnce);
    let again = Attempt { resign: true, ..world.at_home() };
    assert_eq!(world.send(again).await.outcome, Outcome::Accepted);
    let tokens: Vec<_> =
        world.production.received().iter().map(|r| header(r, "authorization")).collect();
    assert!(tokens[0] == tokens[1] && tokens[1] != tokens[2]);
    assert_eq!(world.answered(expired()).await.outcome, Outcome::Config, "a fresh one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_mixed_on_a_connection_lead_to_a_new_one() {
    for reason in ["UnrelatedKeyIdInToken", "IdleTimeout"] {
        let world = World::new().await;
        let status = if reason == "IdleTimeout" { 400 } else { 403 };
        assert_eq!(world.answered(refusal(status, reason)).await.outcome, Outcome::Reconnect);
        assert_eq!(world.send(world.at_home()).await.outcome, Outcome::Accepted);
        assert_eq!(world.production.connected(), 2, "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_apple_s_is_tried_soon_once_and_then_every_quarter_of_an_hour() {
    let world = World::new().await;
    let failed = refusal(500, "InternalServerError");
    let backoff = |s| Outcome::RetryBackoff { at_least: Duration::from_secs(s) };
    assert_eq!(world.answered(failed.clone()).await.outcome, backoff(0));
    world.production.answers([failed]);
    let second = Attempt { number: 2, ..world.at_home() };
    assert_eq!(world.send(second).await.outcome, backoff(900));
}

/// Mistake 11: GOAWAY loses requests, and a connection without answers is never given up. What holds for
/// every channel is promised there; here, that a storm over few connections loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistake_11_a_thousand_pushes_share_few_connections_and_all_end() {
    let world = World::new().await;
    let batch = vec![world.at_home(); 1_000];
    let ends = world.fixture.deliver(&world.channel, batch).await;
    assert!(ends.iter().all(|end| end.outcome == Outcome::Accepted));
    assert!(world.production.connected() <= 4);
}

/// A registered device as the registry hands it out after that.
fn registered(attempt: Attempt, worked: Option<ApnsEnvironment>) -> Attempt {
    let target = ApnsTarget { worked, ..attempt.target.read().unwrap() }.to_target();
    Attempt { target: Arc::new(target), address_since: Some(Timestamp(START.0 - 1)), ..attempt }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_registered_device_was_found_is_remembered_and_asked_first() {
    let world = World::new().await;
    world.production.answers([refusal(400, "BadDeviceToken")]);
    let found = world.send(registered(world.attempt(None), None)).await;
    assert_eq!(found.outcome, Outcome::Accepted);
    let expected = registered(world.attempt(None), Some(ApnsEnvironment::Sandbox)).target;
    assert_eq!(found.target, Some(expected.clone()));
    let again = world.send(Attempt { target: expected, ..world.attempt(None) }).await;
    assert_eq!((again.outcome, again.target), (Outcome::Accepted, None), "there is no news");
    assert_eq!((world.production.received().len(), world.sandbox.received().len()), (1, 2));
    let inline = world.send(world.attempt(Some(ApnsEnvironment::Sandbox))).await;
    assert_eq!(inline.target, None, "what is not registered has no place to be remembered in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_worked_on_this_host_before_and_is_unknown_there_is_gone() {
    let world = World::new().await;
    let bad = || refusal(400, "BadDeviceToken");
    world.production.answers([bad(), bad(), bad()]);
    let asked = |worked| registered(world.at_home(), worked);
    let report = world.send(asked(Some(ApnsEnvironment::Production))).await;
    assert_eq!(report.outcome, Outcome::Gone, "no other device needs to prove the account");
    let report = world.send(asked(Some(ApnsEnvironment::Sandbox))).await;
    assert_eq!(report.outcome, Outcome::DropMessage, "that was another host");
    let report = world.send(asked(None)).await;
    assert_eq!(report.outcome, Outcome::DropMessage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_apple_s_that_shuts_down_is_left_once_and_then_it_is_a_failure() {
    let world = World::new().await;
    let shutdown = || refusal(503, "Shutdown");
    assert_eq!(world.answered(shutdown()).await.outcome, Outcome::Reconnect);
    world.production.answers([shutdown()]);
    let again = Attempt { replays: 1, ..world.at_home() };
    let quarter = Outcome::RetryBackoff { at_least: Duration::from_secs(900) };
    assert_eq!(world.send(again).await.outcome, quarter);
}

//! What FCM alone promises: its tokens, its request, and the mistakes that others made with it.

use std::sync::Arc;
use std::time::Duration;

use postrider_channels::FcmChannel;
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{Attempt, Outcome, Report, Scope};
use serde_json::{Value, json};

use crate::fixture::{ChannelFixture, Subject, SubjectFixture};
use crate::provider::{Answer, Line, Provider, Received};
use crate::push::{fcm_account, granted, token_endpoint};

const DEVICE: &str = "/send/device-token-abc";

pub(crate) fn refusal(status: u16, name: &str, code: &str, message: &str) -> Answer {
    let fcm = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
    let details = json!([{"@type": fcm, "errorCode": code}]);
    let error = json!({"code": status, "status": name, "message": message, "details": details});
    Answer::status(status).body(json!({ "error": error }).to_string())
}

async fn answered(answer: Answer) -> Report {
    let provider = Provider::start(Line::Http2).await;
    provider.answers([answer]);
    SubjectFixture::new(Subject::Fcm).send(&provider.url(DEVICE)).await
}

/// A fixture with a channel of these accounts.
struct World {
    fixture: ChannelFixture,
    provider: Provider,
    tokens: Provider,
    channel: FcmChannel,
}

impl World {
    async fn new(grants: impl IntoIterator<Item = Answer>) -> Self {
        let fixture = ChannelFixture::new();
        let (provider, tokens) =
            tokio::join!(Provider::start(Line::Http2), Provider::start(Line::Http2));
        tokens.answers(grants);
        let account = fcm_account("main", &provider.url(""), &tokens.url("/token"));
        let channel =
            FcmChannel::new(fixture.wiring.clone(), vec![account], BreakerPolicy::default());
        Self { fixture, provider, tokens, channel }
    }

    fn attempt(&self) -> Attempt {
        self.fixture.attempt(crate::hosted::target(Subject::Fcm, &self.provider.url(DEVICE)))
    }

    async fn send(&self, attempt: Attempt) -> Report {
        self.fixture.deliver(&self.channel, vec![attempt]).await.remove(0)
    }

    fn bearers(&self) -> Vec<String> {
        let text = |r: &Received| r.headers["authorization"].to_str().unwrap().to_owned();
        self.provider.received().iter().map(text).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_goes_out_as_http_v1_wants_it_with_what_is_left_of_its_ttl() {
    let world = World::new([granted(1)]).await;
    let attempt = world.attempt();
    world.fixture.clock.advance(Duration::from_secs(600));
    let answer = Answer::status(200).body(r#"{"name":"projects/project-1/messages/0:12"}"#);
    world.provider.answers([answer]);
    let report = world.send(attempt).await;
    assert_eq!(report.outcome, Outcome::Accepted);
    assert_eq!(report.provider_id.as_deref(), Some("projects/project-1/messages/0:12"));
    let received = world.provider.received().remove(0);
    assert_eq!(received.uri.path(), "/v1/projects/project-1/messages:send");
    assert_eq!(world.bearers(), ["Bearer ya29.1"]);
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(body["message"]["token"], "device-token-abc");
    assert_eq!(body["message"]["android"]["ttl"], "3000s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_asked_for_once_however_many_wait_for_it() {
    let world = World::new((1..9).map(granted)).await;
    let batch = vec![world.attempt(); 100];
    for report in world.fixture.deliver(&world.channel, batch).await {
        assert_eq!(report.outcome, Outcome::Accepted);
    }
    assert_eq!(world.tokens.received().len(), 1);
    let form = String::from_utf8(world.tokens.received()[0].body.to_vec()).unwrap();
    assert!(form.starts_with(
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=ey"
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_renewed_at_four_fifths_of_its_life_while_the_old_one_serves() {
    let world = World::new((1..9).map(granted)).await;
    let send = || async { world.send(world.attempt()).await.outcome };
    assert_eq!(send().await, Outcome::Accepted);
    world.fixture.clock.advance(Duration::from_secs(2_870));
    assert_eq!(send().await, Outcome::Accepted);
    assert_eq!(world.tokens.received().len(), 1);
    world.fixture.clock.advance(Duration::from_secs(20));
    assert_eq!(send().await, Outcome::Accepted);
    assert_eq!(world.bearers(), ["Bearer ya29.1", "Bearer ya29.1", "Bearer ya29.1"]);
    // The renewal runs beside the message that caused it.
    while world.bearers().last().unwrap() != "Bearer ya29.2" {
        assert_eq!(send().await, Outcome::Accepted);
        tokio::task::yield_now().await;
    }
    assert_eq!(world.tokens.received().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_refused_is_replaced_once_and_then_a_person_is_asked() {
    let world = World::new((1..9).map(granted)).await;
    world.provider.answers([Answer::status(401), Answer::status(401)]);
    let attempt = world.attempt();
    assert_eq!(world.send(attempt.clone()).await.outcome, Outcome::ResignOnce);
    world.fixture.clock.advance(Duration::from_secs(61));
    let again = Attempt { resign: true, ..attempt };
    assert_eq!(world.send(again).await.outcome, Outcome::Config);
    assert_eq!(world.bearers(), ["Bearer ya29.1", "Bearer ya29.2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_service_account_waits_for_a_person_and_is_not_asked_again_at_once() {
    let refused = Answer::status(400)
        .body(r#"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#);
    let world = World::new([refused]).await;
    let report = world.send(world.attempt()).await;
    assert_eq!(
        (&report.outcome, report.code.as_deref()),
        (&Outcome::Config, Some("oauth_refused"))
    );
    assert!(report.detail.unwrap().contains("Invalid JWT Signature"));
    let held = world.send(world.attempt()).await.outcome;
    assert!(matches!(held, Outcome::Hold { scope: Scope::Credential, .. }), "{held:?}");
    assert_eq!((world.tokens.received().len(), world.provider.received().len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_endpoint_that_is_down_uses_up_no_attempt() {
    let world = World::new([Answer::status(503), granted(1)]).await;
    let held = world.send(world.attempt()).await.outcome;
    let Outcome::Hold { after, scope: Scope::Credential } = held else { panic!("{held:?}") };
    world.fixture.clock.advance(after);
    assert_eq!(world.send(world.attempt()).await.outcome, Outcome::Accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_account_takes_over_when_the_first_is_refused() {
    let fixture = ChannelFixture::new();
    let (a, b) = tokio::join!(Provider::start(Line::Http2), Provider::start(Line::Http2));
    let tokens = token_endpoint().await;
    a.answers([refusal(403, "PERMISSION_DENIED", "PERMISSION_DENIED", "")]);
    let mut spare = fcm_account("b", &b.url(""), &tokens.url("/token"));
    spare.priority = 1;
    let accounts = vec![fcm_account("a", &a.url(""), &tokens.url("/token")), spare];
    let channel = FcmChannel::new(fixture.wiring.clone(), accounts, BreakerPolicy::default());
    let target = crate::hosted::target(Subject::Fcm, &a.url(DEVICE));
    let send = || async {
        fixture.deliver(&channel, vec![fixture.attempt(target.clone())]).await.remove(0)
    };
    let first = send().await;
    assert_eq!(first.outcome, Outcome::SwitchAccount);
    assert!(first.detail.unwrap().starts_with("account a left out"));
    assert_eq!(send().await.outcome, Outcome::Accepted);
    assert_eq!((a.received().len(), b.received().len()), (1, 1));
}

/// Mistake 4: a live token deleted because a message was malformed, and a malformed one kept for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistake_04_a_400_erases_a_device_only_if_it_says_that_the_token_is_none() {
    let bad_token = "The registration token is not a valid FCM registration token";
    let invalid = |message: &str| refusal(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", message);
    assert_eq!(answered(invalid(bad_token)).await.outcome, Outcome::Gone);
    let payload = invalid("Invalid value at 'message.data[0].value' (TYPE_STRING), 1");
    assert_eq!(answered(payload).await.outcome, Outcome::DropMessage);
    let without_code = json!({"error": {"status": "INVALID_ARGUMENT", "message": bad_token}});
    let without_code = Answer::status(400).body(without_code.to_string());
    assert_eq!(answered(without_code).await.outcome, Outcome::DropMessage);
    let html = Answer::status(404).body("<html>404</html>");
    assert_eq!(answered(html).await.outcome, Outcome::Config, "the project is not there");
}

/// Mistake 10: throttling retried at once or taken for a refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistake_10_a_spent_quota_waits_as_long_as_it_says_or_a_minute() {
    let quota = || refusal(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", "");
    let wait =
        |secs| Outcome::RetryAfter { after: Duration::from_secs(secs), scope: Scope::Credential };
    assert_eq!(answered(quota()).await.outcome, wait(60));
    assert_eq!(answered(quota().header("retry-after", "7")).await.outcome, wait(7));
}

/// Mistake 15: one invalid message spoils a batch, or a dead API is called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistake_15_every_message_is_a_request_of_its_own() {
    let world = World::new([granted(1)]).await;
    let mut bad = world.attempt();
    let mut message = (*bad.message).clone();
    message.content = r#"{"data":{"from":"reserved"}}"#.into();
    bad.message = Arc::new(message);
    let batch = vec![world.attempt(), bad, world.attempt()];
    let ends = world.fixture.deliver(&world.channel, batch).await;
    let outcomes: Vec<_> = ends.iter().map(|r| r.outcome.name()).collect();
    assert_eq!(outcomes, ["accepted", "drop_message", "accepted"]);
    let paths: Vec<_> = world.provider.received().iter().map(|r| r.uri.path().to_owned()).collect();
    assert_eq!(paths, ["/v1/projects/project-1/messages:send"; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_s_token_is_in_no_report() {
    let echo = refusal(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "bad: device-token-abc");
    let report = answered(echo).await;
    let told = format!("{report:?}");
    assert!(told.contains("bad: [hidden]") && !told.contains("device-token-abc"), "{told}");
}

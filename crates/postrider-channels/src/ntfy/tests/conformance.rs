//! ntfy in the conformance suite: its column, and what it alone promises.

use std::sync::Arc;
use std::time::Duration;

use postrider_channels::ChannelTarget as _;
use postrider_channels::accounts::AccountConfig;
use postrider_channels::accounts::health::{Finding, Probe, Verdict};
use postrider_channels::definition::{BuiltChannel, ChannelParts};
use postrider_channels::ntfy::NtfyTarget;
use postrider_channels::{NetworkPolicy, registry};
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::{ChannelKind, Outcome, Report, Scope, Target};
use serde_json::{Value, json};

use crate::column::{Column, authorization};
use crate::fixture::{ChannelFixture, Keys, Secrets};
use crate::provider::{Answer, Line, Provider};

const TOKEN: &str = "tk_token_of_the_account";

pub(crate) static COLUMN: Column = Column {
    name: "ntfy",
    channel: "ntfy",
    account: Some(account),
    target: topic,
    secret_field: "topic",
    throttle_scope: Scope::Credential,
    gone: || refusal(400, 40_010, "invalid request: topic name is not allowed"),
    refused_credential: || refusal(401, 40_101, "unauthorized"),
    credential_of: authorization,
};

fn account(origin: &str, credential: &str) -> Value {
    json!({ "credential": credential, "endpoint": origin })
}

fn topic(name: &str) -> Target {
    NtfyTarget { topic: name.to_owned().into() }.to_target()
}

fn refusal(status: u16, code: u32, error: &str) -> Answer {
    let body = json!({"code": code, "http": status, "error": error});
    Answer::status(status).body(body.to_string())
}

fn published() -> Answer {
    Answer::status(200).body(json!({"id": "sPs71M8A2T", "event": "message"}).to_string())
}

/// One account at a scripted provider.
struct NtfyBench {
    fixture: ChannelFixture,
    provider: Provider,
    built: BuiltChannel,
}

impl NtfyBench {
    /// With an access token.
    async fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with(json!({"credential": format!("command:echo {TOKEN}")}), answers).await
    }

    async fn with(mut settings: Value, answers: impl IntoIterator<Item = Answer>) -> Self {
        let (fixture, provider) = (ChannelFixture::new(), Provider::start(Line::Http2).await);
        provider.answers(answers);
        settings["endpoint"] = provider.url("").into();
        let account = AccountConfig {
            name: "ntfy".to_owned(),
            tenant: None,
            is_far: false,
            priority: 0,
            cost: 0.0,
            rate: None,
            settings: settings.as_object().unwrap().clone(),
        };
        let parts = ChannelParts {
            wiring: fixture.wiring.clone(),
            network: NetworkPolicy { allow_private_targets: true, allow_plain_http: false },
            breaker: BreakerPolicy::default(),
            accounts: vec![account],
            vapid_keys: Arc::new(Keys::generate()),
            webhook_secrets: Arc::new(Secrets),
            receipts: None,
        };
        let built =
            registry::definition(ChannelKind::new("ntfy")).unwrap().build(parts).await.unwrap();
        Self { fixture, provider, built }
    }

    async fn send(&self, name: &str) -> Report {
        let attempt = self.fixture.attempt(topic(name));
        self.fixture.deliver(&*self.built.channel, vec![attempt]).await.remove(0)
    }

    async fn examine(&self) -> Vec<Finding> {
        let wiring = self.fixture.wiring.clone();
        let probe = Probe { wiring, offline: false, resolver: None };
        self.built.accounts.as_ref().unwrap().examine("ntfy", &probe).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_published_as_json_with_the_account_s_login() {
    let password = json!({"user": "ada", "credential": "command:echo secret"});
    for (settings, login) in [
        (json!({"credential": format!("command:echo {TOKEN}")}), Some(format!("Bearer {TOKEN}"))),
        (password, Some("Basic YWRhOnNlY3JldA==".to_owned())),
        (json!({}), None),
    ] {
        let fixture = NtfyBench::with(settings, [published()]).await;
        let report = fixture.send("shop").await;
        assert_eq!(report.outcome, Outcome::Accepted);
        assert_eq!(report.provider_id.as_deref(), Some("sPs71M8A2T"));
        let received = fixture.provider.received().remove(0);
        assert_eq!((received.method.as_str(), received.uri.path()), ("POST", "/"));
        assert_eq!(received.headers["content-type"], "application/json");
        let sent = received.headers.get("authorization").map(|value| value.to_str().unwrap());
        assert_eq!(sent, login.as_deref());
        let body: Value = serde_json::from_slice(&received.body).unwrap();
        let expected = json!({"topic": "shop", "title": "Shipped", "priority": 3,
            "message": "Order 91 is on its way"});
        assert_eq!(body, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_makes_the_account_wait_and_a_day_s_limit_for_an_hour() {
    for (code, error, wait_s) in [
        (42_901, "limit reached: too many requests", 60),
        (42_908, "limit reached: daily message quota reached", 3600),
    ] {
        let fixture = NtfyBench::new([refusal(429, code, error)]).await;
        let report = fixture.send("shop").await;
        let after = Duration::from_secs(wait_s);
        assert_eq!(report.outcome, Outcome::RetryAfter { after, scope: Scope::Credential });
        assert_eq!(report.code, Some(code.to_string()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_not_allowed_stops_only_its_own_messages() {
    let fixture = NtfyBench::new([refusal(403, 40_301, "forbidden"), published()]).await;
    let report = fixture.send("admin").await;
    assert_eq!(report.outcome, Outcome::DropMessage);
    assert_eq!(report.terms.strike.map(|kind| kind.name()), Some("blocked"));
    assert_eq!(fixture.send("shop").await.outcome, Outcome::Accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topic_and_the_token_are_in_no_report() {
    let words = format!("cannot publish to Shop with {TOKEN}");
    let fixture = NtfyBench::new([refusal(400, 40_017, &words)]).await;
    let report = fixture.send("shop").await;
    let detail = report.detail.clone().unwrap();
    assert!(detail.contains("cannot publish to [hidden] with [hidden]"), "{detail}");
    assert!(!format!("{report:?}").contains(TOKEN), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_asks_for_health_with_the_login_and_never_shows_the_token() {
    let healthy = Answer::status(200).body(json!({"healthy": true}).to_string());
    let fixture = NtfyBench::new([healthy, refusal(401, 40_101, "unauthorized")]).await;
    for (verdict, words) in [(Verdict::Ok, "healthy"), (Verdict::Fail, "refuses the credential")] {
        let findings = fixture.examine().await;
        assert_eq!(findings.iter().map(|found| found.verdict).max(), Some(verdict));
        assert!(format!("{findings:?}").contains(words), "{findings:?}");
    }
    let received = fixture.provider.received().remove(0);
    assert_eq!((received.method.as_str(), received.uri.path()), ("GET", "/v1/health"));
    assert_eq!(authorization(&received), format!("Bearer {TOKEN}"));
}

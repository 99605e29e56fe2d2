//! Telegram in the conformance suite: its column, and what it alone promises.

use std::time::Duration;

use postrider_channels::ChannelTarget as _;
use postrider_channels::accounts::health::{Finding, Probe, Verdict};
use postrider_channels::definition::BuiltChannel;
use postrider_channels::telegram::TelegramTarget;
use postrider_core::{Attempt, Outcome, Report, Scope, Target};
use serde_json::{Value, json};

use crate::column::Column;
use crate::fixture::{ChannelFixture, START};
use crate::provider::{Answer, Line, Provider};

const TOKEN: &str = "123456:AAF-token_of_the_bot";
const GROUP: &str = "-4001";

pub(crate) static COLUMN: Column = Column {
    name: "telegram",
    channel: "telegram",
    account: Some(account),
    target: |name| {
        let number = name.parse::<u32>().map(|n| n.to_string());
        chat(&number.unwrap_or_else(|_| format!("@{name}")))
    },
    secret_field: "chat_id",
    throttle_scope: Scope::Target,
    gone: || refusal(403, "Forbidden: bot was blocked by the user", &json!({})),
    refused_credential: || refusal(401, "Unauthorized", &json!({})),
    credential_of: |received| received.uri.path().to_owned(),
};

fn account(origin: &str, credential: &str) -> Value {
    json!({ "credential": credential, "endpoint": origin })
}

fn chat(chat_id: &str) -> Target {
    TelegramTarget { chat_id: chat_id.to_owned().into(), moved_to: None }.to_target()
}

fn refusal(status: u16, description: &str, parameters: &Value) -> Answer {
    let body = json!({"ok": false, "error_code": status, "description": description,
        "parameters": parameters});
    Answer::status(status).body(body.to_string())
}

fn sent(message_id: i64) -> Answer {
    let body = json!({"ok": true, "result": {"message_id": message_id}});
    Answer::status(200).body(body.to_string())
}

/// One bot that sends to a scripted provider.
struct BotBench {
    fixture: ChannelFixture,
    provider: Provider,
    built: BuiltChannel,
    _token: tempfile::NamedTempFile,
}

impl BotBench {
    async fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let (fixture, provider) = (ChannelFixture::new(), Provider::start(Line::Http2).await);
        provider.answers(answers);
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), TOKEN).unwrap();
        let credential = format!("file:{}", token.path().display());
        let built = COLUMN.build(fixture.wiring.clone(), &provider.url(""), &credential).await;
        Self { fixture, provider, built, _token: token }
    }

    async fn attempt(&self, attempt: Attempt) -> Report {
        let report = self.fixture.deliver(&*self.built.channel, vec![attempt]).await.remove(0);
        let told = format!("{report:?}");
        assert!(!told.contains("token_of_the_bot"), "{told}");
        report
    }

    async fn send(&self, chat_id: &str) -> Report {
        self.attempt(self.fixture.attempt(chat(chat_id))).await
    }

    fn chats(&self) -> Vec<Value> {
        let chat = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap()["chat_id"].clone();
        self.provider.received().iter().map(|received| chat(&received.body)).collect()
    }

    async fn examine(&self) -> Vec<Finding> {
        let wiring = self.fixture.wiring.clone();
        let probe = Probe { wiring, offline: false, resolver: None };
        self.built.accounts.as_ref().unwrap().examine("main", &probe).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_goes_out_as_send_message_wants_it() {
    let fixture = BotBench::new([sent(71)]).await;
    let report = fixture.send("-100200300").await;
    assert_eq!((report.outcome, report.provider_id.as_deref()), (Outcome::Accepted, Some("71")));
    let received = fixture.provider.received().remove(0);
    assert_eq!(received.uri.path(), format!("/bot{TOKEN}/sendMessage"));
    assert_eq!(received.headers["content-type"], "application/json");
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    let text = "Shipped\nOrder 91 is on its way";
    assert_eq!(body, json!({"chat_id": -100_200_300, "text": text}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_chat_strikes_and_a_chat_that_refuses_the_bot_is_gone() {
    for (status, description, outcome, strike) in [
        (400, "Bad Request: chat not found", Outcome::DropMessage, Some("number")),
        (400, "Bad Request: PEER_ID_INVALID", Outcome::DropMessage, Some("number")),
        (400, "Bad Request: message is too long", Outcome::DropMessage, None),
        (403, "Forbidden: user is deactivated", Outcome::Gone, None),
        (403, "Forbidden: bot was kicked from the group chat", Outcome::Gone, None),
        (404, "Not Found", Outcome::Config, None),
    ] {
        let fixture = BotBench::new([refusal(status, description, &json!({}))]).await;
        let report = fixture.send("5550100").await;
        assert_eq!(report.outcome, outcome, "{description}");
        assert_eq!(report.terms.strike.map(|kind| kind.name()), strike, "{description}");
        assert_eq!(report.code.as_deref(), Some(description));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_chat_waits_alone_and_several_make_the_bot_wait() {
    let busy = || refusal(429, "Too Many Requests: retry after 7", &json!({"retry_after": 7}));
    let fixture = BotBench::new([busy(), busy(), busy(), sent(1), busy()]).await;
    let waits = |scope| Outcome::RetryAfter { after: Duration::from_secs(7), scope };
    assert_eq!(fixture.send("5550100").await.outcome, waits(Scope::Target));
    assert_eq!(fixture.send("5550100").await.outcome, waits(Scope::Target));
    assert_eq!(fixture.send("5550101").await.outcome, waits(Scope::Credential));
    fixture.fixture.clock.advance(Duration::from_secs(8));
    assert_eq!(fixture.send("5550101").await.outcome, Outcome::Accepted);
    assert_eq!(fixture.send("5550102").await.outcome, waits(Scope::Target));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_became_a_supergroup_is_reached_at_once_and_remembered() {
    let moved = || {
        let words = "Bad Request: group chat was upgraded to a supergroup chat";
        refusal(400, words, &json!({"migrate_to_chat_id": -1_004_001}))
    };
    let fixture =
        BotBench::new([moved(), sent(1), sent(2), moved(), sent(3), moved(), moved()]).await;
    let registered = |target| {
        let attempt = fixture.fixture.attempt(target);
        Attempt { address_since: Some(START), ..attempt }
    };
    let report = fixture.attempt(registered(chat(GROUP))).await;
    assert_eq!((&report.outcome, report.provider_id.as_deref()), (&Outcome::Accepted, Some("1")));
    let learned = report.target.unwrap();
    let known: TelegramTarget<'_> = learned.read().unwrap();
    assert_eq!((&*known.chat_id, known.moved_to.as_deref()), (GROUP, Some("-1004001")));
    let again = fixture.attempt(registered((*learned).clone())).await;
    assert_eq!((again.outcome, again.target), (Outcome::Accepted, None));
    let inline = fixture.send(GROUP).await;
    assert_eq!((inline.outcome, inline.target), (Outcome::Accepted, None));
    assert_eq!(fixture.chats(), [-4_001, -1_004_001, -1_004_001, -4_001, -1_004_001]);
    let twice = fixture.send(GROUP).await;
    assert_eq!((twice.outcome, fixture.chats().len()), (Outcome::DropMessage, 7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_and_the_chat_are_in_no_report() {
    let words = format!("Bad Request: /bot{TOKEN}/sendMessage to 5550100 failed");
    let fixture = BotBench::new([refusal(400, &words, &json!({}))]).await;
    let report = fixture.send("5550100").await;
    let told = format!("{:?} {:?}", report.code, report.detail);
    assert!(told.contains("Bad Request: /bot[hidden]/sendMessage to [hidden] failed"), "{told}");
    assert!(!told.contains("5550100"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_asks_get_me_and_never_shows_the_token() {
    let me = json!({"ok": true, "result": {"is_bot": true, "username": "shop_bot"}});
    let known = Answer::status(200).body(me.to_string());
    let fixture = BotBench::new([known, refusal(401, "Unauthorized", &json!({}))]).await;
    for (verdict, words) in [(Verdict::Ok, "@shop_bot"), (Verdict::Fail, "refuses the token")] {
        let findings = fixture.examine().await;
        assert_eq!(findings.iter().map(|found| found.verdict).max(), Some(verdict));
        let told = format!("{findings:?}");
        assert!(told.contains(words) && !told.contains("token_of_the_bot"), "{told}");
    }
    assert_eq!(fixture.provider.received()[0].uri.path(), format!("/bot{TOKEN}/getMe"));
}

//! A server and its sandbox, brought into a state and asked about it.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use postrider::client::Client;
use postrider::config::{Config, Environment};
use postrider::serve::{Running, start_with};
use postrider_channels::settings::SecretText;
use postrider_sandbox::{FakeKind, ReceiverRequest, Sandbox, SandboxConfig};
use postrider_store::{MemoryStore, SystemClock};
use serde_json::{Value, json};

use crate::keep::keep;

const KEY: &str = "an-admin-key-for-tests";

pub(crate) struct Stage {
    sandbox: Sandbox,
    pub(crate) server: Running,
    pub(crate) api: Client,
}

impl Stage {
    /// A server with these settings beside what it needs to reach the sandbox.
    pub(crate) async fn with(settings: &str) -> Self {
        Self::before(SandboxConfig::default(), settings).await
    }

    /// One whose sandbox is a certain one.
    pub(crate) async fn before(sandbox: SandboxConfig, settings: &str) -> Self {
        let sandbox = postrider_sandbox::start(sandbox).await.unwrap();
        let mut config = Config::parse(settings, "test", &Environment::empty()).unwrap();
        config.server.listen = ([127, 0, 0, 1], 0).into();
        config.network.allow_private_targets = true;
        config.network.allow_plain_http = true;
        config.admin.key = Some(SecretText::new(KEY));
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
        let server = start_with(config, store, Arc::new(SystemClock)).await.unwrap();
        let api = Client::new(&server.url(), Some(KEY)).unwrap();
        Self { sandbox, server, api }
    }

    /// A webhook receiver that answers so; the last word repeats.
    pub(crate) fn hook(&self, name: &str, script: &[&str]) -> Value {
        let script = script.iter().map(|word| word.parse().unwrap()).collect();
        let wish = ReceiverRequest { script, ..ReceiverRequest::default() };
        self.sandbox.set_up(FakeKind::HOOK, name, &wish).unwrap();
        json!({"channel": "webhook", "url": format!("{}/hook/{name}", self.sandbox.http_origin())})
    }

    /// Sends to a new receiver with such a script; `more` goes into the message.
    pub(crate) async fn send(&self, name: &str, script: &[&str], more: Value) -> String {
        let mut message = json!({"to": {"address": self.hook(name, script)}});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let sent = self.api.post("/v1/messages", &message).await.unwrap();
        sent["deliveries"][0]["id"].as_str().unwrap().to_owned()
    }

    /// The same, and waits until it is in that state.
    pub(crate) async fn sent_into(
        &self,
        state: &str,
        name: &str,
        script: &[&str],
        more: Value,
    ) -> String {
        let id = self.send(name, script, more).await;
        self.becomes(&id, |why| why["state"] == state).await;
        id
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        self.api.post(path, body).await.unwrap()
    }

    /// The only lane there is.
    pub(crate) async fn lane(&self) -> u64 {
        let lanes = self.api.get("/v1/lanes").await.unwrap();
        lanes["lanes"][0]["id"].as_u64().unwrap()
    }

    /// Asks again until the explanation is as wanted; a whole server has no clock to move.
    async fn becomes(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/v1/deliveries/{id}/explain");
        let mut last = Value::Null;
        for _ in 0..1_500 {
            last = self.api.get(&path).await.unwrap();
            if wanted(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it never became what was wanted: {last:#}");
    }

    pub(crate) async fn sent_into_again(&self, state: &str, id: &str) {
        self.becomes(id, |why| why["state"] == state).await;
    }

    pub(crate) async fn a_breaker_opens(&self) {
        self.lane_becomes(|lane| lane["breaker"] == "open").await;
    }

    pub(crate) async fn learns_a_pace(&self) {
        self.lane_becomes(|lane| lane["held_by"] == "learned pace").await;
    }

    /// What a scrape gets.
    pub(crate) async fn metrics(&self) -> String {
        let empty = postrider::client::whole(Default::default());
        let answer = self.api.send(http::Method::GET, "/metrics", "", empty).await.unwrap();
        let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// Waits until the only lane is as wanted.
    async fn lane_becomes(&self, wanted: impl Fn(&Value) -> bool) {
        for _ in 0..6_000 {
            let lanes = self.api.get("/v1/lanes").await.unwrap();
            if wanted(&lanes["lanes"][0]) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the lane never became what was wanted");
    }

    /// Keeps what is said about a delivery in this state.
    pub(crate) async fn explained(&self, name: &str, id: &str, state: &str) {
        self.becomes(id, |why| why["state"] == state).await;
        self.keep(name, id).await;
    }

    /// Keeps what is said about a delivery that waits for this gate.
    pub(crate) async fn held(&self, name: &str, id: &str, gate: &str) {
        let wanted = format!("its lane; {gate}: ");
        let is_held =
            |why: &Value| why["waits_for"].as_str().is_some_and(|w| w.starts_with(&wanted));
        self.becomes(id, is_held).await;
        self.keep(name, id).await;
    }

    /// Asked twice: nothing may have happened in between.
    async fn keep(&self, name: &str, id: &str) {
        let path = format!("/v1/deliveries/{id}/explain");
        for _ in 0..20 {
            let why = self.api.get(&path).await.unwrap();
            assert!(!why["can_do"].as_array().unwrap().is_empty(), "nothing to be done? {why:#}");
            let (url, id) = (self.server.url(), id.to_owned());
            let told = tokio::task::spawn_blocking(move || explain_on_the_command_line(&url, &id));
            let told = told.await.unwrap();
            let after = self.api.get(&path).await.unwrap();
            if position(&after) == position(&why) {
                keep(name, &format!("{why:#}\n\n$ postrider explain ID\n{told}"));
                return;
            }
        }
        panic!("something happens all the time");
    }
}

/// What must not change while it is looked at.
fn position(why: &Value) -> (Value, Vec<Value>, Value) {
    let gates = why["gates"].as_array().into_iter().flatten();
    let verdicts = gates.map(|gate| gate["verdict"].clone()).collect();
    (why["state"].clone(), verdicts, why["delivery"]["log"].clone())
}

fn explain_on_the_command_line(server: &str, id: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["explain", id, "--server", server])
        .env("POSTRIDER_KEY", KEY)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

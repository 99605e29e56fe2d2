//! A server and a sandbox in a wanted state, in which a delivery is explained.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use postrider::client::Client;
use postrider_sandbox::{ReceiverRequest, Sandbox, SandboxConfig};
use postrider_testkit::ADMIN_KEY;
use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::ServerFixture;
use serde_json::{Value, json};

use crate::snapshot::check_snapshot;

pub(crate) struct ExplainFixture {
    sandbox: Sandbox,
    pub(crate) server: ServerFixture,
    pub(crate) api: Client,
    /// Reads what any tenant has.
    reader: Client,
}

impl ExplainFixture {
    /// A server with these settings beside what it needs to reach the sandbox.
    pub(crate) async fn with(settings: &str) -> Self {
        Self::with_sandbox(SandboxConfig::default(), settings).await
    }

    /// The same with a sandbox that is set up so.
    pub(crate) async fn with_sandbox(sandbox: SandboxConfig, settings: &str) -> Self {
        let sandbox = postrider_sandbox::start(sandbox).await.unwrap();
        let server = ServerFixture::with(&format!("{LOCAL_TARGETS}{settings}")).await;
        let (api, reader) = (server.admin(), server.admin().for_tenant(Some("*".to_owned())));
        Self { sandbox, server, api, reader }
    }

    /// A webhook receiver that answers so; the last word repeats.
    pub(crate) fn hook(&self, name: &str, script: &[&str]) -> Value {
        let script = script.iter().map(|word| word.parse().unwrap()).collect();
        let request = ReceiverRequest { script, ..ReceiverRequest::default() };
        self.sandbox.set_up("hook", name, &request).unwrap();
        json!({"channel": "webhook", "url": format!("{}/hook/{name}", self.sandbox.http_origin())})
    }

    /// Sends to a new receiver with such a script; `more` goes into the message.
    pub(crate) async fn send(&self, name: &str, script: &[&str], more: Value) -> String {
        self.send_as(&self.api, self.hook(name, script), more).await
    }

    /// The same for another caller, and to this address.
    pub(crate) async fn send_as(&self, caller: &Client, to: Value, more: Value) -> String {
        let mut message = json!({"to": {"address": to}});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let sent = caller.post("/v1/messages", &message).await.unwrap();
        sent["deliveries"][0]["id"].as_str().unwrap().to_owned()
    }

    /// The administrator, acting for this tenant.
    pub(crate) fn tenant(&self, name: &str) -> Client {
        self.server.admin().for_tenant(Some(name.to_owned()))
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

    /// Sends to as many addresses as it takes to open the tenant's breaker. Returns the last delivery.
    pub(crate) async fn all_addresses_fail(&self) -> String {
        let patient = json!({"retry": {"base_ms": 60_000, "jitter": "none"}});
        for n in 0..20 {
            let name = format!("failing-{n}");
            let last = self.sent_into("retrying", &name, &["500"], patient.clone()).await;
            let lanes = self.api.get("/v1/lanes").await.unwrap();
            if lanes["lanes"][0]["breaker"] != "closed" {
                return last;
            }
        }
        panic!("the breaker stays closed");
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        self.api.post(path, body).await.unwrap()
    }

    /// The only lane there is.
    pub(crate) async fn lane(&self) -> u64 {
        let lanes = self.api.get("/v1/lanes").await.unwrap();
        lanes["lanes"][0]["id"].as_u64().unwrap()
    }

    pub(crate) async fn explanation(&self, id: &str) -> Value {
        self.reader.get(&format!("/v1/deliveries/{id}/explain")).await.unwrap()
    }

    /// Asks again until the explanation is as wanted; a whole server has no clock to move.
    pub(crate) async fn becomes(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..1_500 {
            last = self.explanation(id).await;
            if wanted(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it never became what was wanted: {last:#}");
    }

    /// Sends to these addresses, with this answer, while a delivery waits in the lane that says why calls are
    /// limited, until it says this.
    pub(crate) async fn floods<'a>(
        &self,
        waiting: &str,
        says: &str,
        to: impl Fn(usize) -> (String, &'a str),
    ) {
        let mut nth = 0;
        for _ in 0..6_000 {
            let why = self.explanation(waiting).await;
            if gate_words(&why, "concurrency").contains(says) {
                return;
            }
            if why["lane"]["pending"].as_u64().unwrap() > 60 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            for (name, answer) in (nth..nth + 16).map(&to) {
                self.send(&name, &[answer], json!({})).await;
            }
            nth += 16;
        }
        panic!("the limit never says {says:?}");
    }

    pub(crate) async fn a_breaker_opens(&self) {
        self.lane_becomes(|lane| lane["breaker"] == "open").await;
    }

    /// Sends to new addresses of a provider that takes fewer calls, until that was noticed.
    pub(crate) async fn learns_a_pace(&self) {
        let once = json!({"retry": {"retries": 0}});
        for n in 0..3_000 {
            self.send(&format!("paced-{n}"), &["ok"], once.clone()).await;
            let lanes = self.api.get("/v1/lanes").await.unwrap();
            if lanes["lanes"][0]["held_by"] == "learned pace" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no pace is learned");
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

    /// Compares the explanation of a parked delivery with its snapshot, once its summary says this.
    pub(crate) async fn parked(&self, name: &str, id: &str, says: &str) {
        let says = |why: &Value| why["summary"].as_str().is_some_and(|text| text.contains(says));
        self.check_snapshot(name, id, |why| why["state"] == "parked" && says(why)).await;
    }

    /// Compares the explanation of a delivery in this state with its snapshot.
    pub(crate) async fn explained(&self, name: &str, id: &str, state: &str) {
        self.check_snapshot(name, id, |why| why["state"] == state).await;
    }

    /// Compares the explanation of a delivery that waits for this gate with its snapshot.
    pub(crate) async fn held(&self, name: &str, id: &str, gate: &str) {
        let wanted = format!("its lane; {gate}: ");
        let is_held =
            |why: &Value| why["waits_for"].as_str().is_some_and(|w| w.starts_with(&wanted));
        self.check_snapshot(name, id, is_held).await;
    }

    /// Asked twice: nothing may have happened in between.
    async fn check_snapshot(&self, name: &str, id: &str, wanted: impl Fn(&Value) -> bool) {
        for _ in 0..50 {
            let why = self.becomes(id, &wanted).await;
            assert!(!why["can_do"].as_array().unwrap().is_empty(), "nothing to be done? {why:#}");
            let (url, asked) = (self.server.running.url(), id.to_owned());
            let told =
                tokio::task::spawn_blocking(move || explain_on_the_command_line(&url, &asked));
            let told = told.await.unwrap();
            let after = self.explanation(id).await;
            // What holds it may have changed twice: then the command says something else.
            let is_told = |w: &str| w.split_once(':').is_none_or(|(gate, _)| told.contains(gate));
            let is_same = why["waits_for"].as_str().is_none_or(is_told);
            if is_same && position(&after) == position(&why) {
                check_snapshot(name, &format!("{why:#}\n\n$ postrider explain ID\n{told}"));
                return;
            }
        }
        panic!("something happens all the time");
    }
}

/// A host that takes connections and never answers, for as long as this lives.
pub(crate) struct SilentHost(TcpListener);

impl SilentHost {
    pub(crate) fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn hook(&self) -> Value {
        let at = self.0.local_addr().unwrap();
        json!({"channel": "webhook", "url": format!("http://{at}/")})
    }
}

/// The words of a gate in an explanation.
pub(crate) fn gate_words(why: &Value, gate: &str) -> String {
    let mut gates = why["gates"].as_array().into_iter().flatten();
    let found = gates.find(|found| found["gate"] == gate);
    found.map_or(String::new(), |found| found["detail"].as_str().unwrap().to_owned())
}

/// What must not change while it is looked at.
fn position(why: &Value) -> (Value, Vec<Value>, Value) {
    let gates = why["gates"].as_array().into_iter().flatten();
    let verdicts = gates.map(|gate| gate["verdict"].clone()).collect();
    (why["state"].clone(), verdicts, why["delivery"]["log"].clone())
}

fn explain_on_the_command_line(server: &str, id: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["explain", id, "--server", server, "--tenant", "*"])
        .env("POSTRIDER_KEY", ADMIN_KEY)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

//! Opens the old folders in a server whose clock starts where the old process ended. Every answer of the manifest is
//! compared, and everything pending is delivered to a receiver.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::HeaderMap;
use postrider::client::{Client, ClientError};
use postrider::config::{Config, Environment};
use postrider::serve::{Running, start_with};
use postrider_channels::settings::SecretText;
use postrider_core::{Clock as _, Timestamp};
use postrider_store::embedded::{EmbeddedStore, StoreOptions};
use postrider_store::{ManualClock, SystemClock};
use serde_json::{Value, json};

use crate::fixture::{ADMIN, OldFolder, configuration};

/// The port in the URLs of the folder's addresses.
const PORT: u16 = 19180;
const HOSTS: [&str; 5] = ["ok.test", "bad.test", "quiet.test", "hang.test", "late.test"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_version_0_1_that_was_stopped_opens_and_goes_on() {
    let upgrade = Upgrade::start(OldFolder::copy("stopped")).await;
    upgrade.every_answer_is_as_before().await;
    let stats = upgrade.all().get("/v1/stats").await.unwrap();
    for (field, expected) in upgrade.old.manifest["stats"].as_object().unwrap() {
        assert_eq!(&stats[field], expected, "{field}");
    }
    upgrade.repeats_get_the_first_answer().await;
    upgrade.keys_are_as_before().await;
    upgrade.everything_pending_arrives().await;
    upgrade.dead_letters_can_be_replayed().await;
    upgrade.running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_version_0_1_that_was_killed_opens_and_goes_on() {
    let upgrade = Upgrade::start(OldFolder::copy("killed")).await;
    upgrade.every_answer_is_as_before().await;
    upgrade.repeats_get_the_first_answer().await;
    upgrade.keys_are_as_before().await;
    upgrade.what_was_in_flight_is_sent_again_unless_its_class_forbids_it().await;
    upgrade.everything_pending_arrives().await;
    upgrade.dead_letters_can_be_replayed().await;
    upgrade.running.shutdown().await;
}

struct Upgrade {
    old: OldFolder,
    clock: Arc<ManualClock>,
    running: Running,
    receiver: Receiver,
}

impl Upgrade {
    async fn start(old: OldFolder) -> Self {
        let receiver = Receiver::start().await;
        let taken_at = Timestamp(old.manifest["taken_at_ms"].as_i64().unwrap());
        let clock = Arc::new(ManualClock::at(taken_at));
        let options = StoreOptions::default();
        let store = EmbeddedStore::open(old.path(), clock.clone(), options).unwrap();
        let hosts = HOSTS.map(|host| format!("\"{host}\" = \"{}\"", receiver.at)).join(", ");
        let text =
            configuration().replacen("[network]", &format!("[network]\nhosts = {{ {hosts} }}"), 1);
        let mut config = Config::parse(&text, "fixture", &Environment::empty()).unwrap();
        config.server.listen = ([127, 0, 0, 1], 0).into();
        config.admin.key = Some(SecretText::new(ADMIN));
        let running = start_with(config, Arc::new(store)).await.unwrap();
        Self { old, clock, running, receiver }
    }

    fn client(&self, key: &str, tenant: Option<&str>) -> Client {
        let client = Client::new(&self.running.url(), Some(key)).unwrap();
        client.for_tenant(tenant.map(str::to_owned))
    }

    /// The operator, for all tenants.
    fn all(&self) -> Client {
        self.client(ADMIN, Some("*"))
    }

    /// The operator, for one tenant; the default one if there is no name.
    fn one(&self, tenant: Option<&str>) -> Client {
        self.client(ADMIN, tenant)
    }

    async fn every_answer_is_as_before(&self) {
        let in_flight = self.old.ids("/in_flight");
        let answers = self.old.manifest["answers"].as_object().unwrap();
        assert!(answers.len() > 80, "{} answers in the manifest", answers.len());
        for (path, expected) in answers {
            let of_one = ["addresses", "templates", "strikes", "vapid", "webhook-secrets"];
            let of_one = of_one.contains(&path.split('/').nth(2).unwrap());
            let client = if of_one { self.one(None) } else { self.all() };
            let mut answer = client.get(path).await.unwrap();
            if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
                items.retain(|item| !in_flight.iter().any(|id| item["id"] == json!(id)));
            }
            let mut expected = expected.clone();
            if path.starts_with("/v1/limits/") {
                // What nobody set follows the defaults of the version.
                [&mut answer, &mut expected].into_iter().for_each(keep_what_was_set);
            }
            if path.starts_with("/v1/classes") {
                // Later versions say more about a class.
                forget_field(&mut answer, "quiet_hours");
            }
            if path == "/v1/keys" {
                // Later versions say more about a key.
                let listed = answer["keys"].as_array_mut().unwrap().iter_mut();
                listed.for_each(|key| drop(key.as_object_mut().unwrap().remove("scopes")));
            }
            if path == "/v1/webhook-secrets" {
                // Later versions also sign with Ed25519.
                let listed = answer["secrets"].as_array_mut().unwrap().iter_mut();
                listed.for_each(|key| drop(key.as_object_mut().unwrap().remove("public_key")));
            }
            if path.starts_with("/v1/tenants/") {
                // Later versions say what a tenant keeps.
                answer.as_object_mut().unwrap().remove("quotas");
            }
            assert_eq!(answer, expected, "{path}");
        }
    }

    async fn repeats_get_the_first_answer(&self) {
        let repeats = self.old.manifest["repeats"].as_array().unwrap();
        assert_eq!(repeats.len(), 5);
        for repeat in repeats {
            let client = self.one(repeat["tenant"].as_str());
            let mut answer = client.post("/v1/messages", &repeat["message"]).await.unwrap();
            assert_eq!(answer["duplicate"], true, "{repeat:#}");
            answer["duplicate"] = repeat["answer"]["duplicate"].clone();
            assert_eq!(answer, repeat["answer"]);
            let mut other = repeat["message"].clone();
            other["ttl_s"] = json!(77);
            let refused = client.post("/v1/messages", &other).await.unwrap_err();
            assert_eq!(status(&refused), 409, "{refused}");
        }
    }

    async fn keys_are_as_before(&self) {
        let client = self.client(self.old.text("/api_key/key"), None);
        let listed = client.get("/v1/deliveries").await.unwrap();
        let mine = listed["items"].as_array().unwrap();
        assert!(!mine.is_empty() && mine.iter().all(|item| item["tenant"] == "acme"), "{listed:#}");
        let client = self.client(self.old.text("/revoked_key/key"), None);
        assert_eq!(status(&client.get("/v1/deliveries").await.unwrap_err()), 401);
    }

    async fn what_was_in_flight_is_sent_again_unless_its_class_forbids_it(&self) {
        let careful = self.old.text("/in_flight_careful");
        let dead = self.await_state(careful, "failed").await;
        assert_eq!(dead["reason"], "ambiguous", "{dead:#}");
        for id in self.old.ids("/in_flight").iter().filter(|id| *id != careful) {
            self.await_arrival(id).await;
        }
        assert!(!self.receiver.has(careful));
    }

    async fn everything_pending_arrives(&self) {
        let group = |name: &str| self.old.ids(&format!("/pending/{name}"));
        let waiting = ["tomorrow", "retrying", "paused", "asleep"].map(group);
        assert_eq!(waiting.each_ref().map(Vec::len), [4, 1, 4, 1]);
        let early = waiting.iter().flatten().find(|id| self.receiver.has(id));
        assert_eq!(early, None, "sent before its time");
        let [tomorrow, retrying, paused, asleep] = waiting;
        let lane = &self.old.manifest["pending"]["lane"];
        self.one(None).post(&format!("/v1/lanes/{lane}/resume"), &Value::Null).await.unwrap();
        for id in &paused {
            self.await_arrival(id).await;
        }
        self.one(None).post("/v1/tenants/sleepy/resume", &Value::Null).await.unwrap();
        for id in &asleep {
            self.await_arrival(id).await;
        }
        self.clock.advance(Duration::from_secs(24 * 3600));
        for id in tomorrow.iter().chain(&retrying) {
            self.await_arrival(id).await;
        }
        let content = self.receiver.content(&paused[0]);
        assert!(content.contains("Paused 1"), "{content}");
    }

    async fn dead_letters_can_be_replayed(&self) {
        let dead = self.old.manifest["dead"].as_object().unwrap();
        let ids: Vec<_> = dead.values().map(|id| id.as_str().unwrap()).collect();
        let replayed =
            self.one(None).post("/v1/dead-letters/replay", &json!({ "ids": ids })).await.unwrap();
        assert_eq!(replayed["replayed"], ids.len(), "{replayed:#}");
        for id in ids {
            self.await_arrival(id).await;
        }
        assert!(!self.receiver.has(self.old.text("/discarded")));
    }

    async fn await_arrival(&self, id: &str) {
        let delivery = self.await_state(id, "sent").await;
        let message = delivery["message"].as_str().unwrap();
        let message = self.all().get(&format!("/v1/messages/{message}")).await.unwrap();
        // A plain HTTP request carries the key of its message, where it has one.
        let own_key = message["idempotency_key"].as_str().filter(|_| delivery["channel"] == "http");
        assert!(self.receiver.has(own_key.unwrap_or(id)), "{id}");
    }

    /// Moves the clock until the delivery has the state.
    async fn await_state(&self, id: &str, state: &str) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let delivery = self.all().get(&format!("/v1/deliveries/{id}")).await.unwrap();
            if delivery["state"] == state {
                return delivery;
            }
            assert!(Instant::now() < deadline, "not {state} within a minute: {delivery:#}");
            self.clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    }
}

fn status(error: &ClientError) -> u16 {
    match error {
        ClientError::Refused(refused) => refused.status,
        other => panic!("{other}"),
    }
}

/// The id and the body of each request.
type TakenRequests = Arc<Mutex<Vec<(String, String)>>>;

/// Takes every webhook. Listens at a loopback address of its own, because the port is fixed.
struct Receiver {
    at: IpAddr,
    taken: TakenRequests,
}

impl Receiver {
    async fn start() -> Self {
        let taken: TakenRequests = Arc::default();
        let router = axum::Router::new().fallback(take).with_state(taken.clone());
        let (listener, at) = listen().await;
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { at, taken }
    }

    fn has(&self, id: &str) -> bool {
        self.taken.lock().unwrap().iter().any(|(taken, _)| taken == id)
    }

    fn content(&self, id: &str) -> String {
        let taken = self.taken.lock().unwrap();
        let found: BTreeSet<_> = taken.iter().filter(|(taken, _)| taken == id).collect();
        assert_eq!(found.len(), 1, "{id}");
        found.first().unwrap().1.clone()
    }
}

async fn take(State(taken): State<TakenRequests>, headers: HeaderMap, body: String) {
    let id = headers.get("webhook-id").or_else(|| headers.get("idempotency-key"));
    let id = id.unwrap().to_str().unwrap().to_owned();
    taken.lock().unwrap().push((id, body));
}

async fn listen() -> (tokio::net::TcpListener, IpAddr) {
    let chance = SystemClock.now().0 as u32 ^ std::process::id().rotate_left(16);
    for n in chance..chance + 100 {
        let [_, a, b, c] = n.to_be_bytes();
        let loopback =
            if cfg!(target_os = "linux") { [127, a, b, c.max(1)] } else { [127, 0, 0, 1] };
        let at = IpAddr::V4(Ipv4Addr::from(loopback));
        if let Ok(listener) = tokio::net::TcpListener::bind(SocketAddr::new(at, PORT)).await {
            return (listener, at);
        }
    }
    panic!("no loopback address has port {PORT} free");
}

/// Removes a field wherever it is.
fn forget_field(value: &mut Value, name: &str) {
    match value {
        Value::Object(fields) => {
            fields.remove(name);
            fields.values_mut().for_each(|inner| forget_field(inner, name));
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| forget_field(inner, name)),
        _ => {}
    }
}

fn keep_what_was_set(limits: &mut Value) {
    let set = limits["set"].clone();
    if let Some(fields) = limits.as_object_mut() {
        fields.retain(|name, _| {
            set.get(name).is_some() || name.starts_with("set") || name == "source"
        });
    }
}

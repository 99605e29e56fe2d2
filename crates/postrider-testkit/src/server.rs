//! A server in the test's process, over a store in memory, and the calls that tests make.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use postrider::client::{Client, whole};
use postrider::config::{Config, Environment};
use postrider::serve::{Running, start_with};
use postrider_core::ports::store::Store;
use postrider_store::{ManualClock, MemoryStore, SystemClock};
use serde_json::{Value, json};

use crate::ADMIN_KEY;
use crate::process::LOCAL_TARGETS;

/// Webhook answers that strike an address: 404 at the second time, 422 at the first.
pub const STRIKE_RULES: &str = r#"
[[classify]]
service = "webhook"
status = 404
outcome = "drop_message"
strike = "number"
[[classify]]
service = "webhook"
status = 422
outcome = "drop_message"
strike = "blocked"
[strikes]
blocked = 1
"#;

pub struct ServerFixture {
    pub running: Running,
}

pub struct TestReply {
    pub status: u16,
    pub content_type: String,
    pub body: Value,
}

impl ServerFixture {
    pub async fn start() -> Self {
        Self::with("").await
    }

    /// One that may reach receivers on this machine.
    pub async fn with_local_targets() -> Self {
        Self::with(LOCAL_TARGETS).await
    }

    /// One over the test's own store.
    pub async fn over(store: Arc<dyn Store>) -> Self {
        Self::build("", store).await
    }

    /// One with the test's own settings.
    pub async fn with(text: &str) -> Self {
        Self::build(text, Arc::new(MemoryStore::new(Arc::new(SystemClock)))).await
    }

    /// One with a clock that the test moves.
    pub async fn at(text: &str, clock: Arc<ManualClock>) -> Self {
        Self::build(text, Arc::new(MemoryStore::new(clock))).await
    }

    /// One with the test's own settings and store.
    pub async fn build(text: &str, store: Arc<dyn Store>) -> Self {
        let mut config = Config::parse(text, "test", &Environment::empty()).unwrap();
        config.server.listen = ([127, 0, 0, 1], 0).into();
        config.admin.key = Some(postrider_channels::settings::SecretText::new(ADMIN_KEY));
        Self { running: start_with(config, store).await.unwrap() }
    }

    pub fn client(&self, key: &str) -> Client {
        Client::new(&self.running.url(), Some(key)).unwrap()
    }

    pub fn admin(&self) -> Client {
        self.client(ADMIN_KEY)
    }

    pub async fn key(&self, scope: &str, tenant: &str) -> String {
        let body = json!({"name": "test", "scope": scope, "tenant": tenant});
        let made = self.admin().post("/v1/keys", &body).await.unwrap();
        made["key"].as_str().unwrap().to_owned()
    }

    /// Posts to `/v1/messages` as the admin.
    pub async fn post(&self, body: impl Into<Bytes>) -> TestReply {
        reply(&self.admin(), Method::POST, "/v1/messages", body).await
    }
}

pub async fn reply(
    client: &Client,
    method: Method,
    path: &str,
    body: impl Into<Bytes>,
) -> TestReply {
    send(client, method, path, "application/json", body).await
}

pub async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: impl Into<Bytes>,
) -> TestReply {
    let response = client.send(method, path, content_type, whole(body.into())).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let content_type = parts.headers.get("content-type").map(|v| v.to_str().unwrap().to_owned());
    TestReply {
        status: parts.status.as_u16(),
        content_type: content_type.unwrap_or_default(),
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    }
}

/// A webhook message that waits for tomorrow, so that nothing is sent; the same every time.
pub fn message() -> Value {
    static TOMORROW: LazyLock<String> = LazyLock::new(|| {
        (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24)).to_string()
    });
    json!({
        "to": {"address": {"channel": "webhook", "url": "https://example.com/hook"}},
        "content": {"title": "Shipped"},
        "send_at": *TOMORROW,
    })
}

/// Asks again until the answer is as wanted; there is no clock to move in a whole server.
pub async fn eventually(client: &Client, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..500 {
        let value = client.get(path).await.unwrap();
        if wanted(&value) {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{path} never became what was wanted");
}

/// A folder for the secrets and certificates of a test; ends with it.
pub struct TestFolder(tempfile::TempDir);

impl TestFolder {
    #[expect(clippy::new_without_default, reason = "a folder is made on purpose")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

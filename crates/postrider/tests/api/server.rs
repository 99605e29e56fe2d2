//! A server for one test, and the calls that tests make.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use postrider::client::{Client, whole};
use postrider::config::{Config, Environment};
use postrider::serve::{Running, start_with};
use postrider_core::Clock;
use postrider_core::ports::store::Store;
use postrider_store::{ManualClock, MemoryStore, SystemClock};
use serde_json::{Value, json};

pub(crate) const ADMIN: &str = "an-admin-key-for-tests";

pub(crate) struct Server {
    pub(crate) running: Running,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with("").await
    }

    /// One that may reach this machine, where nothing listens.
    pub(crate) async fn with_local_targets() -> Self {
        Self::with("[network]\nallow_private_targets = true\nallow_plain_http = true\n").await
    }

    /// One over a store of the test's own.
    pub(crate) async fn over(store: Arc<dyn Store>) -> Self {
        Self::build("", store).await
    }

    /// One with settings of the test's own.
    pub(crate) async fn with(text: &str) -> Self {
        Self::build(text, Arc::new(MemoryStore::new(Arc::new(SystemClock)))).await
    }

    /// One that lives by the test's clock.
    pub(crate) async fn at(text: &str, clock: Arc<ManualClock>) -> Self {
        Self::live(text, Arc::new(MemoryStore::new(clock.clone())), clock).await
    }

    async fn build(text: &str, store: Arc<dyn Store>) -> Self {
        Self::live(text, store, Arc::new(SystemClock)).await
    }

    async fn live(text: &str, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let mut config = Config::parse(text, "test", &Environment::empty()).unwrap();
        config.server.listen = ([127, 0, 0, 1], 0).into();
        config.admin.key = Some(postrider_channels::settings::SecretText::new(ADMIN));
        Self { running: start_with(config, store, clock).await.unwrap() }
    }

    pub(crate) fn client(&self, key: &str) -> Client {
        Client::new(&self.running.url(), Some(key)).unwrap()
    }

    pub(crate) fn admin(&self) -> Client {
        self.client(ADMIN)
    }

    pub(crate) async fn key(&self, scope: &str, tenant: &str) -> String {
        let body = json!({"name": "test", "scope": scope, "tenant": tenant});
        let made = self.admin().post("/v1/keys", &body).await.unwrap();
        made["key"].as_str().unwrap().to_owned()
    }

    /// Posts to `/v1/messages` as the admin.
    pub(crate) async fn post(&self, body: impl Into<Bytes>) -> Reply {
        reply(&self.admin(), Method::POST, "/v1/messages", body).await
    }
}

pub(crate) async fn reply(
    client: &Client,
    method: Method,
    path: &str,
    body: impl Into<Bytes>,
) -> Reply {
    send(client, method, path, "application/json", body).await
}

pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: impl Into<Bytes>,
) -> Reply {
    let response = client.send(method, path, content_type, whole(body.into())).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let content_type = parts.headers.get("content-type").map(|v| v.to_str().unwrap().to_owned());
    Reply {
        status: parts.status.as_u16(),
        content_type: content_type.unwrap_or_default(),
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    }
}

/// A webhook message that waits for tomorrow, so that nothing is sent; the same every time.
pub(crate) fn message() -> Value {
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
pub(crate) async fn eventually(
    client: &Client,
    path: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    for _ in 0..500 {
        let value = client.get(path).await.unwrap();
        if wanted(&value) {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{path} never became what was wanted");
}

/// Where a test keeps secrets and certificates; ends with it.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file and says where it is.
    pub(crate) fn keep(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

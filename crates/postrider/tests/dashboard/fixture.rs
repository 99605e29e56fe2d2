//! A server with work of every kind, its receivers, and a browser that is signed in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use postrider_testkit::browser::Browser;
use postrider_testkit::foreign;
use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::{ServerFixture, eventually};
use serde_json::{Value, json};

/// A receiver of webhooks whose answer the test chooses.
pub(crate) struct HookReceiver {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    count: Arc<AtomicUsize>,
}

impl HookReceiver {
    pub(crate) async fn answering(status: u16) -> Self {
        let (status, count) = (Arc::new(AtomicU16::new(status)), Arc::new(AtomicUsize::new(0)));
        let (answer, counted) = (status.clone(), count.clone());
        let router = Router::new().fallback(async move || {
            let status = StatusCode::from_u16(answer.load(Ordering::Relaxed)).unwrap();
            if status.is_success() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            (status, if status.is_success() { "thanks" } else { "no such order" })
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, status, count }
    }

    pub(crate) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Webhooks that it took.
    pub(crate) fn taken(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

pub(crate) struct DashboardFixture {
    pub(crate) server: ServerFixture,
    pub(crate) healthy: HookReceiver,
    /// Refuses for good.
    pub(crate) refusing: HookReceiver,
    /// Fails for now.
    pub(crate) failing: HookReceiver,
}

impl DashboardFixture {
    pub(crate) async fn new() -> Self {
        Self::with("").await
    }

    /// With more settings.
    pub(crate) async fn with(more: &str) -> Self {
        let settings = format!(
            "{LOCAL_TARGETS}{more}[problems]\nresolves_after_s = 10\n[tenants.acme]\nweight = 2\n[tenants.globex]\nrate_per_s = 50\n"
        );
        Self {
            server: ServerFixture::with(&settings).await,
            healthy: HookReceiver::answering(200).await,
            refusing: HookReceiver::answering(400).await,
            failing: HookReceiver::answering(503).await,
        }
    }

    /// Hands in a webhook for a tenant, and returns the id of its delivery.
    pub(crate) async fn send(&self, tenant: &str, to: &HookReceiver, path: &str) -> String {
        let message = json!({
            "to": {"address": {"channel": "webhook", "url": to.url(path)}},
            "content": {"title": "Order 91 is on its way", "body": "It arrives tomorrow."},
            "tags": ["orders"],
            "retry": {"retries": 6, "base_ms": 60_000, "kind": "fixed", "jitter": "none"},
        });
        let key = self.server.key("send", tenant).await;
        let sent = self.server.client(&key).post("/v1/messages", &message).await.unwrap();
        sent["deliveries"][0]["id"].as_str().unwrap().to_owned()
    }

    /// The same, once it is in a state.
    pub(crate) async fn sent_until(
        &self,
        tenant: &str,
        to: &HookReceiver,
        path: &str,
        state: &str,
    ) -> String {
        let id = self.send(tenant, to, path).await;
        let path = format!("/v1/deliveries/{id}");
        let key = self.server.key("read", tenant).await;
        eventually(&self.server.client(&key), &path, |found| found["state"] == state).await;
        id
    }

    /// Work of every kind.
    pub(crate) async fn populate(&self) {
        for n in 0..24 {
            self.sent_until("acme", &self.healthy, &format!("/orders/{n}"), "sent").await;
        }
        for n in 0..7 {
            self.sent_until("acme", &self.refusing, &format!("/orders/{n}"), "failed").await;
        }
        for n in 0..3 {
            self.sent_until("globex", &self.refusing, &format!("/hooks/{n}"), "failed").await;
        }
        for n in 0..5 {
            self.sent_until("globex", &self.failing, &format!("/hooks/{n}"), "retrying").await;
        }
    }

    /// A page of the server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.running.url())
    }

    /// A browser whose person signed in with a key of these rights; `*` for all tenants.
    pub(crate) async fn signed_in(&self, scopes: &str, tenant: &str) -> Browser {
        let key = self.server.key(scopes, tenant).await;
        self.signed_in_with(&key)
    }

    pub(crate) fn signed_in_with(&self, key: &str) -> Browser {
        blocking(|| {
            let mut browser = Browser::start().unwrap();
            browser.open(&self.url("/")).unwrap();
            browser.wait_for("document.querySelector('.sign-in #key')").unwrap();
            browser.fill("#key", key).unwrap();
            browser.click(".sign-in button").unwrap();
            browser.wait_for("document.querySelector('#live.on')").unwrap();
            browser
        })
    }
}

/// Runs what waits for the browser while the server goes on.
pub(crate) fn blocking<T>(run: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(run)
}

pub(crate) fn text(browser: &mut Browser, selector: &str) -> String {
    let found =
        browser.evaluate(&format!("document.querySelector({})?.innerText", json!(selector)));
    found.unwrap().as_str().unwrap_or_default().to_owned()
}

/// Nothing that the policy of the page forbids, no error of a script, no request to another host.
pub(crate) fn assert_clean(fixture: &DashboardFixture, browser: &mut Browser, page: &str) {
    assert_eq!(browser.breaches().unwrap(), Vec::<String>::new(), "{page}");
    let own = fixture.url("/");
    let foreign: Vec<_> = browser
        .requests()
        .unwrap()
        .iter()
        .filter(|url| !url.starts_with(&own) && *url != "about:blank")
        .cloned()
        .collect();
    assert_eq!(foreign, Vec::<String>::new(), "{page} asked others");
}

/// The accessibility checker, at the version of the lock file.
fn axe() -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("axe-4.14.0");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dashboard/axe");
    foreign::once(&folder, |folder| {
        std::fs::create_dir_all(folder).unwrap();
        for name in ["package.json", "package-lock.json"] {
            std::fs::copy(own.join(name), folder.join(name)).unwrap();
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder);
        foreign::run_after(&["install", "-y", "--no-install-recommends", "npm"], npm);
    });
    std::fs::read_to_string(folder.join("node_modules/axe-core/axe.min.js")).unwrap()
}

/// What the checker finds that is serious, as texts.
pub(crate) fn serious(browser: &mut Browser) -> Vec<String> {
    browser.evaluate(&format!("{}; 1", axe())).unwrap();
    let run = "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations\
        .filter((v) => ['serious', 'critical'].includes(v.impact))\
        .map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html + ' ' + (n.any[0]?.message || '')).join(' | ')}`))";
    let found = browser.evaluate(run).unwrap();
    found.as_array().unwrap().iter().map(|v: &Value| v.as_str().unwrap().to_owned()).collect()
}

/// Writes pictures of the page to the folder of `POSTRIDER_SCREENSHOTS`, if there is one.
pub(crate) fn shoot(browser: &mut Browser, name: &str) {
    let Some(folder) = std::env::var_os("POSTRIDER_SCREENSHOTS").map(PathBuf::from) else { return };
    for (form, width, height, dark) in
        [("light", 1280, 860, false), ("dark", 1280, 860, true), ("phone", 390, 844, false)]
    {
        browser.emulate(width, height, dark).unwrap();
        browser.evaluate("dispatchEvent(new Event('postrider:colours'))").unwrap();
        browser.screenshot(&folder.join(format!("{name}-{form}.png"))).unwrap();
    }
    browser.emulate(1280, 860, false).unwrap();
}

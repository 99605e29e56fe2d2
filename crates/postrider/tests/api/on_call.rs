//! A night on call: faults are put into a busy server. For each, one alert arrives, its link leads to the right
//! problem, and the problem resolves by itself. Nothing else alerts.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use http::Method;
use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::{ServerFixture, eventually, reply};
use serde_json::{Value, json};

/// An alert arrives in this time.
const ALERTED_IN: Duration = Duration::from_secs(30);
/// A problem is resolved in this time after its cause ended.
const RESOLVED_IN: Duration = Duration::from_secs(60);

/// A receiver whose answer the test chooses.
struct TestReceiver {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl TestReceiver {
    async fn start() -> Self {
        let (status, bodies) = (Arc::new(AtomicU16::new(200)), Arc::new(Mutex::new(Vec::new())));
        let (answer, kept) = (status.clone(), bodies.clone());
        let router = Router::new().fallback(async move |body: axum::body::Bytes| {
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            kept.lock().unwrap().push(body);
            StatusCode::from_u16(answer.load(Ordering::Relaxed)).unwrap()
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, status, bodies }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    fn alerts(&self) -> Vec<Value> {
        self.bodies.lock().unwrap().iter().map(|body| body["alert"].clone()).collect()
    }

    /// Waits for an alert of this kind that tells this.
    async fn alert(&self, kind: &str, event: &str, within: Duration) -> Value {
        let begin = Instant::now();
        loop {
            let is_it = |alert: &&Value| alert["kind"] == kind && alert["event"] == event;
            if let Some(alert) = self.alerts().iter().find(is_it) {
                return alert.clone();
            }
            let all = self.alerts();
            assert!(begin.elapsed() < within, "no alert that {kind} is {event}; came: {all:#?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn send(server: &ServerFixture, receiver: &TestReceiver, path: &str) {
    let message = json!({
        "to": {"address": {"channel": "webhook", "url": receiver.url(path)}},
        "content": {"title": "Shipped"},
        "retry": {"retries": 100, "base_ms": 500, "kind": "fixed", "jitter": "none"},
    });
    server.admin().post("/v1/messages", &message).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_night_alerts_once_and_resolves_by_itself() {
    let (pager, healthy) = (TestReceiver::start().await, TestReceiver::start().await);
    let (down, locked) = (TestReceiver::start().await, TestReceiver::start().await);
    let settings = format!(
        "{LOCAL_TARGETS}[breaker]\nopen_s = 1\nopen_s_max = 2\n[problems]\nresolves_after_s = 10\n\
         [[classify]]\nservice = \"webhook\"\nstatus = 401\noutcome = \"config\"\n\
         [alerts.routes.oncall]\nkind = \"webhook\"\nurl = \"{}\"\nseverity = \"notice\"\n",
        pager.url("/page")
    );
    let server = Arc::new(ServerFixture::with(&settings).await);
    let traffic = {
        let (server, url) = (server.clone(), healthy.url("/hook"));
        tokio::spawn(async move {
            let admin = server.admin();
            for n in 0.. {
                let to =
                    json!({"address": {"channel": "webhook", "url": format!("{url}/{}", n % 20)}});
                let message = json!({"to": to, "content": {"title": "Daily work"}});
                let _ = admin.post("/v1/messages", &message).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    };
    for (receiver, status, kind) in
        [(&down, 503, "breaker_open"), (&locked, 401, "credential_failing")]
    {
        receiver.answers(status);
        for n in 0..30 {
            send(&server, receiver, &format!("/hook/{n}")).await;
        }
        let opened = pager.alert(kind, "opened", ALERTED_IN).await;
        let id = opened["problem"].as_str().unwrap().to_owned();
        assert!(opened["link"].as_str().unwrap().ends_with(&format!("/problems/{id}")), "{opened}");
        assert!(!opened["remedy"].as_str().unwrap().is_empty());
        let path = format!("/v1/problems/{id}");
        let problem = server.admin().get(&path).await.unwrap();
        assert_eq!(problem["provider"], receiver.url(""), "{problem}");
        assert_eq!((&problem["kind"], &problem["state"]), (&json!(kind), &json!("open")));
        assert_eq!(problem["tenants"][0]["tenant"], "default", "{problem}");
        receiver.answers(200);
        let resolved = pager.alert(kind, "resolved", RESOLVED_IN).await;
        assert_eq!(resolved["problem"], id);
        let problem = server.admin().get(&path).await.unwrap();
        assert_eq!(problem["state"], "resolved");
    }
    let told: Vec<_> = pager
        .alerts()
        .iter()
        .map(|alert| format!("{} {}", alert["kind"], alert["event"]))
        .collect();
    assert_eq!(told.len(), 4, "nothing else alerts: {told:?}");
    let all = server.admin().get("/v1/problems?state=all").await.unwrap();
    assert_eq!(all["problems"].as_array().unwrap().len(), 2, "{all:#}");
    traffic.abort();
}

/// A server whose account has no credential: a problem from the start.
async fn without_credential(more: &str) -> ServerFixture {
    let text = format!(
        "{LOCAL_TARGETS}[accounts.apple]\nchannel = \"apns\"\ntenant = \"acme\"\n\
         credential = \"file:/nowhere/apple.pem\"\n{more}"
    );
    ServerFixture::with(&text).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_that_is_not_sent_goes_by_the_backup() {
    let (broken, backup) = (TestReceiver::start().await, TestReceiver::start().await);
    broken.answers(503);
    let routes = format!(
        "[alerts]\nbackup_after_s = 5\nlink_base = \"https://p.example\"\n\
         [alerts.routes.first]\nkind = \"webhook\"\nurl = \"{}\"\nbackup = \"second\"\n\
         [alerts.routes.second]\nkind = \"slack\"\nurl = \"{}\"\n",
        broken.url("/a"),
        backup.url("/b")
    );
    let server = without_credential(&routes).await;
    broken.alert("credential_failing", "opened", ALERTED_IN).await;
    let begin = Instant::now();
    let text = loop {
        if let Some(body) = backup.bodies.lock().unwrap().first() {
            break body["text"].as_str().unwrap_or_default().to_owned();
        }
        assert!(begin.elapsed() < ALERTED_IN, "the backup was never used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(text.contains("https://p.example/problems/prb_"), "{text}");
    assert!(text.contains("postrider doctor"), "the remedy is missing: {text}");
    let admin = server.admin();
    let listed = admin.get("/v1/alerts").await.unwrap();
    assert_eq!(listed["routes"][1]["is_backup"], true, "{listed}");
    assert!(!listed.to_string().contains("127.0.0.1"), "no URL is shown: {listed}");
    let tested = admin.post("/v1/alerts/test", &json!({"route": "second"})).await.unwrap();
    assert!(tested["alerts"][0]["delivery"].is_string(), "{tested}");
    let wrong = reply(&admin, Method::POST, "/v1/alerts/test", r#"{"route":"third"}"#).await;
    assert_eq!((wrong.status, &wrong.body["errors"][0]["field"]), (422, &json!("route")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_problem_is_acknowledged_and_muted_by_those_whom_it_concerns_only() {
    let server = without_credential("").await;
    let admin = server.admin();
    let is_one = |list: &Value| list["problems"].as_array().is_some_and(|all| all.len() == 1);
    let list = eventually(&admin, "/v1/problems", is_one).await;
    let problem = &list["problems"][0];
    assert_eq!(
        (&problem["kind"], &problem["provider"]),
        (&json!("credential_failing"), &json!("apple"))
    );
    assert_eq!(problem["status_page"], "https://developer.apple.com/system-status/");
    let path = format!("/v1/problems/{}", problem["id"].as_str().unwrap());
    let act = async |key: &str, what: &str, body: &str| {
        let path = format!("{path}/{what}");
        let answer = reply(&server.client(key), Method::POST, &path, body.to_owned()).await;
        (answer.status, answer.body["state"].clone())
    };
    let (own, other) = (server.key("tenant", "acme").await, server.key("tenant", "shop").await);
    assert_eq!(server.client(&own).get(&path).await.unwrap()["tenants"][0]["tenant"], "acme");
    assert_eq!(reply(&server.client(&other), Method::GET, &path, "").await.status, 404);
    let none = server.client(&other).get("/v1/problems?state=all").await.unwrap();
    assert_eq!(none["problems"], json!([]));
    let key = postrider_testkit::ADMIN_KEY;
    assert_eq!(act(&other, "acknowledge", "").await.0, 404);
    assert_eq!(act(&own, "acknowledge", "").await, (200, json!("acknowledged")));
    assert_eq!(act(key, "acknowledge", "").await, (200, json!("acknowledged")));
    assert_eq!(act(key, "mute", r#"{"for_s":60}"#).await, (200, json!("muted")));
    assert_eq!(act(key, "mute", r#"{"for_s":0}"#).await.0, 422);
    assert_eq!(act(key, "unmute", "").await, (200, json!("acknowledged")));
    assert_eq!(act(key, "unacknowledge", "").await, (200, json!("open")));
    let audit = admin.get("/v1/audit?action=problem.mute").await.unwrap();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "{audit}");
    let wrong = reply(&admin, Method::GET, "/v1/problems?kind=bad_luck", "").await;
    assert_eq!((wrong.status, &wrong.body["errors"][0]["field"]), (422, &json!("kind")));
}

//! A night on call: faults are put into a busy server. For each, one alert arrives, its link leads to the right
//! problem, the remedy that it names works, and the problem resolves by itself. Nothing else alerts.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_store::{EmbeddedStore, StoreOptions, SystemClock};
use postrider_testkit::http;
use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::ServerFixture;
use serde_json::{Value, json};

use super::alert_receiver::{ALERTED_IN, TestReceiver};

/// A problem is resolved in this time after its cause ended. New dead letters are counted by the minute.
const RESOLVED_IN: Duration = Duration::from_secs(180);
/// Deliveries that were parked go on in this time.
const MENDED_IN: Duration = Duration::from_secs(60);
const DISK: u64 = 128 << 20;
const RESERVE: u64 = 8 << 20;
/// Less than twice the reserve, and more than the daily work needs during the test.
const LEFT: u64 = 12 << 20;

/// A small disk of its own, if this machine can mount one.
struct SmallDisk {
    dir: tempfile::TempDir,
    is_mounted: bool,
}

impl SmallDisk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={DISK}"), "tmpfs"]).arg(dir.path());
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        if !is_mounted {
            eprintln!("NOT TESTED: a disk that is nearly full needs one that can be mounted");
        }
        Self { dir, is_mounted }
    }

    fn free(&self) -> u64 {
        let mut df = Command::new("df");
        let found = df.args(["--output=avail", "-B1"]).arg(self.dir.path()).output().unwrap();
        let text = String::from_utf8(found.stdout).unwrap();
        text.lines().last().unwrap().trim().parse().unwrap()
    }

    fn ballast(&self) -> PathBuf {
        self.dir.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
        }
    }
}

/// What goes wrong, and what it must be called.
struct NightFault {
    kind: &'static str,
    /// Whom it concerns; the whole server if nobody.
    tenant: Option<&'static str>,
    /// What its receiver answers.
    status: u16,
    deliveries: usize,
    /// Different addresses, or one for all.
    has_addresses: bool,
    receiver: TestReceiver,
}

impl NightFault {
    async fn of(kind: &'static str, tenant: &'static str, status: u16, deliveries: usize) -> Self {
        let receiver = TestReceiver::start().await;
        Self { kind, tenant: Some(tenant), status, deliveries, has_addresses: true, receiver }
    }

    /// The provider of the problem; empty if it is about the server.
    fn provider(&self) -> String {
        if self.tenant.is_some() { self.receiver.url("") } else { String::new() }
    }

    async fn inject(&self, server: &ServerFixture, disk: &SmallDisk) {
        let Some(tenant) = self.tenant else {
            let ballast = vec![7; usize::try_from(disk.free() - LEFT).unwrap()];
            return std::fs::write(disk.ballast(), ballast).unwrap();
        };
        self.receiver.answers(self.status);
        let sender = server.client(&server.key("send", tenant).await);
        for n in 0..self.deliveries {
            let path = if self.has_addresses { format!("/hook/{n}") } else { "/hook".to_owned() };
            let message = json!({
                "to": {"address": {"channel": "webhook", "url": self.receiver.url(&path)}},
                "content": {"title": "Shipped"},
                "retry": {"retries": 100, "base_ms": 200, "kind": "fixed", "jitter": "none"},
            });
            sender.post("/v1/messages", &message).await.unwrap();
        }
    }

    /// What the alert says that can be done.
    async fn remedy(&self, server: &ServerFixture, disk: &SmallDisk) {
        let Some(tenant) = self.tenant else {
            return std::fs::remove_file(disk.ballast()).unwrap();
        };
        let own = server.client(&server.key("tenant", tenant).await);
        match self.kind {
            // The receiver takes what is signed with a new secret.
            "credential_failing" => {
                own.post("/v1/webhook-secrets/rotate", &Value::Null).await.unwrap();
            }
            "dead_letters" => {
                self.receiver.answers(200);
                let filter = json!({"provider": self.provider(), "reason": "permanent"});
                let job = json!({"kind": "replay", "filter": filter, "rate_per_s": 50});
                own.post("/v1/jobs", &job).await.unwrap();
            }
            _ => self.receiver.answers(200),
        }
    }

    /// Whether its deliveries are sent after all.
    async fn is_mended(&self, server: &ServerFixture) -> bool {
        let Some(tenant) = self.tenant else { return true };
        let own = server.client(&server.key("read", tenant).await);
        let path = format!("/v1/deliveries?provider={}&limit=100", self.provider());
        let found = own.get(&path).await.unwrap();
        let items = found["items"].as_array().unwrap();
        items.len() == self.deliveries && items.iter().all(|item| item["state"] == "sent")
    }
}

/// The page that the link of an alert leads to.
async fn opened_page(server: &ServerFixture, id: &str) -> String {
    let admin = server.admin();
    let code = admin.post("/v1/sign-in-codes", &Value::Null).await.unwrap();
    let session = admin.post("/v1/sign-in", &json!({"code": code["code"]})).await.unwrap();
    let session = session["key"].as_str().unwrap().to_owned();
    let (address, path) = (server.running.addr, format!("/problems/{id}"));
    let page = tokio::task::spawn_blocking(move || http::page(address, &path, &session));
    page.await.unwrap().unwrap().body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_night_alerts_once_and_resolves_by_itself() {
    let (pager, healthy) = (TestReceiver::start().await, TestReceiver::start().await);
    let disk = SmallDisk::new();
    let settings = format!(
        "{LOCAL_TARGETS}[dispatch]\npark_s = 2\n[breaker]\nopen_s = 1\nopen_s_max = 2\nstorm_retries_min = 10\n\
         [problems]\nresolves_after_s = 10\n\
         [[classify]]\nservice = \"webhook\"\nstatus = 401\noutcome = \"config\"\n\
         [[classify]]\nservice = \"webhook\"\nstatus = 422\noutcome = \"drop_message\"\n\
         [alerts.routes.oncall]\nkind = \"webhook\"\nurl = \"{}\"\nseverity = \"notice\"\n",
        pager.url("/page")
    );
    let options = StoreOptions { reserve_bytes: RESERVE, ..StoreOptions::default() };
    let data = disk.dir.path().join("data");
    let store = EmbeddedStore::open(&data, Arc::new(SystemClock), options).unwrap();
    let server = Arc::new(ServerFixture::build(&settings, Arc::new(store)).await);
    let storm = NightFault::of("retry_storm", "globex", 503, 1).await;
    let traffic = {
        // The host of the retry storm works for another tenant.
        let (server, urls) = (server.clone(), [&healthy, &storm.receiver].map(|r| r.url("/daily")));
        tokio::spawn(async move {
            let admin = server.admin();
            for n in 0.. {
                let url = format!("{}/{}", urls[n % 2], n % 20);
                let to = json!({"address": {"channel": "webhook", "url": url}});
                let message = json!({"to": to, "content": {"title": "Daily work"}});
                let _ = admin.post("/v1/messages", &message).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    };
    let full = NightFault::of("store", "", 200, 0).await;
    let mut faults = vec![
        NightFault::of("breaker_open", "default", 503, 30).await,
        NightFault::of("credential_failing", "initech", 401, 30).await,
        NightFault { has_addresses: false, ..storm },
        NightFault::of("dead_letters", "acme", 422, 8).await,
    ];
    if disk.is_mounted {
        faults.push(NightFault { tenant: None, ..full });
    }
    let mut ids = Vec::new();
    for fault in &faults {
        fault.inject(&server, &disk).await;
        let opened = pager.alert(fault.kind, "opened", ALERTED_IN).await;
        let id = opened["problem"].as_str().unwrap().to_owned();
        assert!(opened["link"].as_str().unwrap().ends_with(&format!("/problems/{id}")), "{opened}");
        assert!(!opened["remedy"].as_str().unwrap().is_empty());
        let problem = server.admin().get(&format!("/v1/problems/{id}")).await.unwrap();
        assert_eq!((&problem["kind"], &problem["state"]), (&json!(fault.kind), &json!("open")));
        assert_eq!(problem["provider"].as_str().unwrap_or_default(), fault.provider());
        let tenants = problem["tenants"].as_array().unwrap().iter();
        let tenants: Vec<_> = tenants.map(|tenant| tenant["tenant"].as_str().unwrap()).collect();
        assert_eq!(tenants, fault.tenant.into_iter().collect::<Vec<_>>(), "{problem}");
        let page = opened_page(&server, &id).await;
        assert!(page.contains(problem["title"].as_str().unwrap()), "{page}");
        fault.remedy(&server, &disk).await;
        ids.push(id);
    }
    for (fault, id) in faults.iter().zip(ids) {
        let resolved = pager.alert(fault.kind, "resolved", RESOLVED_IN).await;
        assert_eq!(resolved["problem"], id);
        let problem = server.admin().get(&format!("/v1/problems/{id}")).await.unwrap();
        assert_eq!(problem["state"], "resolved");
        let begin = Instant::now();
        while !fault.is_mended(&server).await {
            let kind = fault.kind;
            assert!(begin.elapsed() < MENDED_IN, "the remedy of {kind} does not work");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    let alerts = pager.alerts();
    let told: Vec<_> =
        alerts.iter().map(|alert| format!("{} {}", alert["kind"], alert["event"])).collect();
    assert_eq!(told.len(), 2 * faults.len(), "nothing else alerts: {told:?}");
    let all = server.admin().get("/v1/problems?state=all").await.unwrap();
    assert_eq!(all["problems"].as_array().unwrap().len(), faults.len(), "{all:#}");
    traffic.abort();
}

//! A server with an account for every provider, and a sandbox that plays all of them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{Answer, call, get};
use super::process::{KEY, Process, await_ok, free_port};

const REACHABLE: &str = "allow_private_targets = true\n";

pub(crate) struct Town {
    server_at: SocketAddr,
    sandbox_at: SocketAddr,
    /// `https://host:port` of the sandbox, as its endpoints have it.
    pub(crate) https: String,
    _server: Process,
    _sandbox: Process,
    _folder: tempfile::TempDir,
}

impl Town {
    pub(crate) fn new() -> Self {
        Self::build(None, REACHABLE, true)
    }

    /// The sandbox's endpoints bear this name, so that the server takes it for that provider.
    pub(crate) fn under_the_name(host: &str) -> Self {
        let known = format!("{REACHABLE}hosts = {{ \"{host}\" = \"127.0.0.1\" }}\n");
        Self::build(Some(host), &known, true)
    }

    /// As a server is that faces strangers: nothing on this machine or network may be reached.
    pub(crate) fn strict() -> Self {
        Self::build(None, "", true)
    }

    /// The sandbox's certificate is a stranger's.
    pub(crate) fn that_trusts_nobody() -> Self {
        Self::build(None, REACHABLE, false)
    }

    fn build(host: Option<&str>, network: &str, trusting: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (sandbox, ready) = start_sandbox(folder.path(), host);
        let text = |field: &str| ready[field].as_str().unwrap().to_owned();
        let at = text("http").rsplit_once(':').unwrap().1.parse().unwrap();
        let sandbox_at = SocketAddr::from(([127, 0, 0, 1], at));
        let mut config = format!("[network]\n{network}");
        if trusting {
            let ca = folder.path().join("ca.pem");
            config += &format!("extra_ca_file = \"{}\"\n", ca.display());
        }
        config += &accounts(folder.path(), sandbox_at, &ready);
        let file = folder.path().join("postrider.toml");
        std::fs::write(&file, config).unwrap();
        let server_at = free_port();
        let shown = |path: &Path| path.display().to_string();
        let (listen, data) = (server_at.to_string(), shown(&folder.path().join("data")));
        let config = shown(&file);
        let arguments = ["serve", "--listen", &listen, "--data", &data, "--config", &config];
        let server = Process::start(&arguments, &[], &folder.path().join("server.log"));
        await_ok(server_at, "/readyz");
        let https = text("https");
        Self { server_at, sandbox_at, https, _server: server, _sandbox: sandbox, _folder: folder }
    }

    /// A call to the server's API that must succeed.
    pub(crate) fn api(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.try_api(method, path, body);
        assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.body);
        serde_json::from_str(&answer.body).unwrap_or(Value::Null)
    }

    pub(crate) fn try_api(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        call(self.server_at, method, path, KEY, &body).unwrap()
    }

    /// A call to the sandbox itself.
    pub(crate) fn sandbox(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = call(self.sandbox_at, method, path, KEY, &body).unwrap();
        assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.body);
        serde_json::from_str(&answer.body).unwrap_or(Value::Null)
    }

    pub(crate) fn received(&self) -> Value {
        self.sandbox("GET", "/sandbox/received", &Value::Null)
    }

    /// The last request that a receiver of the sandbox took.
    pub(crate) fn last(&self, receiver: &str) -> Value {
        self.sandbox("GET", &format!("/sandbox/last/{receiver}"), &Value::Null)
    }

    /// A browser's subscription as an address.
    pub(crate) fn subscription(&self, wish: &Value) -> Value {
        let made = self.sandbox("POST", "/sandbox/subscriptions", wish);
        json!({"channel": "webpush", "endpoint": made["endpoint"], "keys": made["keys"]})
    }

    /// Hands one message in and says under which id it is delivered.
    pub(crate) fn send(&self, message: &Value) -> String {
        let accepted = self.api("POST", "/v1/messages", message);
        accepted["deliveries"][0]["id"].as_str().unwrap().to_owned()
    }

    /// The delivery as soon as it is in none of the passing states.
    pub(crate) fn ended(&self, id: &str) -> Value {
        self.once(id, |delivery| !["queued", "sending", "retrying"].contains(&state(delivery)))
    }

    /// The delivery as soon as it is as wanted.
    pub(crate) fn once(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let delivery = self.api("GET", &format!("/v1/deliveries/{id}"), &Value::Null);
            if wanted(&delivery) {
                return delivery;
            }
            assert!(Instant::now() < deadline, "not within a minute: {delivery:#}");
            std::thread::yield_now();
        }
    }
}

pub(crate) fn state(delivery: &Value) -> &str {
    delivery["state"].as_str().unwrap_or_default()
}

/// The sandbox on ports that nobody else has, and what it says about itself when it is ready.
fn start_sandbox(folder: &Path, host: Option<&str>) -> (Process, Value) {
    let (ca, any) = (folder.join("ca.pem").display().to_string(), "127.0.0.1:0");
    let mut arguments = vec!["sandbox", "--json", "--ca-out", &ca, "--listen", any];
    arguments.extend(["--listen-http", any, "--listen-smtp", any, "--listen-smtps", any]);
    arguments.extend(host.into_iter().flat_map(|host| ["--host", host]));
    let log = folder.join("sandbox.log");
    let process = Process::start(&arguments, &[], &log);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let ready = said.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(ready) = ready.filter(|ready| ready["ready"] == true) {
            return (process, ready);
        }
        assert!(Instant::now() < deadline, "the sandbox was not ready within a minute: {said}");
        std::thread::yield_now();
    }
}

/// One account per provider, all of them the sandbox.
fn accounts(folder: &Path, sandbox_at: SocketAddr, ready: &Value) -> String {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let ask = |path: &str| get(sandbox_at, path, KEY).unwrap().body;
    let apple: Value = serde_json::from_str(&ask("/sandbox/apns/key")).unwrap();
    let port = |field: &str| ready[field].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let https = format!("https://127.0.0.1:{}", port("https"));
    format!(
        "[chat.hosts]\n\"127.0.0.1:{https_port}/slack\" = \"slack\"\n\
         [accounts.firebase]\nchannel = \"fcm\"\nendpoint = \"{https}\"\ncredential = \"file:{google}\"\n\
         [accounts.apple]\nchannel = \"apns\"\nteam_id = {team}\nkey_id = {key}\nendpoint = \"{https}\"\n\
         sandbox_endpoint = \"https://localhost:{https_port}\"\ncredential = \"file:{p8}\"\n\
         [accounts.mail]\nchannel = \"email\"\nfrom = \"news@shop.example\"\nhost = \"localhost\"\n\
         port = {smtp}\nuser = \"shop\"\ncredential = \"file:{secret}\"\n\
         [accounts.phone]\nchannel = \"sms\"\naccount_sid = \"AC1\"\nfrom = \"+15550100\"\n\
         endpoint = \"{https}\"\ncredential = \"file:{secret}\"\n",
        https_port = port("https"),
        google = file("firebase.json", &ask("/sandbox/fcm/service-account")),
        team = apple["team_id"],
        key = apple["key_id"],
        p8 = file("apple.p8", apple["key"].as_str().unwrap()),
        smtp = port("smtp"),
        secret = file("secret", "sandbox-secret"),
    )
}

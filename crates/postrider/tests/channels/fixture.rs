//! A server with an account for every fake provider of a sandbox.

use std::time::{Duration, Instant};

use postrider_sandbox::{ReceiverRequest, SampleReceiver, Sandbox, SandboxConfig};
use postrider_testkit::http::{TestAnswer, call};
use postrider_testkit::process::ProcessFixture;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// A channel with its sample receiver.
pub(crate) struct Sample {
    pub(crate) channel: &'static str,
    pub(crate) receiver: SampleReceiver,
}

const REACHABLE: &str = "allow_private_targets = true\n";

pub(crate) struct ChannelsFixture {
    processes: ProcessFixture,
    sandbox: Sandbox,
    _runtime: Runtime,
}

impl ChannelsFixture {
    pub(crate) fn new() -> Self {
        Self::build(None, REACHABLE, true)
    }

    /// The sandbox's endpoints have this host name, so that the server takes it for that provider.
    pub(crate) fn with_host_name(host: &str) -> Self {
        let known = format!("{REACHABLE}hosts = {{ \"{host}\" = \"127.0.0.1\" }}\n");
        Self::build(Some(host), &known, true)
    }

    /// The server logs everything that it can. Its section of Web Push has these settings.
    pub(crate) fn talkative(webpush: &str) -> Self {
        let sections = format!("\n[log]\nlevel = \"trace\"\n[webpush]\n{webpush}");
        Self::build_with(None, REACHABLE, true, &sections)
    }

    /// The server has these sections of a configuration, too.
    pub(crate) fn with_settings(sections: &str) -> Self {
        Self::build_with(None, REACHABLE, true, sections)
    }

    /// The server may not reach this machine or a private network.
    pub(crate) fn strict() -> Self {
        Self::build(None, "", true)
    }

    /// The server does not trust the sandbox's certificate.
    pub(crate) fn without_trust() -> Self {
        Self::build(None, REACHABLE, false)
    }

    fn build(host: Option<&str>, network: &str, trusting: bool) -> Self {
        Self::build_with(host, network, trusting, "\n[log]\nlevel = \"info\"\n")
    }

    fn build_with(host: Option<&str>, network: &str, trusting: bool, sections: &str) -> Self {
        let (folder, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
        let ca = folder.path().join("ca.pem");
        let (host, ca_out) = (host.map(str::to_owned), Some(ca.clone()));
        let config = SandboxConfig { host, ca_out, ..SandboxConfig::default() };
        let sandbox = runtime.block_on(postrider_sandbox::start(config)).unwrap();
        let mut config = format!("[network]\n{network}");
        if trusting {
            config += &format!("extra_ca_file = \"{}\"\n", ca.display());
        }
        // Twilio signs its calls with what is the account's credential here.
        let secret =
            format!("callback_secret = \"file:{}\"", folder.path().join("phone").display());
        let twilio = "account_sid = \"AC1\"";
        let accounts = sandbox.server_config(folder.path()).unwrap();
        config += &accounts.replace(twilio, &format!("{twilio}\n{secret}"));
        config += sections;
        let binary = env!("CARGO_BIN_EXE_postrider");
        let mut processes = ProcessFixture::in_folder(binary, folder, &config).unwrap();
        processes.start().unwrap();
        Self { processes, sandbox, _runtime: runtime }
    }

    /// The sample receiver of every channel.
    pub(crate) fn samples(&self, request: impl Fn(&str) -> ReceiverRequest) -> Vec<Sample> {
        let channels = self.sandbox.sample_channels().into_iter();
        channels
            .map(|channel| {
                let receiver = self.sandbox.sample(channel, "orders", &request(channel)).unwrap();
                Sample { channel, receiver }
            })
            .collect()
    }

    /// A call to the server's API that must succeed.
    pub(crate) fn api(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.try_api(method, path, body);
        assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.body);
        serde_json::from_str(&answer.body).unwrap_or(Value::Null)
    }

    pub(crate) fn try_api(&self, method: &str, path: &str, body: &Value) -> TestAnswer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        call(self.processes.server_at, method, path, &body).unwrap()
    }

    /// What is in the files to which the accounts refer.
    pub(crate) fn credential_files(&self) -> Vec<String> {
        let config = std::fs::read_to_string(self.processes.path("postrider.toml")).unwrap();
        let named = config.split("\"file:").skip(1).filter_map(|rest| rest.split('"').next());
        named.map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    pub(crate) fn server_at(&self) -> std::net::SocketAddr {
        self.processes.server_at
    }

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        self.processes.server_log().unwrap()
    }

    /// A call to the sandbox itself.
    pub(crate) fn sandbox(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = call(self.sandbox.http, method, path, &body).unwrap();
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
    pub(crate) fn subscription(&self, request: &Value) -> Value {
        let made = self.sandbox("POST", "/sandbox/subscriptions", request);
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

//! The stage: a sandbox and a server in this process, over real sockets, in a folder of their own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::cases::{self, Channel};
use super::{DemoArgs, accounts};
use crate::http_client::ApiClient;
use crate::launcher::{LaunchedServer, ServerLauncher};
use crate::{Fault, Kind, Profile, ReceiverWish, Sandbox, SandboxConfig, SubscriptionWish};

pub(super) struct Stage {
    sandbox: Sandbox,
    server: Box<dyn LaunchedServer>,
    api: ApiClient,
    webhook_secret: String,
    receivers: AtomicUsize,
    folder: std::path::PathBuf,
}

/// Somebody to write to.
pub(super) struct Receiver {
    pub(super) address: Value,
    /// What the sandbox knows its deliveries by, where they do not show their own id.
    pub(super) alias: Option<String>,
}

impl Stage {
    pub(super) async fn set(args: &DemoArgs, launcher: &dyn ServerLauncher) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("postrider-demo-{}", std::process::id()));
        // Left by a demo that was killed, in a process that had our number.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let ca = folder.join("sandbox-ca.pem");
        let sandbox = crate::start(SandboxConfig {
            profile: Profile::load(&args.faults)?,
            seed: args.seed,
            ca_out: Some(ca),
            ..SandboxConfig::default()
        })
        .await?;
        let accounts = accounts::at(&sandbox, &folder)?;
        let server = match launcher.launch(&config(args.listen, &folder, &accounts)).await {
            Ok(server) => server,
            // Another process has the usual port: any other will do for a demo.
            Err(_) if args.listen.port() != 0 => {
                let free = SocketAddr::new(args.listen.ip(), 0);
                launcher.launch(&config(free, &folder, &accounts)).await?
            }
            Err(error) => return Err(error),
        };
        let key = server.new_admin_key().context("a first start makes an admin key")?.to_owned();
        let api = ApiClient { address: server.address(), key, tenant: "default" };
        let secrets = api.get("/v1/webhook-secrets").await?;
        let webhook_secret =
            secrets["secrets"][0]["secret"].as_str().context("a webhook secret")?.to_owned();
        Ok(Self { sandbox, server, api, webhook_secret, receivers: AtomicUsize::new(0), folder })
    }

    pub(super) fn dashboard(&self) -> String {
        format!("http://{}/#key={}", self.api.address, self.api.key)
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        self.api.get(path).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.api.post(path, body).await
    }

    pub(super) async fn batch(&self, lines: String) -> Result<String> {
        let kind = "application/x-ndjson";
        self.api.text("POST", "/v1/messages/batch", kind, lines.as_bytes()).await
    }

    /// A new receiver in the sandbox. Without a script it fails by the profile.
    pub(super) fn receiver(
        &self,
        channel: Channel,
        name: Option<&str>,
        script: &[&str],
    ) -> Result<Receiver> {
        let script: Vec<Fault> =
            script.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
        let number = self.receivers.fetch_add(1, Ordering::Relaxed);
        let name = name.map_or_else(|| format!("crowd-{number}"), str::to_owned);
        if channel == Channel::Webpush {
            let wish = SubscriptionWish { script, ..SubscriptionWish::default() };
            let made = self.sandbox.subscribe(&wish)?.pop().context("a subscription")?;
            let address =
                json!({"channel": "webpush", "endpoint": made.endpoint, "keys": made.keys});
            return Ok(Receiver { address, alias: None });
        }
        let (kind, name, address) = self.place(channel, &name, number);
        let secret = (kind == Kind::Hook).then(|| self.webhook_secret.clone());
        let wish = ReceiverWish { script, secret, ..ReceiverWish::default() };
        self.sandbox.set_up(kind, &name, &wish)?;
        // These are handed no id of the delivery.
        let nameless = matches!(kind, Kind::Fcm | Kind::Sms | Kind::Chat);
        Ok(Receiver { address, alias: nameless.then(|| format!("{}/{name}", kind.name())) })
    }

    /// What the sandbox calls a receiver, and the address that leads there.
    fn place(&self, channel: Channel, name: &str, number: usize) -> (Kind, String, Value) {
        let origin = self.sandbox.https_origin();
        let at = |kind: Kind| format!("{origin}/{}/{name}", kind.name());
        match channel {
            Channel::Http => {
                let address = json!({"channel": "http", "url": at(Kind::Http)});
                (Kind::Http, name.to_owned(), address)
            }
            Channel::Fcm => {
                let token = format!("{name}:APA91b{number:0>32}");
                let address = json!({"channel": "fcm", "token": token});
                (Kind::Fcm, token, address)
            }
            Channel::Apns => {
                let token = format!("{:064x}", number + 1);
                let address =
                    json!({"channel": "apns", "token": token, "topic": "example.shop.app"});
                (Kind::Apns, token, address)
            }
            Channel::Email => {
                let mailbox = format!("{name}@customer.example");
                let address = json!({"channel": "email", "email": mailbox});
                (Kind::Email, mailbox, address)
            }
            Channel::Sms => {
                let phone = format!("+1555{number:07}");
                let address = json!({"channel": "sms", "phone": phone});
                (Kind::Sms, phone, address)
            }
            Channel::Chat => {
                let url = format!("{origin}/slack/{name}");
                (Kind::Chat, format!("slack.{name}"), json!({"channel": "chat", "url": url}))
            }
            Channel::Webhook | Channel::Webpush => {
                let address = json!({"channel": "webhook", "url": at(Kind::Hook)});
                (Kind::Hook, name.to_owned(), address)
            }
        }
    }

    pub(super) fn sandbox_summary(&self) -> Value {
        self.sandbox.received()
    }

    pub(super) async fn sandbox_ids(&self) -> Result<String> {
        let api = ApiClient { address: self.sandbox.http, key: String::new(), tenant: "default" };
        api.text("GET", "/sandbox/received/ids", "application/json", b"").await
    }

    /// Ends both and removes the folder.
    pub(super) async fn strike(self) {
        self.server.shutdown().await;
        self.sandbox.shutdown().await;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The configuration file of the demo's server.
fn config(listen: SocketAddr, folder: &Path, accounts: &str) -> String {
    // The sandbox refuses a fifth of all calls at random, also as gone. The breaker and the guard
    // against mass erasure would take that for an outage, so both are set wide.
    format!(
        "[store]\ndata = {data}\n[server]\nlisten = \"{listen}\"\n\
         [breaker]\nshare = 0.9\nburst_share = 0.9\ngone_share = 0.9\n\
         [network]\nallow_private_targets = true\nallow_plain_http = true\nextra_ca_file = {ca}\n\
         {classes}{accounts}",
        data = toml_path(&folder.join("data")),
        ca = toml_path(&folder.join("sandbox-ca.pem")),
        classes = cases::CLASSES,
    )
}

fn toml_path(path: &Path) -> toml::Value {
    toml::Value::String(path.display().to_string())
}

//! The stage: a sandbox and a server in this process, over real sockets, in a folder of their own.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::cases::{self, Channel};
use super::{DemoArgs, accounts};
use crate::client::{Client, whole};
use crate::config::{Config, Environment};
use crate::sandbox::{
    self, Fault, Kind, Profile, ReceiverWish, Sandbox, SandboxConfig, SubscriptionWish,
};
use crate::serve::{self, Running};

pub(super) struct Stage {
    sandbox: Sandbox,
    server: Running,
    api: Client,
    sandbox_api: Client,
    key: String,
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
    pub(super) async fn set(args: &DemoArgs) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("postrider-demo-{}", std::process::id()));
        // Left by a demo that was killed, in a process that had our number.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let ca = folder.join("sandbox-ca.pem");
        let sandbox = sandbox::start(SandboxConfig {
            profile: Profile::load(&args.faults)?,
            seed: args.seed,
            ca_out: Some(ca.clone()),
            ..SandboxConfig::default()
        })
        .await?;
        let own = format!("{}{}", cases::CLASSES, accounts::at(&sandbox, &folder)?);
        let mut config = Config::parse(&own, "the demo's own file", &Environment::empty())?;
        config.store.data = folder.join("data");
        config.server.listen = args.listen;
        // Its faults hit a fifth of all calls, at random and on purpose. A breaker would rightly take
        // that for an outage; the story is about single deliveries.
        (config.breaker.share, config.breaker.burst_share) = (0.9, 0.9);
        // So do the addresses that it calls gone.
        config.breaker.gone_share = 0.9;
        config.network.allow_private_targets = true;
        config.network.allow_plain_http = true;
        config.network.extra_ca_file = Some(ca);
        let server = match serve::start(config.clone()).await {
            Ok(server) => server,
            // Somebody else has the usual port: any other will do for a demo.
            Err(_) if args.listen.port() != 0 => {
                config.server.listen.set_port(0);
                serve::start(config).await?
            }
            Err(error) => return Err(error),
        };
        let key = server.new_admin_key.clone().context("a first start makes an admin key")?;
        let api = Client::new(&server.url(), Some(&key))?;
        let secrets = api.get("/v1/webhook-secrets").await?;
        let webhook_secret =
            secrets["secrets"][0]["secret"].as_str().context("a webhook secret")?.to_owned();
        let sandbox_api = Client::new(sandbox.http_origin(), None)?;
        let receivers = AtomicUsize::new(0);
        Ok(Self { sandbox, server, api, sandbox_api, key, webhook_secret, receivers, folder })
    }

    pub(super) fn dashboard(&self) -> String {
        format!("{}/#key={}", self.server.url(), self.key)
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        Ok(self.api.get(path).await?)
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        Ok(self.api.post(path, body).await?)
    }

    pub(super) async fn batch(&self, lines: String) -> Result<String> {
        let body = whole(lines.into());
        let answer = self
            .api
            .send(http::Method::POST, "/v1/messages/batch", "application/x-ndjson", body)
            .await?;
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8(bytes.into())?)
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
        let body = whole(Default::default());
        let answer = self
            .sandbox_api
            .send(http::Method::GET, "/sandbox/received/ids", "application/json", body)
            .await?;
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8(bytes.into())?)
    }

    /// Ends both and removes the folder.
    pub(super) async fn strike(self) {
        self.server.shutdown().await;
        self.sandbox.shutdown().await;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

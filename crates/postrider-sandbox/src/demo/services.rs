//! The sandbox and the server of the demo: in this process, over real sockets, in their own folder.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

use super::{DemoArgs, cases};
use crate::http_client::ApiClient;
use crate::launcher::{LaunchedServer, ServerLauncher};
use crate::private_folder::{PrivateFolder, toml_path};
use crate::{Fault, FaultProfile, ReceiverRequest, SampleReceiver, Sandbox, SandboxConfig};

pub(super) struct DemoServices {
    pub(super) sandbox: Sandbox,
    server: Box<dyn LaunchedServer>,
    pub(super) api: ApiClient,
    webhook_secret: String,
    receivers: AtomicUsize,
    _folder: PrivateFolder,
}

impl DemoServices {
    pub(super) async fn start(args: &DemoArgs, launcher: &dyn ServerLauncher) -> Result<Self> {
        let folder = PrivateFolder::new("demo")?;
        let ca = folder.path().join("sandbox-ca.pem");
        let sandbox = crate::start(SandboxConfig {
            profile: FaultProfile::load(&args.faults)?,
            seed: args.seed,
            ca_out: Some(ca),
            ..SandboxConfig::default()
        })
        .await?;
        let accounts = sandbox.server_config(folder.path())?;
        let config = |listen| config(listen, folder.path(), &accounts, args.log.as_deref());
        let server = match launcher.launch(&config(args.listen)).await {
            Ok(server) => server,
            // Another process uses the default port: take any free one.
            Err(_) if args.listen.port() != 0 => {
                let free = SocketAddr::new(args.listen.ip(), 0);
                launcher.launch(&config(free)).await?
            }
            Err(error) => return Err(error),
        };
        let key = server.new_admin_key().context("a first start makes an admin key")?.to_owned();
        let api = ApiClient { address: server.address(), key, tenant: "default" };
        let secrets = api.get("/v1/webhook-secrets").await?;
        let webhook_secret =
            secrets["secrets"][0]["secret"].as_str().context("a webhook secret")?.to_owned();
        Ok(Self {
            sandbox,
            server,
            api,
            webhook_secret,
            receivers: AtomicUsize::new(0),
            _folder: folder,
        })
    }

    /// A link that opens the status page once.
    pub(super) async fn dashboard(&self) -> Result<String> {
        self.server.sign_in_link().await
    }

    pub(super) async fn batch(&self, lines: String) -> Result<String> {
        let kind = "application/x-ndjson";
        self.api.text("POST", "/v1/messages/batch", kind, lines.as_bytes()).await
    }

    /// A new receiver in the sandbox. Without a script it fails by the profile.
    pub(super) fn receiver(
        &self,
        channel: &str,
        name: Option<&str>,
        script: &[&str],
    ) -> Result<SampleReceiver> {
        let script: Vec<Fault> =
            script.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
        let number = self.receivers.fetch_add(1, Ordering::Relaxed);
        let name = name.map_or_else(|| format!("crowd-{number}"), str::to_owned);
        let secret = (channel == "webhook").then(|| self.webhook_secret.clone());
        let request = ReceiverRequest { script, secret, ..ReceiverRequest::default() };
        self.sandbox.sample(channel, &name, &request)
    }

    /// The channels that the crowd does not use.
    pub(super) fn other_channels(&self) -> Vec<&'static str> {
        let is_other = |channel: &&str| !["webpush", "webhook", "http"].contains(channel);
        self.sandbox.sample_channels().into_iter().filter(is_other).collect()
    }

    pub(super) async fn received_ids(&self) -> Result<String> {
        let (address, key) = (self.sandbox.http, String::new());
        ApiClient { address, key, tenant: "default" }.received_ids().await
    }

    /// Ends both and removes the folder.
    pub(super) async fn shutdown(self) {
        self.server.shutdown().await;
        self.sandbox.shutdown().await;
    }
}

/// The configuration file of the demo's server.
fn config(listen: SocketAddr, folder: &Path, accounts: &str, log: Option<&str>) -> String {
    let log = log.map_or_else(String::new, |level| {
        format!("[log]\nlevel = {}\n", serde_json::Value::from(level))
    });
    // The sandbox refuses a fifth of all calls at random, some of them with "gone". The guard against mass
    // erasure would see an outage in that, so it gets a wide limit.
    format!(
        "[store]\ndata = {data}\n[server]\nlisten = \"{listen}\"\n\
         [breaker]\ngone_share = 0.9\n[webhook]\nsecret_per_address = false\n\
         [network]\nallow_private_targets = true\nallow_plain_http = true\nextra_ca_file = {ca}\n\
         {log}{classes}{accounts}",
        data = toml_path(&folder.join("data")),
        ca = toml_path(&folder.join("sandbox-ca.pem")),
        classes = cases::CLASSES,
    )
}

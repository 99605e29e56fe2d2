//! `postrider sandbox` on the command line: runs until SIGINT or SIGTERM.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::json;

use super::{FaultProfile, Sandbox, start};

/// Fake providers for tests and demos: a Web Push service that decrypts, receivers of webhooks and
/// plain HTTP, FCM, APNs, a mail server, SES, SendGrid, Twilio, Slack, Discord, Teams, Telegram and ntfy. All count
/// their requests.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  postrider sandbox --faults storm --ca-out ca.pem
  curl --cacert ca.pem -X POST 'https://127.0.0.1:9443/sandbox/subscriptions?count=3'
  curl http://127.0.0.1:9080/sandbox/received
  open http://127.0.0.1:9080/inbox, which shows what arrives

`postrider dev` runs a server beside it.")]
pub struct SandboxArgs {
    #[command(flatten)]
    config: SandboxConfig,
    /// none, mild, demo, storm, gone, slow, resets, chaos, or a TOML or JSON file
    #[arg(long, value_name = "PROFILE|FILE", default_value = "none")]
    faults: String,
    /// Print the addresses as one line of JSON
    #[arg(long)]
    json: bool,
}

// Its comments are the help of the command line, so the struct itself has none.
#[derive(Debug, Clone, clap::Args)]
pub struct SandboxConfig {
    /// Address of the TLS socket (HTTP/2 and HTTP/1.1)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9443")]
    pub listen: SocketAddr,
    /// Address of the plain HTTP socket
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9080")]
    pub listen_http: SocketAddr,
    /// Address of the mail server with STARTTLS [default: port 9025 if --listen has port 9443, else a free one]
    #[arg(long, value_name = "ADDR")]
    pub listen_smtp: Option<SocketAddr>,
    /// Address of the mail server with TLS from the first byte [default: port 9465, or a free one likewise]
    #[arg(long, value_name = "ADDR")]
    pub listen_smtps: Option<SocketAddr>,
    /// Listen also on addresses that other machines reach. Whoever reaches the sandbox reads what it received
    #[arg(long)]
    pub allow_remote: bool,
    /// Host name in the endpoints of receivers [default: the listening address]
    #[arg(long)]
    pub host: Option<String>,
    #[arg(skip)]
    pub profile: FaultProfile,
    /// With the same seed, the same requests have the same faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the certificate of the sandbox's authority to this file
    #[arg(long, value_name = "FILE")]
    pub ca_out: Option<PathBuf>,
    /// whsec_… for webhook receivers without a secret of their own
    #[arg(
        long,
        value_name = "SECRET",
        env = "POSTRIDER_SANDBOX_WEBHOOK_SECRET",
        hide_env_values = true
    )]
    pub webhook_secret: Option<String>,
    /// Answer 429 beyond N requests per second
    #[arg(long = "rate", value_name = "N")]
    pub rate_per_s: Option<u32>,
    /// Process N requests per second, in order; the others wait for their answer
    #[arg(long = "pace", value_name = "N")]
    pub pace_per_s: Option<u32>,
    /// Answer 429 beyond N requests at once
    #[arg(long = "concurrency", value_name = "N")]
    pub concurrency_max: Option<u32>,
    /// Streams allowed on one HTTP/2 connection
    #[arg(long = "streams", value_name = "N", default_value_t = 200)]
    pub streams_max: u32,
    /// Messages that the inbox keeps per kind of receiver; 0 for none
    #[arg(long = "inbox", value_name = "N", default_value_t = 200)]
    pub inbox_max: usize,
    /// Set the providers' clock so many seconds ahead of this machine's (negative: behind)
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    pub clock_offset_s: i64,
}

/// Without faults, on free ports of this machine only.
impl Default for SandboxConfig {
    fn default() -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            listen: free,
            listen_http: free,
            listen_smtp: None,
            listen_smtps: None,
            allow_remote: false,
            host: None,
            profile: FaultProfile::default(),
            seed: 1,
            ca_out: None,
            webhook_secret: None,
            rate_per_s: None,
            pace_per_s: None,
            concurrency_max: None,
            streams_max: 200,
            inbox_max: 200,
            clock_offset_s: 0,
        }
    }
}

impl SandboxConfig {
    /// An error if it would listen on an address that other machines reach, unless that is allowed.
    pub(crate) fn refuse_remote(&self) -> anyhow::Result<()> {
        let all = [Some(self.listen), Some(self.listen_http), self.listen_smtp, self.listen_smtps];
        let remote = all.into_iter().flatten().find(|at| !at.ip().is_loopback());
        match remote.filter(|_| !self.allow_remote) {
            None => Ok(()),
            Some(at) => anyhow::bail!(
                "other machines reach {at}, and whoever reaches the sandbox reads what it received; \
                 listen on 127.0.0.1, or add --allow-remote"
            ),
        }
    }

    /// This port beside the default port, else a free one: two sandboxes on one machine do not collide.
    pub(crate) fn beside(&self, port: u16) -> SocketAddr {
        let is_default = self.listen.port() == 9443;
        SocketAddr::new(self.listen.ip(), if is_default { port } else { 0 })
    }
}

/// Starts the sandbox, prints its addresses, and runs until SIGINT or SIGTERM.
pub async fn run(args: SandboxArgs) -> anyhow::Result<()> {
    let SandboxArgs { config, faults, json } = args;
    let (seed, ca_out) = (config.seed, config.ca_out.clone());
    let sandbox = start(SandboxConfig { profile: FaultProfile::load(&faults)?, ..config }).await?;
    if json {
        println!("{}", ready_json(&sandbox, ca_out));
    } else {
        println!(
            "sandbox ready: {} and {}, mail at {} and {} (faults {faults}, seed {seed})\ninbox: {}",
            sandbox.https_origin(),
            sandbox.http_origin(),
            sandbox.smtp,
            sandbox.smtps,
            sandbox.inbox_url(),
        );
    }
    crate::stop::stop_signal().await?;
    sandbox.shutdown().await;
    Ok(())
}

fn ready_json(sandbox: &Sandbox, ca_out: Option<PathBuf>) -> serde_json::Value {
    json!({
        "ready": true,
        "https": sandbox.https_origin(),
        "http": sandbox.http_origin(),
        "smtp": sandbox.smtp.to_string(),
        "smtps": sandbox.smtps.to_string(),
        "inbox": sandbox.inbox_url(),
        "ca_file": ca_out,
        "pid": std::process::id(),
    })
}

//! `postrider sandbox` on the command line: runs until it is told to stop.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::json;

use super::{FaultProfile, Sandbox, SandboxConfig, start};

/// Fake providers for tests and demos: a Web Push service that decrypts, receivers of webhooks and
/// plain HTTP, FCM, APNs, a mail server, SES, SendGrid, Twilio, Slack, Discord and Teams. All count what they get.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  postrider sandbox --faults storm --ca-out ca.pem
  curl --cacert ca.pem -X POST 'https://127.0.0.1:9443/sandbox/subscriptions?count=3'
  curl http://127.0.0.1:9080/sandbox/received")]
pub struct SandboxArgs {
    /// Address of the TLS socket (HTTP/2 and HTTP/1.1)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9443")]
    pub listen: SocketAddr,
    /// Address of the plain HTTP socket
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9080")]
    pub listen_http: SocketAddr,
    /// Address of the mail server with STARTTLS; port 9025 beside the usual 9443, else a free one
    #[arg(long, value_name = "ADDR")]
    pub listen_smtp: Option<SocketAddr>,
    /// Address of the mail server with TLS from the first byte; 9465 beside 9443, else a free one
    #[arg(long, value_name = "ADDR")]
    pub listen_smtps: Option<SocketAddr>,
    /// Host name in the endpoints that are handed out
    #[arg(long)]
    pub host: Option<String>,
    /// none, mild, demo, storm, gone, slow, resets, chaos, or a TOML or JSON file
    #[arg(long, value_name = "PROFILE|FILE", default_value = "none")]
    pub faults: String,
    /// The same seed meets the same requests with the same faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the certificate of the sandbox's authority here
    #[arg(long, value_name = "FILE")]
    pub ca_out: Option<PathBuf>,
    /// whsec_… for webhook receivers that were given no secret of their own
    #[arg(
        long,
        value_name = "SECRET",
        env = "POSTRIDER_SANDBOX_WEBHOOK_SECRET",
        hide_env_values = true
    )]
    pub webhook_secret: Option<String>,
    /// Answer 429 beyond so many requests per second
    #[arg(long, value_name = "N")]
    pub rate: Option<u32>,
    /// Work off so many requests per second, in order; the others wait for their answer
    #[arg(long, value_name = "N")]
    pub pace: Option<u32>,
    /// Answer 429 beyond so many requests at once
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,
    /// Streams allowed on one HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub streams: u32,
    /// The providers' clock is so many seconds ahead of this machine's (negative: behind)
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    pub clock_offset_s: i64,
    /// Print the addresses as one line of JSON
    #[arg(long)]
    pub json: bool,
}

const USUAL_PORT: u16 = 9443;

impl SandboxArgs {
    pub fn into_config(self) -> anyhow::Result<SandboxConfig> {
        // Two sandboxes on one machine must not be in each other's way.
        let usual = self.listen.port() == USUAL_PORT;
        let beside = |port| SocketAddr::new(self.listen.ip(), if usual { port } else { 0 });
        Ok(SandboxConfig {
            listen: self.listen,
            listen_http: self.listen_http,
            listen_smtp: self.listen_smtp.unwrap_or_else(|| beside(9025)),
            listen_smtps: self.listen_smtps.unwrap_or_else(|| beside(9465)),
            host: self.host,
            profile: FaultProfile::load(&self.faults)?,
            seed: self.seed,
            ca_out: self.ca_out,
            webhook_secret: self.webhook_secret,
            rate_per_s: self.rate,
            pace_per_s: self.pace,
            concurrency_max: self.concurrency,
            streams_max: self.streams,
            clock_offset_s: self.clock_offset_s,
        })
    }
}

/// Starts the sandbox, says where it is, and runs until SIGINT or SIGTERM.
pub async fn run(args: SandboxArgs) -> anyhow::Result<()> {
    let as_json = args.json;
    let (faults, seed) = (args.faults.clone(), args.seed);
    let ca_out = args.ca_out.clone();
    let sandbox = start(args.into_config()?).await?;
    if as_json {
        println!("{}", ready_json(&sandbox, ca_out));
    } else {
        println!(
            "sandbox ready: {} and {}, mail at {} and {} (faults {faults}, seed {seed})",
            sandbox.https_origin(),
            sandbox.http_origin(),
            sandbox.smtp,
            sandbox.smtps,
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
        "ca_file": ca_out,
        "pid": std::process::id(),
    })
}

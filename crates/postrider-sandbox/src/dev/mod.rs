//! `postrider dev`: a server and the fake providers of every channel in one process, for people who build against it.
//! The inbox shows what each provider received.

mod samples;
mod services;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;

use crate::launcher::ServerLauncher;
use crate::stop::stop_signal;
use services::DevServices;

/// A server and fake providers of every channel, with an inbox in your browser.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  postrider dev
  postrider dev --data ./dev --json
  postrider dev --faults mild

It prints the address, an API key, the link to the inbox and a curl line per channel. Every channel has an account
that leads to the fake providers; on this machine, the server also reaches private addresses and http://. Buttons in
the inbox order the answer to the next message of a channel: 429, 410, 503 or none. Ctrl-C ends it and removes the
data, unless --data keeps them.")]
pub struct DevArgs {
    /// Where the server listens [default: 127.0.0.1:8080, or a free port]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where the inbox and the receivers of plain HTTP listen [default: 127.0.0.1:9080, or a free port]
    #[arg(long, value_name = "ADDR")]
    listen_inbox: Option<SocketAddr>,
    /// Keep the data and the key in this folder [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The admin key: 32 random bytes in hexadecimal or base64 [default: a new one, or that of --data]
    #[arg(long, env = "POSTRIDER_ADMIN_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Faults of the providers: none, mild, demo, storm, gone, slow, resets, chaos, or a file
    #[arg(long, value_name = "PROFILE|FILE", default_value = "none")]
    faults: String,
    /// With the same seed, the same requests have the same faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Messages that the inbox keeps per kind of receiver
    #[arg(long = "inbox", value_name = "N", default_value_t = 200)]
    inbox_max: usize,
    /// Listen also on addresses that other machines reach. Whoever reaches the inbox reads what it received
    #[arg(long)]
    allow_remote: bool,
    /// Print everything as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Runs until SIGINT or SIGTERM.
pub async fn run(args: DevArgs, launcher: &dyn ServerLauncher) -> Result<()> {
    let services = tokio::select! {
        started = DevServices::start(&args, launcher) => started?,
        stopped = stop_signal() => return stopped,
    };
    let stopped = announce_and_wait(&services, args.json).await;
    // The folder is removed in any case.
    services.shutdown().await;
    stopped
}

async fn announce_and_wait(services: &DevServices, json: bool) -> Result<()> {
    let text = match json {
        true => services.as_json().await?.to_string(),
        false => services.as_text().await?,
    };
    println!("{text}");
    stop_signal().await
}

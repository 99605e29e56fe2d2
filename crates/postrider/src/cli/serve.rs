//! `serve` and `config`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, Outcome, output};
use crate::config::{Config, Environment, reference};
use crate::{serve, telemetry};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  postrider serve
  postrider serve --data /var/lib/postrider --listen 0.0.0.0:8080
  POSTRIDER_ADMIN_KEY=a-secret-of-yours postrider serve --config /etc/postrider.toml

The first start makes what is missing: the data folder (0700), an admin key (printed once), a VAPID
key pair and a webhook secret. SIGTERM and Ctrl-C end it in order; a second one at once.")]
pub(super) struct ServeArgs {
    /// The configuration file [default: postrider.toml if there is one].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data folder [default: ./postrider-data].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The store: embedded: (in the data folder) or memory: [default: embedded:].
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// all, or api: accept and show, but dispatch nothing [default: all].
    #[arg(long)]
    role: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check the configuration, file and environment, as `serve` would read it.
    Check {
        /// The configuration file [default: postrider.toml if there is one].
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print every setting with its default and its meaning, as a valid configuration file.
    Reference,
}

pub(super) fn config(args: ConfigArgs) -> Outcome {
    match args.what {
        ConfigCommand::Reference => output::print(&reference()),
        ConfigCommand::Check { config } => {
            load(config)?;
            output::print("the configuration is valid")
        }
    }
}

pub(super) async fn run(args: ServeArgs) -> Outcome {
    let mut config = load(args.config)?;
    if let Some(data) = args.data {
        config.store.data = data;
    }
    if let Some(listen) = args.listen {
        config.server.listen = listen;
    }
    if let Some(url) = args.store {
        config.store.url = url;
    }
    if let Some(role) = args.role {
        config.server.role = role;
    }
    config.check().map_err(|e| Failure::Usage(e.to_string()))?;
    telemetry::log::init(&config.log);
    let mut terminate = signal(SignalKind::terminate()).context("no SIGTERM to listen to")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("no SIGINT to listen to")?;
    let running = serve::start(config).await?;
    greet(&running)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("shutting down; once more to stop at once");
    tokio::select! {
        in_time = running.shutdown() => {
            if !in_time {
                tracing::warn!("some attempts did not end in time; they are left to the next start");
            }
            tracing::info!("stopped");
            Ok(())
        }
        _ = terminate.recv() => Err(Failure::Silent),
        _ = interrupt.recv() => Err(Failure::Silent),
    }
}

/// Standard output, so that the key reaches no log.
fn greet(running: &serve::Running) -> Outcome {
    let mut text = format!("Postrider listens on {}\n", running.url());
    if let Some(key) = &running.new_admin_key {
        text += &format!(
            "Admin key (shown this once): {key}\n\
             Status page: {}/#key={key}\n",
            running.url()
        );
    }
    output::print(&text)
}

fn load(file: Option<PathBuf>) -> Result<Config, Failure> {
    Config::load(file.as_deref(), &Environment::of_process())
        .map_err(|e| Failure::Usage(e.to_string()))
}

//! `serve` and `config`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use super::prelude::*;
use crate::config::sections::ServerRole;
use crate::config::{Config, ConfigError, Environment, reference};
use crate::serve::handover;
use crate::serve::service_manager::ServiceManager;
use crate::{serve, telemetry};

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  postrider serve
  postrider serve --data /var/lib/postrider --listen 0.0.0.0:8080
  PGPASSWORD=… postrider serve --store postgres://postrider@db.example/postrider --role worker
  POSTRIDER_ADMIN_KEY=$(openssl rand -base64 32) postrider serve --config /etc/postrider.toml

The first start creates the data folder (0700), an admin key (printed once), a VAPID key pair and a
webhook secret. SIGTERM and Ctrl-C shut the server down in order; a second one stops it at once.
SIGHUP reloads the configuration, like `postrider config reload`. SIGUSR2 starts a new process of this
program (a newer one, if it was replaced) that takes over without a refused connection. If the store or the dispatcher fails,
the process ends with exit code 1: let a supervisor (systemd, Docker) restart it.")]
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
    /// The store: embedded: (in the data folder), postgres://user@host/database, redis://user@host or memory:
    /// [default: embedded:].
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// all; api: accept and show messages, but send nothing; worker: send, but accept nothing [default: all].
    #[arg(long)]
    role: Option<ServerRole>,
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
    /// Reload the configuration of a running server (admin key). If anything is wrong, nothing changes.
    Reload {
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Print every setting with its default and its meaning, as a valid configuration file.
    Reference,
}

pub(super) async fn config(args: ConfigArgs) -> CliResult {
    match args.what {
        ConfigCommand::Reference => output::print(&reference()),
        ConfigCommand::Check { config } => {
            load(config)?;
            output::print("the configuration is valid")
        }
        ConfigCommand::Reload { connection } => {
            let session = connection.session()?;
            session.post("/v1/config/reload", &Value::Null, reload_report).await
        }
    }
}

fn reload_report(report: &Value) -> String {
    let named = |field: &str| {
        let names: Vec<_> = items(report, field).iter().filter_map(Value::as_str).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    };
    format!("changed: {}\nneeds a restart: {}", named("changed"), named("needs_restart"))
}

impl ServeArgs {
    /// The configuration from file and environment, with the flags applied.
    fn read(&self) -> Result<Config, ConfigError> {
        let mut config = Config::load(self.config.as_deref(), &Environment::of_process())?;
        if let Some(data) = &self.data {
            config.store.data.clone_from(data);
        }
        if let Some(listen) = self.listen {
            config.server.listen = listen;
        }
        if let Some(url) = &self.store {
            config.store.url.clone_from(url);
        }
        if let Some(role) = self.role {
            config.server.role = role;
        }
        config.check()?;
        Ok(config)
    }
}

pub(super) async fn run(args: ServeArgs) -> CliResult {
    let config = args.read().map_err(|e| CliError::Usage(e.to_string()))?;
    telemetry::log::init(&config.log);
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let mut successor = signal(SignalKind::user_defined2()).context("cannot listen for SIGUSR2")?;
    let manager = ServiceManager::of_process();
    let given = handover::given_socket()?;
    handover::await_predecessor(&manager).await?;
    let mut running = serve::start_on(Box::new(move || args.read()), given).await?;
    print_greeting(&running).await?;
    manager.ready(&running.url());
    let app = running.app.clone();
    let alive = manager.keep_alive(app);
    tokio::pin!(alive);
    let is_succeeded = Arc::new(AtomicBool::new(false));
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                manager.reloading();
                reload(&running).await;
                manager.ready(&running.url());
            }
            _ = successor.recv() => start_successor(&running, &is_succeeded),
            () = &mut alive => {}
            cause = running.failed() => end_at_once(&cause),
        }
    }
    // With a successor, the service goes on.
    if !is_succeeded.load(Ordering::Relaxed) {
        manager.stopping();
    }
    tracing::info!("shutting down; send the signal again to stop at once");
    tokio::select! {
        in_time = running.shutdown() => {
            if !in_time {
                tracing::warn!("some attempts did not end in time; the next start continues with them");
            }
            tracing::info!("stopped");
            Ok(())
        }
        _ = terminate.recv() => Err(CliError::Silent),
        _ = interrupt.recv() => Err(CliError::Silent),
    }
}

/// Starts a process that takes this one's place, and asks it to end once it is ready for that.
fn start_successor(running: &serve::Running, is_succeeded: &Arc<AtomicBool>) {
    if is_succeeded.load(Ordering::Relaxed) {
        return tracing::warn!("a new process takes over already");
    }
    let started = match running.socket() {
        Ok(Some(socket)) => handover::start_successor(socket),
        Ok(None) => Err(anyhow::anyhow!("the store is in memory, and would be lost")),
        Err(error) => Err(error.into()),
    };
    match started {
        Ok(mut child) => {
            tracing::info!(pid = child.id(), "a new process was started, which takes over");
            // If it cannot use its configuration, this process goes on.
            is_succeeded.store(true, Ordering::Relaxed);
            let is_succeeded = is_succeeded.clone();
            std::thread::spawn(move || {
                if let Ok(status) = child.wait() {
                    is_succeeded.store(false, Ordering::Relaxed);
                    tracing::error!(%status, "the new process ended; this one goes on");
                }
            });
        }
        Err(error) => tracing::error!("no new process takes over: {error:#}"),
    }
}

/// Nothing is written any more: what is in memory may not be what is on disk.
fn end_at_once(cause: &str) -> ! {
    tracing::error!(cause, "the server cannot go on and ends; start it again");
    eprintln!("postrider: the server cannot go on: {cause}");
    std::process::exit(1)
}

async fn reload(running: &serve::Running) {
    match running.app.live.reload().await {
        Ok(report) => {
            tracing::info!(changed = report.changed.join(", "), "the configuration was reloaded");
        }
        Err(error) => {
            tracing::error!(%error, "the configuration cannot be used; nothing was changed");
        }
    }
}

/// Prints to standard output, so that the key reaches no log.
async fn print_greeting(running: &serve::Running) -> CliResult {
    let mut text = format!("Postrider listens on {}\n", running.url());
    if let Some(key) = &running.new_admin_key {
        text += &format!(
            "Admin key (shown only once): {key}\n\
             Status page (opens once): {}\n",
            running.sign_in_link().await?
        );
    }
    output::print(&text)
}

fn load(file: Option<PathBuf>) -> Result<Config, CliError> {
    Config::load(file.as_deref(), &Environment::of_process())
        .map_err(|e| CliError::Usage(e.to_string()))
}

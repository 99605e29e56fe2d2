//! The command line: the arguments of each command, and the exit codes. Other modules do the work.

mod accounts;
mod addresses;
mod alerts;
mod audience;
mod audit;
mod backup;
mod data_folder;
mod dead;
mod demo;
mod doctor;
mod encryption;
mod events;
mod fsck;
mod held;
mod jobs;
mod keys;
mod lanes;
mod messages;
mod migrate;
mod notes;
mod output;
mod prelude;
mod problems;
mod providers;
mod selection;
mod send;
mod serve;
mod settings;
mod stats;
mod status;
mod templates;
mod top;

use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use http::Method;
use serde_json::{Value, json};

use crate::client::{Client, ClientError};
use output::Output;

/// A patient mail carrier: hands your notifications to push services and webhooks, retries, and can
/// prove what happened.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Examples:
  postrider serve                                  start a server in ./postrider-data
  postrider dev                                    a server and fake providers, with an inbox
  postrider send --webhook https://example.com/hook --title Shipped --body 'Order 91'
  postrider doctor                                 check set-up and credentials
  postrider status --watch                         the present state on one screen
  postrider explain dlv_…                          why a delivery is in its state
  postrider dead replay --reason retries_exhausted --rate 50

Client commands find the server by --server and --key, or POSTRIDER_SERVER and POSTRIDER_KEY.
Exit codes: 0 success, 1 the command failed, 2 wrong usage, 3 the server cannot be reached.")]
pub struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

/// The arguments of all client commands: the server, the key and the output format.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// The server's address.
    #[arg(
        long,
        global = true,
        help_heading = "Server and output",
        env = "POSTRIDER_SERVER",
        default_value = "http://127.0.0.1:8080",
        value_name = "URL"
    )]
    server: String,
    /// An API key.
    #[arg(
        long,
        global = true,
        help_heading = "Server and output",
        env = "POSTRIDER_KEY",
        hide_env_values = true
    )]
    key: Option<String>,
    /// With an admin key: act for this tenant.
    #[arg(long, global = true, help_heading = "Server and output", env = "POSTRIDER_TENANT")]
    tenant: Option<String>,
    /// Print JSON.
    #[arg(long, global = true, help_heading = "Server and output")]
    json: bool,
}

/// A command that calls the server.
#[derive(Debug, Args)]
struct ClientArgs<C: Subcommand> {
    #[command(subcommand)]
    what: C,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the server: API, dispatcher, status page.
    Serve(serve::ServeArgs),
    /// Send one message, or a file of messages.
    Send(Box<send::SendArgs>),
    /// Show depth, rates, lanes and dead letters on one screen.
    Status(status::StatusArgs),
    /// The status screen, live: problems, rates, lanes. q quits.
    Top(top::TopArgs),
    /// Explain a delivery: why it is in its state, what it waits for and what can be done.
    Explain(messages::ExplainArgs),
    /// Messages: show, cancel, read the stored content.
    Messages(ClientArgs<messages::MessagesCommand>),
    /// Deliveries: list, show, and release those that are held.
    Deliveries(ClientArgs<messages::DeliveriesCommand>),
    /// Dead letters: list, replay, discard, export.
    Dead(ClientArgs<dead::DeadCommand>),
    /// Addresses: list, show, add, delete.
    Addresses(ClientArgs<addresses::AddressesCommand>),
    /// Recipients: list, show, put, prefer, would-send, import, delete.
    Recipients(ClientArgs<audience::RecipientsCommand>),
    /// Categories, which preferences are about: list, set, delete.
    Categories(ClientArgs<audience::CategoriesCommand>),
    /// Suppressions, addresses that nothing or not everything is sent to: list, add, delete.
    Suppressions(ClientArgs<audience::SuppressionsCommand>),
    /// The audience of the tenant: its zone, quiet hours and default.
    Audience(ClientArgs<audience::AudienceCommand>),
    /// API keys: list, create, revoke.
    Keys(ClientArgs<keys::KeysCommand>),
    /// VAPID keys: list, rotate.
    Vapid(ClientArgs<keys::SigningKeysCommand>),
    /// Webhook secrets, with which receivers verify signatures: list, rotate.
    WebhookSecrets(ClientArgs<keys::WebhookSecretsCommand>),
    /// Lanes: list, show, pause, resume, and the breakers of their providers.
    Lanes(ClientArgs<lanes::LanesCommand>),
    /// Accounts at providers: which are used, which are held, why and until when. List, verify, pause, resume.
    Accounts(ClientArgs<accounts::AccountsCommand>),
    /// Providers without accounts: pause and resume them.
    Providers(ClientArgs<providers::ProvidersCommand>),
    /// Jobs in the background: replay, discard, cancel, export. List, show, pause, resume, abort.
    Jobs(ClientArgs<jobs::JobsCommand>),
    /// Problems: what is wrong, for whom, since when. List, show, acknowledge, mute.
    Problems(ClientArgs<problems::ProblemsCommand>),
    /// Notes of incidents, pinned on every page: list, pin, remove.
    Notes(ClientArgs<notes::NotesCommand>),
    /// Alerts: the routes that problems are told by. List, test.
    Alerts(ClientArgs<alerts::AlertsCommand>),
    /// Events for others: read them, and subscribe webhooks to them.
    Events(ClientArgs<events::EventsCommand>),
    /// The history: counts and latencies by minute or hour.
    Stats(ClientArgs<stats::StatsCommand>),
    /// The audit log: who did what. List, export, verify.
    Audit(ClientArgs<audit::AuditCommand>),
    /// Encryption at rest: status, rotate the master key, destroy the key of a tenant.
    Encryption(ClientArgs<encryption::EncryptionCommand>),
    /// Check set-up and credentials: what is wrong, and how to fix it.
    Doctor(doctor::DoctorArgs),
    /// Check a data folder that no server uses, or repair it.
    Fsck(fsck::FsckArgs),
    /// Copy the store to a folder, also while the server runs.
    Backup(backup::BackupArgs),
    /// Make a data folder from a backup. What was pending in it is held until it is released.
    Restore(backup::RestoreArgs),
    /// Move everything from one store to another, and compare.
    MigrateStore(migrate::MigrateArgs),
    /// Classes: list, show, set, reset.
    #[command(after_help = settings::CLASSES_EXAMPLES)]
    Classes(ClientArgs<settings::SettingCommand>),
    /// Tenants: list, show, set, reset, pause, resume.
    Tenants(ClientArgs<settings::TenantsCommand>),
    /// Rates, concurrency, breaker, retry budget and capacity: show, set, reset.
    Limits(ClientArgs<settings::LimitsCommand>),
    /// Templates: list, show, set, delete, preview.
    Templates(ClientArgs<templates::TemplatesCommand>),
    Demo(postrider_sandbox::DemoArgs),
    Dev(postrider_sandbox::DevArgs),
    Bench(postrider_sandbox::BenchArgs),
    /// Fake providers for tests and demos.
    Sandbox(postrider_sandbox::SandboxArgs),
    /// Print the OpenAPI description of the API.
    Openapi,
    /// Check, explain or reload the configuration.
    Config(serve::ConfigArgs),
    /// Print completions for a shell.
    Completions {
        shell: clap_complete::Shell,
    },
    /// Write a page of the manual for each command to a folder.
    Man {
        #[arg(value_name = "DIR")]
        folder: std::path::PathBuf,
    },
    /// Print the version.
    Version,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
    /// The error is printed already.
    #[error("")]
    Silent,
}

impl CliError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Client(ClientError::BadServer(_)) => 2,
            Self::Client(ClientError::Unreachable { .. } | ClientError::Broken(_)) => 3,
            _ => 1,
        }
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self::Other(error.into())
    }
}

pub type CliResult = Result<(), CliError>;

/// Runs the command that the process was started with.
pub async fn main() -> ExitCode {
    match Cli::parse().command.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                eprintln!("postrider: {}", output::harmless(&text));
            }
            if let CliError::Client(ClientError::Refused(refused)) = &failure
                && refused.status == 401
            {
                eprintln!("Give a key with --key, or in POSTRIDER_KEY.");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

impl CliCommand {
    async fn run(self) -> CliResult {
        match self {
            Self::Serve(args) => serve::run(args).await,
            Self::Send(args) => send::run(*args).await,
            Self::Status(args) => status::run(args).await,
            Self::Top(args) => top::run(args).await,
            Self::Explain(args) => messages::explain(args).await,
            Self::Messages(args) => args.run(messages::messages).await,
            Self::Deliveries(args) => args.run(messages::deliveries).await,
            Self::Dead(args) => args.run(dead::run).await,
            Self::Addresses(args) => args.run(addresses::run).await,
            Self::Recipients(args) => args.run(audience::recipients).await,
            Self::Categories(args) => args.run(audience::categories).await,
            Self::Suppressions(args) => args.run(audience::suppressions).await,
            Self::Audience(args) => args.run(audience::audience).await,
            Self::Keys(args) => args.run(keys::keys).await,
            Self::Vapid(args) => args.run(keys::vapid).await,
            Self::WebhookSecrets(args) => args.run(keys::webhook_secrets).await,
            Self::Lanes(args) => args.run(lanes::run).await,
            Self::Accounts(args) => args.run(accounts::run).await,
            Self::Providers(args) => args.run(providers::run).await,
            Self::Jobs(args) => args.run(jobs::run).await,
            Self::Problems(args) => args.run(problems::run).await,
            Self::Notes(args) => args.run(notes::run).await,
            Self::Alerts(args) => args.run(alerts::run).await,
            Self::Events(args) => args.run(events::run).await,
            Self::Stats(args) => args.run(stats::run).await,
            Self::Audit(args) => args.run(audit::run).await,
            Self::Encryption(args) => args.run(encryption::run).await,
            Self::Doctor(args) => doctor::run(args).await,
            Self::Fsck(args) => fsck::run(args).await,
            Self::Backup(args) => backup::backup(args).await,
            Self::Restore(args) => backup::restore(args).await,
            Self::MigrateStore(args) => migrate::run(args).await,
            Self::Classes(args) => args.run(settings::classes).await,
            Self::Tenants(args) => args.run(settings::tenants).await,
            Self::Limits(args) => args.run(settings::limits).await,
            Self::Templates(args) => args.run(templates::run).await,
            Self::Demo(args) => match postrider_sandbox::run_demo(args, &demo::InProcess).await? {
                true => Ok(()),
                false => Err(CliError::Other(anyhow::anyhow!("a promise did not hold"))),
            },
            Self::Dev(args) => Ok(postrider_sandbox::run_dev(args, &demo::InProcess).await?),
            Self::Bench(args) => Ok(postrider_sandbox::run_bench(args).await?),
            Self::Sandbox(args) => Ok(postrider_sandbox::run_sandbox(args).await?),
            Self::Openapi => output::print(&crate::api::openapi::json()),
            Self::Config(args) => serve::config(args).await,
            Self::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "postrider", &mut script);
                output::print(&String::from_utf8_lossy(&script))
            }
            Self::Man { folder } => manual(&folder),
            Self::Version => output::print(concat!("postrider ", env!("CARGO_PKG_VERSION"))),
        }
    }
}

/// Writes `postrider.1`, `postrider-send.1` and so on.
fn manual(folder: &std::path::Path) -> CliResult {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)?;
    let pages = std::fs::read_dir(folder)?.count();
    output::print(&format!("{pages} pages in {}", folder.display()))
}

impl ConnectionArgs {
    fn session(&self) -> Result<ServerSession, CliError> {
        let client =
            Client::new(&self.server, self.key.as_deref())?.for_tenant(self.tenant.clone());
        Ok(ServerSession { client, out: Output { json: self.json } })
    }
}

impl<C: Subcommand> ClientArgs<C> {
    async fn run<F>(self, command: impl FnOnce(C, ServerSession) -> F) -> CliResult
    where
        F: Future<Output = CliResult>,
    {
        command(self.what, self.connection.session()?).await
    }
}

/// A server to call, and how to print its answers.
struct ServerSession {
    client: Client,
    out: Output,
}

impl ServerSession {
    async fn get(&self, path: &str, text: impl FnOnce(&Value) -> String) -> CliResult {
        self.out.show(&self.client.get(path).await?, text)
    }

    async fn post(
        &self,
        path: &str,
        body: &Value,
        text: impl FnOnce(&Value) -> String,
    ) -> CliResult {
        self.out.show(&self.client.post(path, body).await?, text)
    }

    async fn put(
        &self,
        path: &str,
        body: &Value,
        text: impl FnOnce(&Value) -> String,
    ) -> CliResult {
        self.out.show(&self.client.json(Method::PUT, path, Some(body)).await?, text)
    }

    /// Deletes, and says in one word what was done to what.
    async fn delete(&self, path: &str, done: &str, what: &str) -> CliResult {
        self.client.delete(path).await?;
        self.out.show(&json!({done: what}), |_| format!("{what} {done}"))
    }
}

/// Checks a name before it becomes part of a path.
fn path_segment(name: &str) -> Result<&str, CliError> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !name.is_empty() && name.bytes().all(allowed) && !name.bytes().all(|b| b == b'.') {
        return Ok(name);
    }
    Err(CliError::Usage(format!("{name:?} is not a name: letters, digits, -, _ or .")))
}

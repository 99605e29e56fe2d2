//! `doctor`: checks everything that a server needs, from its configuration to its providers. Reports what is
//! wrong and how to fix it. Changes nothing, sends nothing, and does not disturb a running server.

mod clock;
mod environment;
#[cfg(feature = "redis")]
mod redis_store;
mod report;
#[cfg(feature = "postgres")]
mod shared_store;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use postrider_channels::accounts::health::{AccountHealth, AccountToCheck, Finding, Probe};
use postrider_channels::registry;
use postrider_core::ChannelKind;
use postrider_store::SystemClock;

use super::{CliError, CliResult, output};
use crate::config::{Config, ConfigError, Environment};
use crate::serve::channels::AccountsToCheck;
use report::DoctorReport;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  postrider doctor --config /etc/postrider.toml
  postrider doctor --account firebase
  postrider doctor --offline --strict --json

Run it as the user, and with the environment, that the server runs with. Providers are called as
little as can be, and never with a message: docs/doctor.md lists every check and its remedy.
Exit codes: 0 nothing failed, 1 something did, 2 wrong usage.")]
pub(super) struct DoctorArgs {
    /// The configuration file [default: postrider.toml if there is one].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data folder [default: ./postrider-data].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The store [default: embedded:, in the data folder].
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Only this account of the configuration, and no other check.
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Call nobody: only what can be told on this machine.
    #[arg(long)]
    offline: bool,
    /// How long a provider may take to answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
    /// Whose clocks are compared with ours where no account's provider tells the time; more than one
    /// can be named [default: push services].
    #[arg(long, value_name = "URL")]
    time_from: Vec<String>,
    /// The name server that is asked for DKIM records [default: the first of /etc/resolv.conf].
    #[arg(long, value_name = "ADDR:PORT")]
    resolver: Option<SocketAddr>,
    /// A warning is a failure, too.
    #[arg(long)]
    strict: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: DoctorArgs) -> CliResult {
    let report = examine(&args).await?;
    output::print(&if args.json { report.json() } else { report.text() })?;
    if report.is_well(args.strict) { Ok(()) } else { Err(CliError::Silent) }
}

impl DoctorArgs {
    fn read(&self) -> Result<Config, ConfigError> {
        let mut config = Config::load(self.config.as_deref(), &Environment::of_process())?;
        if let Some(data) = &self.data {
            config.store.data.clone_from(data);
        }
        if let Some(url) = &self.store {
            config.store.url.clone_from(url);
        }
        config.check()?;
        Ok(config)
    }
}

async fn examine(args: &DoctorArgs) -> Result<DoctorReport, CliError> {
    let mut report = DoctorReport::default();
    let config = match args.read() {
        Ok(config) => config,
        Err(error) => {
            report.add(environment::judge_config(Err(&error)));
            return Ok(report);
        }
    };
    if let Some(name) = &args.account
        && !config.accounts.contains_key(name)
    {
        let names: Vec<_> = config.accounts.keys().map(String::as_str).collect();
        let allowed =
            if names.is_empty() { "none is configured".to_owned() } else { names.join(", ") };
        return Err(CliError::Usage(format!(
            "--account {name:?}: found no such account, allowed is {allowed}"
        )));
    }
    if args.account.is_none() {
        report.add(environment::judge_config(Ok(&config)));
        environment::examine(&config, args.offline, &mut report).await;
    }
    let timeout = Duration::from_secs(args.timeout);
    match AccountsToCheck::open(&config, Arc::new(SystemClock), timeout).await {
        Err(error) => {
            let remedy = "name a PEM file with the certificate of the authority, or leave it out";
            report.add(Finding::fail("network.extra_ca_file", format!("{error:#}"), remedy));
        }
        Ok(accounts) => examine_accounts(args, accounts, &mut report).await,
    }
    Ok(report)
}

async fn examine_accounts(args: &DoctorArgs, all: AccountsToCheck, report: &mut DoctorReport) {
    let probe = Probe { wiring: all.wiring, offline: args.offline, resolver: args.resolver };
    let is_asked_for = |name: &str| args.account.as_deref().is_none_or(|only| only == name);
    let accounts: Vec<_> = all
        .books
        .iter()
        .flat_map(|book| book.accounts_to_check().into_iter().map(move |account| (book, account)))
        .filter(|(_, account)| is_asked_for(&account.name))
        .collect();
    let origins = accounts.iter().flat_map(|(_, account)| account.origins.clone()).collect();
    report.add(clock::examine(&probe, origins, &args.time_from).await);
    let visits = accounts.iter().map(|(book, account)| examine_account(&***book, account, &probe));
    let mut found = join_all(visits).await;
    found.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    for (name, channel, findings) in found {
        for finding in findings {
            let check = format!("accounts.{name}.{}", finding.check);
            report.add(Finding {
                check,
                found: format!("{channel}: {}", finding.found),
                ..finding
            });
        }
    }
    if accounts.is_empty() {
        let without = registry::all().filter(|channel| channel.facts().accounts.is_none());
        let without: Vec<_> = without.map(|channel| channel.section().name).collect();
        let why = format!("none is configured; not needed for {}", without.join(", "));
        report.add(Finding::skipped("accounts", why));
    }
}

async fn examine_account(
    book: &dyn AccountHealth,
    account: &AccountToCheck,
    probe: &Probe,
) -> (Arc<str>, ChannelKind, Vec<Finding>) {
    (account.name.clone(), account.channel, book.examine(&account.name, probe).await)
}

//! `migrate-store`: moves everything from one store to another.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use postrider_core::Clock as _;
use postrider_core::ports::store::Store;
use postrider_store::migrate::{
    self, MigratableStore, MigrationPhase, MigrationProgress, MigrationReport,
};
use postrider_store::{EmbeddedStore, FolderReport, SteadyClock, StoreOptions};

use super::data_folder::record_bar;
use super::prelude::*;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  postrider migrate-store --from /var/lib/postrider --to /mnt/new/postrider
  postrider migrate-store --from /var/lib/postrider --to postgres://postrider@db.example/postrider
  postrider migrate-store --from /var/lib/postrider --reopen

Stop the server first. Messages, deliveries with their history, addresses, keys, settings and idempotency keys
are moved with their ids, and nothing is held. The old store is only read. At the end the new one is read again,
and counts and checksums are compared. If the migration is interrupted, run the same command again: it goes on.
A server refuses the new store until the migration is complete, and the old one from its beginning on, because
both would send the same messages. --reopen gives the old one back.
A store is a data folder, or the URL of PostgreSQL (password in PGPASSWORD) or Redis (password in REDISCLI_AUTH). From
folder to folder, this is also a way to write a store anew without its free pages.
Exit codes: 0 moved and compared, 1 it failed, 2 wrong usage.")]
pub(super) struct MigrateArgs {
    /// The old store: a data folder, or a postgres:// or redis:// URL.
    #[arg(long, value_name = "STORE")]
    from: String,
    /// The new store: a data folder, or a postgres:// or redis:// URL. It is new or empty, or has a part of the same
    /// migration.
    #[arg(long, value_name = "STORE", required_unless_present = "reopen")]
    to: Option<String>,
    /// Let the old store be used again. What the new one sent since is sent again.
    #[arg(long, conflicts_with = "to")]
    reopen: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: MigrateArgs) -> CliResult {
    let from = StorePlace::parse(&args.from)?;
    if let StorePlace::Folder(folder) = &from
        && (!FolderReport::of(folder).exists || !folder.join("postrider.db").is_file())
    {
        let text =
            format!("there is no store in {}; name the right folder with --from", folder.display());
        return Err(CliError::Other(anyhow!(text)));
    }
    let Some(to) = args.to.as_deref().map(StorePlace::parse).transpose()? else {
        return reopen(&from, args.json).await;
    };
    if from.is_same(&to) {
        return Err(CliError::Usage("--from and --to name the same store".to_owned()));
    }
    let old = from.open().await?;
    if let StorePlace::Folder(folder) = &to {
        check_new_folder(folder)?;
    }
    let new = to.open().await?;
    let counts = old.counts(None).await.context("the old store cannot be read")?;
    let about = counts.messages + counts.states.values().sum::<u64>();
    let (bar, mut last) = (record_bar("copying"), None);
    let now = SteadyClock::of_system().now();
    let name = to.to_string();
    let mut show = |progress: MigrationProgress| {
        if last != Some(progress.phase) {
            bar.set_length(about);
            bar.set_message(match progress.phase {
                MigrationPhase::Copying => "copying",
                MigrationPhase::Verifying => "comparing",
            });
            last = Some(progress.phase);
        }
        bar.set_position(progress.records.min(about));
    };
    let done = migrate::migrate(&*old, &*new, &name, now, &mut show).await;
    bar.finish_and_clear();
    new.close().await;
    old.close().await;
    let report = done.context("the store cannot be moved")?;
    output::print(&if args.json { as_json(&report).to_string() } else { as_text(&report, &name) })
}

async fn reopen(from: &StorePlace, json: bool) -> CliResult {
    let store = from.open().await?;
    let reopened = migrate::reopen(&*store).await.context("the store cannot be given back")?;
    store.close().await;
    output::print(&match (json, reopened) {
        (true, _) => json!({"reopened": reopened}).to_string(),
        (false, true) => "the store can be used again; do not use the new one any more".to_owned(),
        (false, false) => "the store was not moved; nothing was changed".to_owned(),
    })
}

/// A store that can be moved.
trait MovableStore: Store + MigratableStore {}

impl<T: Store + MigratableStore> MovableStore for T {}

/// Where a store is.
enum StorePlace {
    Folder(PathBuf),
    /// A URL of PostgreSQL.
    Postgres(String),
    /// A URL of Redis.
    Redis(String),
}

impl StorePlace {
    fn parse(store: &str) -> Result<Self, CliError> {
        if store.starts_with("postgres://") || store.starts_with("postgresql://") {
            return Ok(Self::Postgres(store.to_owned()));
        }
        if store.starts_with("redis") && store.contains("://") {
            return Ok(Self::Redis(store.to_owned()));
        }
        let folder = store.strip_prefix("embedded:").unwrap_or(store);
        if folder.contains("://") || folder.starts_with("memory:") || folder.is_empty() {
            let text = format!(
                "{store:?} is no store that this version can move: it moves data folders, PostgreSQL and Redis"
            );
            return Err(CliError::Usage(text));
        }
        Ok(Self::Folder(folder.into()))
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Folder(from), Self::Folder(to)) => {
                let (from, to) = (std::fs::canonicalize(from), std::fs::canonicalize(to));
                from.is_ok_and(|from| to.is_ok_and(|to| from == to))
            }
            (Self::Postgres(from), Self::Postgres(to)) | (Self::Redis(from), Self::Redis(to)) => {
                from == to
            }
            _ => false,
        }
    }

    async fn open(&self) -> Result<Box<dyn MovableStore>, CliError> {
        match self {
            Self::Folder(folder) => {
                let (data, clock) = (folder.clone(), Arc::new(SteadyClock::of_system()));
                let open = move || EmbeddedStore::open(&data, clock, StoreOptions::default());
                let opened =
                    tokio::task::spawn_blocking(open).await.context("the store did not open")?;
                let opened = opened
                    .with_context(|| format!("cannot open the store in {}", folder.display()))?;
                Ok(Box::new(opened))
            }
            Self::Postgres(url) => open_postgres(url).await,
            Self::Redis(url) => open_redis(url).await,
        }
    }
}

/// Without a password, which a URL may have.
impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::Postgres(url) | Self::Redis(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
                let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
                write!(f, "{scheme}://{}", place.split('?').next().unwrap_or_default())
            }
        }
    }
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str) -> Result<Box<dyn MovableStore>, CliError> {
    let options = postrider_store::PostgresOptions::parse(url);
    let options = options.map_err(|error| CliError::Usage(error.to_string()))?;
    let name = options.shown();
    let opened = postrider_store::PostgresStore::open(options).await;
    Ok(Box::new(opened.with_context(|| format!("cannot open the store at {name}"))?))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_: &str) -> Result<Box<dyn MovableStore>, CliError> {
    Err(CliError::Usage("this program was built without PostgreSQL".to_owned()))
}

#[cfg(feature = "redis")]
async fn open_redis(url: &str) -> Result<Box<dyn MovableStore>, CliError> {
    let options = postrider_store::RedisOptions::parse(url);
    let options = options.map_err(|error| CliError::Usage(error.to_string()))?;
    let name = options.shown();
    let opened = postrider_store::RedisStore::open(options).await;
    Ok(Box::new(opened.with_context(|| format!("cannot open the store at {name}"))?))
}

#[cfg(not(feature = "redis"))]
async fn open_redis(_: &str) -> Result<Box<dyn MovableStore>, CliError> {
    Err(CliError::Usage("this program was built without Redis".to_owned()))
}

/// Files of others would become a part of the data folder.
fn check_new_folder(to: &Path) -> CliResult {
    let Ok(entries) = std::fs::read_dir(to) else { return Ok(()) };
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("postrider.") && name != "lost+found" {
            let text = format!("{} is not empty (it has {name}); use a new folder", to.display());
            return Err(CliError::Other(anyhow!(text)));
        }
    }
    Ok(())
}

fn as_json(report: &MigrationReport) -> Value {
    let totals = report.totals.all().map(|(kind, total)| {
        let total = json!({"count": total.count, "checksum": format!("{:032x}", total.checksum)});
        (kind.name().replace(' ', "_"), total)
    });
    json!({"resumed": report.resumed, "records": totals.collect::<Map<_, _>>()})
}

fn as_text(report: &MigrationReport, to: &str) -> String {
    let mut text = String::new();
    if report.resumed {
        text += "went on with an interrupted migration\n";
    }
    for (kind, total) in report.totals.all() {
        text +=
            &format!("{:<17} {:>12}  checksum {:032x}\n", kind.name(), total.count, total.checksum);
    }
    format!("{text}moved to {to}; counts and checksums are the same in both")
}

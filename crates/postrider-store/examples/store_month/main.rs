//! Thirty virtual days of one store: `cargo xtask prove month`. Keyed messages are accepted, sent, retried,
//! buried and pruned, with a clock that runs fast. Prints a table, one row per tenth of the time. Ends with an
//! error if the last tenth is worse than the first tenth of a new store that runs in turns with it, if the file
//! is larger than what it keeps, or if the hourly chores hold up a commit. Beside it, a thread writes
//! to another file, so that stalls of the disk are told from the store's.
//! Arguments: `--messages N`, `--retention-days N`, `--dir DIR`.

mod disk;
mod load;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider_core::Timestamp;
use postrider_core::ports::store::{Ledger, Retention, StoreError, StoreResult};
use postrider_store::conformance::WorkingStore;
use postrider_store::{ManualClock, StoreOptions};

use disk::DiskWitness;
use load::MonthLoad;
use report::{Samples, check, print_row};

const DAY: Duration = Duration::from_secs(86_400);
const MONTH: Duration = Duration::from_secs(30 * 86_400);
const TENTHS: u64 = 10;
/// Rows of the samples of each tenth. The median of these is not moved by other programs for a while.
const SLICES: u64 = 20;

struct MonthOptions {
    messages: u64,
    retention: Duration,
    dir: Option<PathBuf>,
}

fn options() -> Result<MonthOptions, String> {
    let mut options = MonthOptions { messages: 6_000_000, retention: 2 * DAY, dir: None };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number =
            || value.parse::<u64>().map_err(|_| format!("{name} needs a number, not {value:?}"));
        match name.as_str() {
            "--messages" => options.messages = number()?.max(TENTHS * SLICES * 2_000),
            "--retention-days" => {
                options.retention = DAY * u32::try_from(number()?).unwrap_or(30).max(1);
            }
            "--dir" => options.dir = Some(value.into()),
            _ => return Err(format!("{name:?} is not known")),
        }
    }
    Ok(options)
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let done = match options() {
        Ok(options) => run(options).await.map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    match done {
        Ok(broken) if broken.is_empty() => return std::process::ExitCode::SUCCESS,
        Ok(broken) => broken.iter().for_each(|bound| eprintln!("BROKEN: {bound}")),
        Err(error) => eprintln!("error: {error}"),
    }
    std::process::ExitCode::FAILURE
}

async fn run(options: MonthOptions) -> StoreResult<Vec<String>> {
    let temporary = tempfile::tempdir().map_err(io)?;
    let dir = options.dir.clone().unwrap_or_else(|| temporary.path().join("old"));
    println!(
        "{} messages in 30 virtual days, kept for {} days",
        options.messages,
        options.retention.as_secs() / DAY.as_secs()
    );
    print_row(None);
    let witness = DiskWitness::start(&dir)?;
    let mut old = MonthRun::open(&dir, &options)?;
    let mut tenths = Vec::new();
    for tenth in 1..TENTHS {
        let (mut samples, begin) = (Samples::default(), Instant::now());
        for _ in 0..SLICES {
            old.slice(&mut samples).await?;
        }
        samples.take_off_stalls(&witness, begin);
        print_row(Some((&tenth.to_string(), &samples)));
        tenths.push(samples);
    }
    // In turns, so that other programs on the machine slow both down alike.
    let mut young = MonthRun::open(&temporary.path().join("young"), &options)?;
    let (mut first, mut last, begin) = (Samples::default(), Samples::default(), Instant::now());
    for _ in 0..SLICES {
        young.slice(&mut first).await?;
        old.slice(&mut last).await?;
    }
    first.take_off_stalls(&witness, begin);
    last.take_off_stalls(&witness, begin);
    print_row(Some(("new 1", &first)));
    print_row(Some(("10", &last)));
    young.store.close().await;
    old.end().await?;
    let size = report::size(&dir, old.load.keys_in_window())?;
    old.store.close().await;
    Ok(check(&tenths, &first, &last, &size))
}

/// A store with its traffic.
struct MonthRun {
    store: Arc<WorkingStore>,
    load: MonthLoad,
    chores: Chores,
    per_slice: u64,
}

impl MonthRun {
    fn open(dir: &Path, options: &MonthOptions) -> StoreResult<Self> {
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let store = WorkingStore::open(dir, clock.clone(), StoreOptions::default())?;
        let store = Arc::new(store);
        let mut retention = Retention::of(options.retention);
        retention.default.dead_letters = Some(2 * options.retention);
        let load = MonthLoad::new(store.clone(), clock, MONTH, options.messages);
        let chores = Chores { store: store.clone(), retention, running: Arc::default() };
        Ok(Self { store, load, chores, per_slice: options.messages / TENTHS / SLICES })
    }

    async fn slice(&mut self, samples: &mut Samples) -> StoreResult<()> {
        samples.begin_slice();
        while samples.messages_of_slice() < self.per_slice {
            if self.load.hour_is_over() {
                self.chores.begin();
            }
            self.load.round(samples, &self.chores.running).await?;
        }
        samples.end_slice(self.load.take_delivered());
        Ok(())
    }

    /// Lets the store finish its chores.
    async fn end(&mut self) -> StoreResult<()> {
        self.chores.wait().await;
        self.load.rest().await
    }
}

/// What the server does every hour.
struct Chores {
    store: Arc<WorkingStore>,
    retention: Retention,
    running: Arc<AtomicBool>,
}

impl Chores {
    fn begin(&self) {
        if self.running.swap(true, Ordering::SeqCst) {
            return;
        }
        let (store, retention, running) =
            (self.store.clone(), self.retention.clone(), self.running.clone());
        tokio::spawn(async move {
            loop {
                match store.prune(&retention).await {
                    Ok(progress) if progress.has_more => tokio::task::yield_now().await,
                    Ok(_) => break,
                    Err(error) => {
                        eprintln!("prune: {error}");
                        break;
                    }
                }
            }
            running.store(false, Ordering::SeqCst);
        });
    }

    async fn wait(&self) {
        let start = Instant::now();
        while self.running.load(Ordering::SeqCst) && start.elapsed() < Duration::from_secs(60) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn io(error: impl std::fmt::Display) -> StoreError {
    StoreError::Io { what: error.to_string(), cause: None }
}

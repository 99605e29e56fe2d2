//! The simulator's command line: `cargo run -p postrider-sim -- --seeds 1000`.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use postrider_sim::{Failure, Fleet, Run, StoreKind, mutate, run};

/// Plays whole lives of Postrider over virtual time and checks its invariants.
#[derive(Parser)]
struct Args {
    /// How many seeds to play.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Over which store.
    #[arg(long, value_enum, default_value_t = Stores::Both)]
    store: Stores,
    /// Over the embedded store, every so many-th seed only.
    #[arg(long, default_value_t = 1)]
    embedded_every: u64,
    /// Each seed once: without the proof that it repeats itself.
    #[arg(long)]
    once: bool,
    /// How many at a time; as many as there are cores if it is not said.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// One seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Print everything that happens; with --seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Build a named bug into a copy of the tree and demand that it is found within --seeds; `all` for
    /// each of them, `list` to name them.
    #[arg(long, value_name = "NAME")]
    mutate: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stores {
    Memory,
    Embedded,
    Both,
}

impl Stores {
    fn kinds(self) -> Vec<StoreKind> {
        match self {
            Self::Memory => vec![StoreKind::Memory],
            Self::Embedded => vec![StoreKind::Embedded],
            Self::Both => vec![StoreKind::Memory, StoreKind::Embedded],
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let held = match (&args.mutate, args.seed) {
        (Some(name), _) => match mutate(name, args.seeds) {
            Ok(()) => true,
            Err(error) => {
                eprintln!("\npostrider-sim: {error:#}");
                false
            }
        },
        (None, Some(seed)) => {
            args.store.kinds().into_iter().all(|store| one(seed, store, args.trace))
        }
        (None, None) => many(&args),
    };
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, store: StoreKind, loud: bool) -> bool {
    let run = run(seed, store, loud);
    println!(
        "seed {seed} over {}: {:016x}, {} events, {} deliveries, {} calls, {} lives, {} s",
        store.name(),
        run.hash,
        run.events,
        run.deliveries,
        run.calls,
        run.lives,
        run.virtual_ms / 1000,
    );
    run.failure.as_ref().inspect(|failure| tell(&run, failure)).is_none()
}

fn many(args: &Args) -> bool {
    let fleet = Fleet {
        from: args.from,
        seeds: args.seeds,
        stores: args.store.kinds(),
        embedded_every: args.embedded_every.max(1),
        twice: !args.once,
        progress: true,
        threads: args.threads,
    };
    let summary = fleet.run();
    if let Some((run, failure)) =
        summary.failed.as_ref().and_then(|run| Some((run, run.failure.as_ref()?)))
    {
        tell(run, failure);
        return false;
    }
    println!(
        "{} seeds{}: {} runs, 0 violations. {} deliveries, {} calls, {} lives, {} days of virtual time; {:.1} s, {:.0} seeds/s",
        args.seeds,
        if args.once { "" } else { ", twice each" },
        summary.runs,
        summary.deliveries,
        summary.calls,
        summary.lives,
        summary.virtual_ms / 86_400_000,
        summary.took.as_secs_f64(),
        args.seeds as f64 / summary.took.as_secs_f64(),
    );
    true
}

fn tell(run: &Run, failure: &Failure) {
    for event in &failure.trace {
        println!("{event}");
    }
    let store = run.store.name();
    println!("\nseed {} over {store} broke: {}\n  {}", run.seed, failure.invariant, failure.detail);
    println!("again: cargo run -p postrider-sim -- --seed {} --store {store} --trace", run.seed);
}

//! The simulator's command line: `cargo run -p postrider-sim -- --seeds 1000`.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use postrider_sim::{
    HarmSeeds, SeedRunner, SimFailure, SimRun, StoreKind, ablate_harm, harm_by_chance,
    harm_changed, harm_dense, harm_seeds, mutate, mutate_harm, run,
};

/// Simulates Postrider over virtual time and checks its invariants.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct SimArgs {
    #[command(subcommand)]
    command: Option<SimCommand>,
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// The store to run over.
    #[arg(long, value_enum, default_value_t = StoreChoice::Both)]
    store: StoreChoice,
    /// Run only every N-th seed over the embedded store.
    #[arg(long, default_value_t = 1)]
    embedded_every: u64,
    /// Run each seed once, without the check that it repeats itself.
    #[arg(long)]
    once: bool,
    /// Number of threads; the number of cores by default.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Run only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Print every event; with --seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Build a named bug into a copy of the tree and require that --seeds seeds find it; `all` for
    /// every bug, `list` for their names.
    #[arg(long, value_name = "NAME")]
    mutate: Option<String>,
}

#[derive(Subcommand)]
enum SimCommand {
    /// Checks that sick traffic costs healthy traffic nothing: three runs per seed.
    Harm(HarmArgs),
}

#[derive(clap::Args)]
struct HarmArgs {
    /// Number of seeds to run: 100 by default, 200 with --mutate, 2 000 with --ablate.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed: 1 by default, a fresh one with --mutate.
    #[arg(long)]
    from: Option<u64>,
    /// Run only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of threads; the number of cores by default.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Stop when so many worlds broke a bound; with --ablate, those of each rule.
    #[arg(long, value_name = "N")]
    enough: Option<usize>,
    /// Let the rules draw other random numbers: the N-th other ones.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["metamorphic", "mutate", "ablate"])]
    chance: u64,
    /// Print every world, not only those that broke a bound.
    #[arg(long)]
    all: bool,
    /// Also run each world with other names, its sick tenant split, twice the sick traffic, stretched
    /// times and permuted arrivals.
    #[arg(long)]
    metamorphic: bool,
    /// Draw worlds in which all share few origins and few places, and send much.
    #[arg(long, conflicts_with = "metamorphic")]
    dense: bool,
    /// Put a named old rule into a copy of the tree and require that --seeds seeds find it; `all` for
    /// every old rule, `list` for their names.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["seed", "all", "metamorphic"])]
    mutate: Option<String>,
    /// Take a named rule out of a copy of the tree and print what breaks without it; `all` for each in
    /// turn, `list` for their names. `a,b` takes one after the other out, `a+b` both at the same time.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["seed", "all", "metamorphic", "mutate"])]
    ablate: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum StoreChoice {
    Memory,
    Embedded,
    Both,
}

impl StoreChoice {
    fn kinds(self) -> Vec<StoreKind> {
        match self {
            Self::Memory => vec![StoreKind::Memory],
            Self::Embedded => vec![StoreKind::Embedded],
            Self::Both => vec![StoreKind::Memory, StoreKind::Embedded],
        }
    }
}

fn main() -> ExitCode {
    let args = SimArgs::parse();
    if let Some(SimCommand::Harm(args)) = &args.command {
        return if run_harm(args) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let passed = match (&args.mutate, args.seed) {
        (Some(name), _) => has_passed(mutate(name, args.seeds)),
        (None, Some(seed)) => {
            args.store.kinds().into_iter().all(|store| run_one(seed, store, args.trace))
        }
        (None, None) => run_seeds(&args),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn has_passed(result: anyhow::Result<()>) -> bool {
    result.inspect_err(|error| eprintln!("\npostrider-sim: {error:#}")).is_ok()
}

fn run_harm(args: &HarmArgs) -> bool {
    let worlds = |from, seeds| HarmSeeds { from, seeds, dense: args.dense, enough: args.enough };
    if let Some(name) = &args.mutate {
        let from = args.from.map_or_else(HarmSeeds::fresh_start, Ok);
        let seeds = args.seeds.unwrap_or(200);
        return has_passed(from.and_then(|from| mutate_harm(name, worlds(from, seeds))));
    }
    let from = args.from.unwrap_or(1);
    if let Some(name) = &args.ablate {
        return has_passed(ablate_harm(name, worlds(from, args.seeds.unwrap_or(2_000))));
    }
    let (from, seeds) = args.seed.map_or((from, args.seeds.unwrap_or(100)), |seed| (seed, 1));
    let run = |seed| match (args.metamorphic, args.dense) {
        (true, _) => harm_changed(seed),
        (false, true) => harm_dense(seed, args.chance),
        (false, false) => harm_by_chance(seed, args.chance),
    };
    let failed = harm_seeds(from, seeds, args.threads, args.enough, run, |report| {
        if args.all || args.seed.is_some() || !report.broken.is_empty() {
            println!("{report}");
        }
    });
    println!("{seeds} seeds from {from} on, {} broke a bound: {failed:?}", failed.len());
    failed.is_empty()
}

fn run_one(seed: u64, store: StoreKind, loud: bool) -> bool {
    let run = run(seed, store, loud);
    println!(
        "seed {seed} over {}: {:016x}, {} events, {} deliveries, {} calls, {} process starts, {} s",
        store.name(),
        run.hash,
        run.events,
        run.deliveries,
        run.calls,
        run.starts,
        run.virtual_ms / 1000,
    );
    run.failure.as_ref().inspect(|failure| print_failure(&run, failure)).is_none()
}

fn run_seeds(args: &SimArgs) -> bool {
    let seeds = SeedRunner {
        from: args.from,
        seeds: args.seeds,
        stores: args.store.kinds(),
        embedded_every: args.embedded_every.max(1),
        twice: !args.once,
        progress: true,
        threads: args.threads,
    };
    let summary = seeds.run();
    if let Some((run, failure)) =
        summary.failed.as_ref().and_then(|run| Some((run, run.failure.as_ref()?)))
    {
        print_failure(run, failure);
        return false;
    }
    println!(
        "{} seeds{}: {} runs, 0 violations. {} deliveries, {} calls, {} process starts, {} days of virtual time; {:.1} s, {:.0} seeds/s",
        args.seeds,
        if args.once { "" } else { ", twice each" },
        summary.runs,
        summary.deliveries,
        summary.calls,
        summary.starts,
        summary.virtual_ms / 86_400_000,
        summary.took.as_secs_f64(),
        args.seeds as f64 / summary.took.as_secs_f64(),
    );
    true
}

fn print_failure(run: &SimRun, failure: &SimFailure) {
    for event in &failure.trace {
        println!("{event}");
    }
    let store = run.store.name();
    println!("\nseed {} over {store} broke: {}\n  {}", run.seed, failure.invariant, failure.detail);
    println!("again: cargo run -p postrider-sim -- --seed {} --store {store} --trace", run.seed);
}

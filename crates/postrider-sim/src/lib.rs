//! Seeded simulation of Postrider over virtual time, checked against its invariants. Intake, lanes,
//! dispatcher, policy and stores are the real ones; providers, clock and disk are simulated. For tests
//! and proofs only: it ships nothing.

mod blocking;
mod clock;
mod driver;
mod faulty_consumer;
mod faulty_disk;
mod faulty_store;
mod harm;
mod http_date;
mod intake;
mod journal;
mod mutants;
mod oracle;
mod plan;
mod process;
mod provider;
mod regressions;
mod rng;
mod run;
mod seeds;
mod storage;
mod trace;
mod world;

pub use harm::{
    BrokenBound, HarmReport, WaitFigures, harm, harm_by_chance, harm_changed, harm_dense,
    harm_seeds,
};
pub use mutants::{HarmSeeds, ablate_harm, mutate, mutate_harm};
pub use regressions::REGRESSIONS;
pub use run::{SimFailure, SimRun, run};
pub use seeds::{SeedRunner, SeedSummary};
pub use storage::StoreKind;
pub use trace::TraceEvent;

//! Whole lives of Postrider over virtual time, drawn from seeds and judged by its invariants. The intake,
//! the lanes, the dispatcher, the policy and the stores are the real ones; providers, clock and disk
//! are simulated. Ships nothing: for tests and proofs only.

mod clock;
mod driver;
mod fleet;
mod home;
mod httpdate;
mod intake;
mod journal;
mod life;
mod mutants;
mod oracle;
mod patience;
mod plan;
mod ports;
mod provider;
mod regressions;
mod rng;
mod run;
mod trace;
mod watched;
mod world;

pub use fleet::{Fleet, Summary};
pub use home::StoreKind;
pub use mutants::mutate;
pub use regressions::REGRESSIONS;
pub use run::{Failure, Run, run};
pub use trace::Event;

//! Promises of intake and dispatcher, kept over the reference store and scripted channels.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod capacity;
mod dispatching;
mod flaky;
mod gating;
mod guards;
mod lanes;
mod parallel;
mod scripted;
mod strikes;
mod templating;
mod trouble;

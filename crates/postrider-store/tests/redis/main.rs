//! What only the Redis engine can do wrong: servers that crash, answers that are lost, slots that move, workers that
//! fall behind, and set-ups that cannot work.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cluster;
mod crashes;
mod fixture;
mod interrupted;
#[path = "../lost_answers/mod.rs"]
mod lost_answers;
mod moving;
#[path = "../pinned/mod.rs"]
mod pinned;
mod regions;
mod setups;

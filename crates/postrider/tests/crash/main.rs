//! What a crash must not do, shown on the real binary: processes are killed, system calls are read.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod durability;
mod guards;
mod hangup;
mod http;
#[path = "../explain/keep.rs"]
mod keep;
mod kill;
mod process;

//! What must survive a crash, tested on the real binary: processes are killed, system calls are read.

mod durability;
mod events;
mod in_flight;
mod jobs;
mod kill;
mod restart;
mod sighup;
#[path = "../explain/snapshot.rs"]
mod snapshot;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

//! What must survive a crash, tested on the real binary: processes are killed, system calls are read.

mod durability;
mod in_flight;
mod kill;
mod sighup;
#[path = "../explain/snapshot.rs"]
mod snapshot;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

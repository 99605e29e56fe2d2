//! Copies of a data folder, tested on the real binary: backup, restore and migration.

mod backup;
mod fixture;
mod migrate;
mod refusals;
mod replicator;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

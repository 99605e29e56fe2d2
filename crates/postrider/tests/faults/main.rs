//! Faults around the data folder, tested on the real binary: one fault touches one thing.

mod clock;
mod disk;
mod disk_image;
mod journal;
mod power;
mod reader;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

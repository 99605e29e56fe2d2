//! What a crash must not do, shown on the real binary: processes are killed, system calls are read.

mod durability;
mod http;
mod kill;
mod process;

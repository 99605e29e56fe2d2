//! The API as a caller meets it: a whole server in process, real sockets, the store in memory.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod bad_input;
mod batch;
mod capacity;
mod certificates;
mod dead_letters;
mod events;
mod lanes;
mod mailing;
mod messages;
mod mutations;
mod pushing;
mod refusals;
mod reload;
mod rights;
mod server;
mod settings;
mod strikes;
mod templates;
mod trouble;
mod watch;

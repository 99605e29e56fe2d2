//! `explain` for every reason: a real server with a sandbox is brought into that state, and a snapshot is kept of
//! what the API and the command line say.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod blame;
mod complete;
mod ended;
mod fixture;
mod held;
mod pending;
mod snapshot;

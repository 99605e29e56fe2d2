//! `explain`, for every reason that there is: a real server with a sandbox is brought into that
//! state, and what the API and the command line say about it is kept as a snapshot.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod complete;
mod ended;
mod fixture;
mod held;
mod pending;
mod snapshot;

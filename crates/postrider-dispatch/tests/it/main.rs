//! Promises of intake and dispatcher, tested with the reference store and scripted channels. The test of
//! a module has the name of the module.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod account_channel;
mod accounts;
mod at_most_once;
mod attempt;
mod dispatcher;
mod expiry;
mod fixture;
mod flaky_consumer;
mod intake;
mod intake_room;
mod intake_template;
mod lanes;
mod open_breaker;
mod parallel_channel;
mod strikes;

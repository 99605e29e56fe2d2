//! Tests with programs of other people: their clients against our fakes, their servers and verifiers against our
//! channels. Missing programs are installed; no test is skipped.

#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod apns;
mod browser;
mod dkim;
mod google;
mod mail_client;
mod mail_server;
mod signatures;
mod swaks;
mod tools;
mod web_push;

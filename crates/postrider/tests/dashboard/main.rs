//! The dashboard in a real Chromium: a person signs in, finds out why something failed, and mends it.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod answers;
mod fixture;
mod on_call;
mod pages;
mod sign_in;
mod steering;

//! `postrider dev`: the real binary, with its inbox in a real browser.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod command;
mod fixture;
mod hostile;
mod inbox;

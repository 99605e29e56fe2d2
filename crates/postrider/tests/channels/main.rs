//! Channels from end to end, with the real server as a process: one message per channel, the most common mistakes of
//! senders, and the metrics after all that.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod every_channel;
mod fixture;
mod hygiene;
mod metrics;
mod mistakes;
mod receipts;

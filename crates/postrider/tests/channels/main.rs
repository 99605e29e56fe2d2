//! Channels from end to end: the real server as a process of its own, one message per channel, and the mistakes
//! that senders make most often.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod every_channel;
mod fixture;
mod mistakes;

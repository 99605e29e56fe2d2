//! Channels from end to end: the real server and the real sandbox as processes of their own, one message per
//! channel, and the mistakes that senders make most often.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod eight;
#[path = "../crash/http.rs"]
mod http;
mod mistakes;
#[expect(dead_code, reason = "nothing is killed on purpose here")]
#[path = "../crash/process.rs"]
mod process;
mod town;

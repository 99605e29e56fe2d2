//! Time to live: how long a message is worth sending.

use std::time::Duration;

use crate::time::Timestamp;

/// How long a message with TTL 0 ("now or never") may wait for its one attempt.
pub const DISPATCH_WINDOW: Duration = Duration::from_secs(10);

/// When a message accepted `now` expires. The TTL counts from `send_at` where that is later.
pub fn expires_at(now: Timestamp, send_at: Option<Timestamp>, ttl_s: u32) -> Timestamp {
    let start = send_at.map_or(now, |at| at.max(now));
    start + if ttl_s == 0 { DISPATCH_WINDOW } else { Duration::from_secs(u64::from(ttl_s)) }
}

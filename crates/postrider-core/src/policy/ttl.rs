//! Time to live: how long a message is worth sending. Fixed at ingestion, never extended by waiting.

use std::time::Duration;

use crate::model::time::Timestamp;

/// How long a message with TTL 0 ("now or never") may wait for its one attempt, unless an operator says otherwise.
pub const DISPATCH_WINDOW: Duration = Duration::from_secs(10);

/// 28 days: the longest TTL of a channel whose provider sets no limit of its own.
pub const MAX_S: u32 = 2_419_200;

/// When a message accepted `now` expires. The TTL counts from `send_at` where that is later. With TTL 0, it has
/// `window` for its one attempt.
pub fn expires_at(
    now: Timestamp,
    send_at: Option<Timestamp>,
    ttl_s: u32,
    window: Duration,
) -> Timestamp {
    let start = send_at.map_or(now, |at| at.max(now));
    start + if ttl_s == 0 { window } else { Duration::from_secs(u64::from(ttl_s)) }
}

/// Nothing is sent from `expires_at` on.
pub fn is_over(expires_at: Timestamp, now: Timestamp) -> bool {
    now >= expires_at
}

/// Whether there is to be one attempt and no retry. A replay may have given a delivery whose message was made with
/// TTL 0 a longer life: then its deadline is later than that of its message, and beyond the usual window.
pub fn is_one_shot(
    ttl_s: u32,
    message_expires_at: Timestamp,
    expires_at: Timestamp,
    now: Timestamp,
) -> bool {
    let is_replayed_so = || expires_at.since(now) <= DISPATCH_WINDOW;
    ttl_s == 0 && (expires_at <= message_expires_at || is_replayed_so())
}

/// The whole seconds that a provider may keep the message for, rounded down so that it is never
/// shown late. 0, which providers read as "now or never", for a message that was sent so.
pub fn remaining_s(is_one_shot: bool, expires_at: Timestamp, now: Timestamp) -> u32 {
    if is_one_shot {
        return 0;
    }
    u32::try_from(expires_at.since(now).as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_794_722_400_000);

    #[test]
    fn the_ttl_counts_from_send_at_where_that_is_later() {
        let later = NOW + Duration::from_secs(100);
        let ends = |send_at, ttl_s| expires_at(NOW, send_at, ttl_s, DISPATCH_WINDOW);
        assert_eq!(ends(Some(later), 60), later + Duration::from_secs(60));
        let earlier = NOW - Duration::from_secs(100);
        assert_eq!(ends(Some(earlier), 60), NOW + Duration::from_secs(60));
        assert_eq!(ends(None, 0), NOW + DISPATCH_WINDOW);
        let own = expires_at(NOW, None, 0, Duration::from_secs(3));
        assert_eq!(own, NOW + Duration::from_secs(3), "an operator may set the window");
    }

    #[test]
    fn the_provider_gets_what_is_left_rounded_down() {
        let deadline = expires_at(NOW, None, 60, DISPATCH_WINDOW);
        assert_eq!(remaining_s(false, deadline, NOW), 60);
        assert_eq!(remaining_s(false, deadline, Timestamp(NOW.0 + 1)), 59);
        assert_eq!(remaining_s(false, deadline, deadline), 0);
        assert_eq!(remaining_s(false, deadline, deadline + Duration::from_secs(5)), 0);
    }

    #[test]
    fn now_or_never_is_sent_as_such_until_a_replay_gives_it_time() {
        let deadline = expires_at(NOW, None, 0, DISPATCH_WINDOW);
        assert!(is_one_shot(0, deadline, deadline, NOW));
        assert_eq!(remaining_s(true, deadline, NOW), 0);
        let replayed = deadline + Duration::from_secs(1);
        assert!(!is_one_shot(0, deadline, replayed, NOW));
        assert_eq!(remaining_s(false, replayed, NOW), 11);
        assert!(!is_one_shot(1, deadline, deadline, NOW));
    }

    #[test]
    fn the_deadline_itself_is_too_late() {
        assert!(is_over(NOW, NOW));
        assert!(!is_over(Timestamp(NOW.0 + 1), NOW));
    }
}

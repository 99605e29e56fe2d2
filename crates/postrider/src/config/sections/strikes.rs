//! The section `[strikes]`: when answers against an address make it suspect or gone.

use std::time::Duration;

use postrider_core::policy::strikes::{StrikeRule, StrikeRules};

use super::check;
use crate::config::ConfigError;
use postrider_channels::section;

section! {
    /// What an address was blamed for before counts; a success clears it, and so does registering it
    /// again. Which answers blame an address is in the tables ([[classify]], strike). 0 is never.
    StrikesSection as "strikes" {
        /// A push service calls the endpoint invalid: gone after so many times ...
        endpoint: u32 = 3,
        /// ... over at least so long.
        endpoint_over_s: u64 = 86_400,
        /// A mail server refuses the mailbox without saying why (550): gone after so many times, which
        /// must not all have come on one day (UTC).
        mailbox: u32 = 2,
        /// A gateway does not know the number: gone after so many times.
        number: u32 = 2,
        /// A handset cannot be reached: suspect after so many messages.
        unreachable: u32 = 3,
        /// A carrier blocks messages to the number: suspect after so many.
        blocked: u32 = 3,
        /// Apple does not know the device, and neither is any other known to work: suspect after so many.
        device: u32 = 3,
        /// The subscription was made with another VAPID key: suspect, it needs to subscribe again, after
        /// so many times.
        key: u32 = 1,
        /// The endpoint's host has no name any more: gone after so long of it.
        host_over_s: u64 = 86_400,
        /// A webhook's receiver did nothing but fail: suspect after so long, and then each message gets
        /// one attempt, until one succeeds.
        failing_over_s: u64 = 432_000,
    }
}

impl StrikesSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        // Strikes older than thirty days are deleted, so a longer time is never reached.
        for (field, found) in [
            ("strikes.endpoint_over_s", self.endpoint_over_s),
            ("strikes.host_over_s", self.host_over_s),
            ("strikes.failing_over_s", self.failing_over_s),
        ] {
            check(found <= 2_592_000, field, found, "0 to 2592000, thirty days")?;
        }
        Ok(())
    }

    pub(crate) fn rules(&self) -> StrikeRules {
        let ours = StrikeRules::default();
        let count = |count_min, rule: StrikeRule| StrikeRule { count_min, ..rule };
        let over = |over_s, rule: StrikeRule| match over_s {
            0 => StrikeRule { count_min: 0, ..rule },
            over_s => StrikeRule { over: Duration::from_secs(over_s), ..rule },
        };
        StrikeRules {
            endpoint: StrikeRule {
                over: Duration::from_secs(self.endpoint_over_s),
                ..count(self.endpoint, ours.endpoint)
            },
            mailbox: count(self.mailbox, ours.mailbox),
            number: count(self.number, ours.number),
            unreachable: count(self.unreachable, ours.unreachable),
            blocked: count(self.blocked, ours.blocked),
            device: count(self.device, ours.device),
            key: count(self.key, ours.key),
            host: over(self.host_over_s, ours.host),
            failing: over(self.failing_over_s, ours.failing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_as_they_come_are_the_rules_as_they_come() {
        assert_eq!(StrikesSection::default().rules(), StrikeRules::default());
    }

    #[test]
    fn zero_is_never() {
        let none =
            StrikesSection { number: 0, host_over_s: 0, ..StrikesSection::default() }.rules();
        assert_eq!((none.number.count_min, none.host.count_min), (0, 0));
    }
}

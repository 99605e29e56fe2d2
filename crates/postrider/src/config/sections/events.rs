//! How long events are kept, and how they are sent.

use postrider_channels::section;

use super::{ConfigError, check_range};

section! {
    /// Events for others: webhooks, and reading by cursor (docs/events.md). Events are logged only while somebody has a
    /// subscription to them.
    EventSection as "events" {
        /// Events are kept for this many hours. A subscription that is further behind misses some.
        kept_h: u32 = 72,
        /// Events of one webhook.
        page_events_max: usize = 200,
        /// A subscription whose receiver took nothing for this many hours is stopped, until it is changed.
        give_up_h: u32 = 72,
    }
}

impl EventSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        check_range("events.kept_h", self.kept_h, 1..=24 * 31)?;
        check_range("events.page_events_max", self.page_events_max, 1..=1_000)?;
        check_range("events.give_up_h", self.give_up_h, 1..=24 * 31)
    }
}

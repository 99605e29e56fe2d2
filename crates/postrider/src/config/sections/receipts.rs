//! Which receipts are taken, and how many.

use postrider_channels::section;

use super::{ConfigError, check_range};

section! {
    /// Receipts: what the far end says about a delivery after its provider accepted it (docs/receipts.md).
    ReceiptSection as "receipts" {
        /// The token in a push works for so long after the end of its delivery. A change needs a restart.
        token_valid_s: u64 = 7 * 86_400,
        /// Receipts per second of one address (of one /64 with IPv6); 0 for no limit. More get 429, and browsers send
        /// them again later.
        address_per_s: f64 = 100.0,
        /// How many of them may come at once.
        address_burst: u32 = 1_000,
        /// Receipts with a good token per second of all addresses together; 0 for no limit. More get 429.
        per_s_max: f64 = 5_000.0,
        /// How many of them may come at once.
        burst_max: u32 = 10_000,
    }
}

impl ReceiptSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        check_range("receipts.token_valid_s", self.token_valid_s, 60..=400 * 86_400)?;
        check_range("receipts.address_per_s", self.address_per_s, 0.0..=1_000_000.0)?;
        check_range("receipts.per_s_max", self.per_s_max, 0.0..=1_000_000.0)
    }
}

//! How FCM and APNs are sent to: limits and deadlines. Who sends is said in `[accounts.NAME]`.

use crate::config::section::section;

section! {
    /// Firebase Cloud Messaging.
    FcmChannel as "fcm" {
        /// Requests in flight, through all accounts together.
        concurrency: usize = 400,
        /// Messages per second, all accounts together; 0 for no limit. Google allows a project 10 000,
        /// counted by the minute.
        rate_per_s: f64 = 8_000.0,
        /// How many of them may come at once.
        rate_burst: u32 = 400,
        /// After a rest, the rate grows from a tenth to the whole within this time; Google asks for at
        /// least a minute.
        rate_ramp_s: u32 = 60,
        /// An attempt without an answer ends after this long; Google asks for at least 10 s.
        timeout_s: u64 = 30,
    }
}

section! {
    /// The Apple Push Notification service.
    ApnsChannel as "apns" {
        /// Requests in flight, through all accounts together.
        concurrency: usize = 400,
        /// Notifications per second, all accounts together; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 20,
    }
}

//! How e-mail, text messages and chat messages are sent: limits and deadlines. Who sends them is said
//! in `[accounts.NAME]`.

use std::collections::BTreeMap;

use postrider_channels::chat::Flavour;

use crate::config::section::section;

section! {
    /// E-mail.
    EmailChannel as "email" {
        /// Mails on their way at once, through all accounts together.
        concurrency: usize = 100,
        /// Mails per second, all accounts together; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// An attempt that has not begun to hand over its mail ends after this long; the relay's word
        /// that it has it may take final_dot_timeout_s of the account more.
        timeout_s: u64 = 30,
    }
}

section! {
    /// Text messages.
    SmsChannel as "sms" {
        /// Messages on their way at once, through all accounts together.
        concurrency: usize = 25,
        /// Messages per second, all accounts together; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// An attempt without an answer ends after this long, and nobody knows whether it was sent.
        timeout_s: u64 = 30,
    }
}

section! {
    /// Chat messages by incoming webhook.
    ChatChannel as "chat" {
        /// What hosts, or beginnings of URLs without https://, speak whose name does not tell: slack,
        /// discord, teams or other, e.g. { "chat.example.com" = "slack" }.
        hosts: BTreeMap<String, Flavour> = BTreeMap::new(),
        /// Requests in flight per origin.
        concurrency: usize = 20,
        /// Requests per second to one origin; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 30,
    }
}

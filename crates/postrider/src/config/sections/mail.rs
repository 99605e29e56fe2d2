//! How e-mail, text messages and chat messages are sent: limits and deadlines. Who sends them is said
//! in `[accounts.NAME]`.

use std::collections::BTreeMap;

use postrider_channels::chat::Flavour;
use postrider_core::policy::reputation::ReputationPolicy;

use super::check;
use crate::config::ConfigError;
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
        /// If more than this share of the mails from one domain of ours to one receiving domain is refused
        /// for policy (spam, DMARC, SPF, PTR), ...
        reputation_share: f64 = 0.2,
        /// ... out of at least this many ...
        reputation_mails_min: u32 = 20,
        /// ... within this time, ...
        reputation_window_s: u32 = 3_600,
        /// ... the mails of that pair wait for so long, without using up attempts. SMTP accounts only.
        reputation_hold_s: u32 = 900,
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

impl EmailChannel {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        let share = self.reputation_share > 0.0 && self.reputation_share <= 1.0;
        let allowed = "above 0, up to 1 (nothing is ever held)";
        check(share, "email.reputation_share", self.reputation_share, allowed)?;
        for (field, found) in [
            ("email.reputation_mails_min", self.reputation_mails_min),
            ("email.reputation_window_s", self.reputation_window_s),
            ("email.reputation_hold_s", self.reputation_hold_s),
        ] {
            check((1..=86_400).contains(&found), field, found, "1 to 86400")?;
        }
        Ok(())
    }

    pub(crate) fn reputation(&self) -> ReputationPolicy {
        ReputationPolicy {
            share: self.reputation_share,
            mails_min: self.reputation_mails_min,
            window_s: self.reputation_window_s,
            hold_s: self.reputation_hold_s,
        }
    }
}

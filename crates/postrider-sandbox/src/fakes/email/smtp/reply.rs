//! The SMTP replies to faults.

use serde::{Deserialize, Serialize};

/// The stage at which a mail fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FakeSmtpStage {
    Mail,
    #[default]
    Rcpt,
    Data,
    Dot,
}

/// The reply for a status of a fault. HTTP statuses are translated: scripts and profiles are the same for all
/// providers.
pub(super) fn refusal(status: u16) -> (u16, &'static str) {
    match status {
        421 => (421, "4.3.2 Service not available, closing transmission channel"),
        450 => (450, "4.2.1 Mailbox busy, try again later"),
        451 => (451, "4.7.1 Greylisted, please try again in 5 minutes"),
        452 => (452, "4.5.3 Too many recipients"),
        454 => (454, "4.7.0 Throttling failure: Maximum sending rate exceeded."),
        530 => (530, "5.7.0 Authentication required"),
        535 => (535, "5.7.8 Error: authentication failed"),
        550 | 404 | 410 => (550, "5.1.1 Recipient address rejected: User unknown"),
        551 | 300..=399 => (551, "5.1.6 User not local"),
        552 => (552, "5.2.2 Mailbox full"),
        413 => (552, "5.3.4 Message size exceeds fixed limit"),
        553 => (553, "5.1.3 Bad recipient address syntax"),
        554 | 400 | 422 => (554, "5.7.1 Message rejected as spam"),
        556 => (556, "5.1.10 Recipient domain has null MX"),
        401 | 403 => (550, "5.7.1 Relaying denied"),
        429 => (451, "4.7.1 Too many messages, slow down"),
        500..=504 => (421, "4.3.2 Service not available, closing transmission channel"),
        400..=499 => (450, "4.3.0 Refused by the sandbox's fault profile"),
        _ => (554, "5.3.0 Refused by the sandbox's fault profile"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_s_class_is_that_of_its_enhanced_code() {
        for status in 300..600 {
            let (code, text) = refusal(status);
            assert_eq!(code.to_string().as_bytes()[0], text.as_bytes()[0], "{status}: {text}");
        }
    }
}

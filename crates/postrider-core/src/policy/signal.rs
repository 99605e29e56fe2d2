//! What one answer says about the provider, not about the message or the address: what breaker,
//! concurrency and budget learn from. Pure.

use crate::model::outcome::Outcome;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The provider works: it took the message, or it refused this one message or address.
    Well,
    /// Something is broken there: 5xx, no connection, no answer in time.
    Failing,
    /// It cannot cope: 503, 504.
    Overloaded,
    /// It copes and asks for less: 429 and its like. No failure.
    Busy,
    /// It does not accept our credential.
    Credential,
    /// The call says nothing about it.
    Nothing,
}

impl Signal {
    pub fn of(outcome: &Outcome, status: Option<u16>) -> Self {
        match outcome {
            Outcome::Accepted | Outcome::Gone | Outcome::DropMessage => Self::Well,
            Outcome::Config | Outcome::ResignOnce => Self::Credential,
            Outcome::Reconnect
            | Outcome::SwitchAccount
            | Outcome::Expired
            | Outcome::Local
            | Outcome::Hold { .. } => Self::Nothing,
            // A hang of one path looks like this, too; a queue shows in the time of the other answers.
            Outcome::Ambiguous => Self::Failing,
            Outcome::RetryAfter { .. } => match status {
                Some(500..) => Self::Overloaded,
                _ => Self::Busy,
            },
            Outcome::RetryBackoff { .. } => match status {
                Some(429) => Self::Busy,
                // 421 is how a mail server says it, 552 how it speaks of one full mailbox.
                Some(408 | 421 | 503 | 504) => Self::Overloaded,
                Some(552) => Self::Well,
                // An endpoint that refuses is an endpoint that answers, even if its class retries.
                Some(400..=499) => Self::Well,
                _ => Self::Failing,
            },
        }
    }

    /// A failure of the provider as a whole: what a breaker counts.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failing | Self::Overloaded)
    }

    /// The provider gets more at once than it can take.
    pub fn is_too_much(self) -> bool {
        matches!(self, Self::Overloaded | Self::Busy)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::outcome::Scope;

    #[test]
    fn a_recipients_refusal_is_never_the_providers_failure() {
        let backoff = Outcome::RetryBackoff { at_least: Duration::ZERO };
        for status in [400, 401, 403, 404, 409, 410, 413, 422, 425] {
            for outcome in [&backoff, &Outcome::Gone, &Outcome::DropMessage] {
                assert_eq!(Signal::of(outcome, Some(status)), Signal::Well, "{status}");
            }
        }
        let wait = Outcome::RetryAfter { after: Duration::ZERO, scope: Scope::Host };
        assert!(!Signal::of(&wait, Some(429)).is_failure());
        assert!(Signal::of(&wait, Some(503)).is_failure());
        assert!(Signal::of(&backoff, Some(500)).is_failure());
        assert!(Signal::of(&backoff, None).is_failure());
    }
}

//! The kinds of problems: how bad each is, what Postrider does about it, and what an operator can do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How soon somebody should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemSeverity {
    /// Good to know.
    Notice,
    /// Today.
    Warning,
    /// Now.
    Critical,
}

impl ProblemSeverity {
    pub const ALL: [Self; 3] = [Self::Notice, Self::Warning, Self::Critical];

    pub fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Writes every kind once: its name, severity, the seconds that its sign must last, its title, what Postrider does
/// about it, and the remedy.
macro_rules! problem_kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $severity:ident, $after_s:literal, $title:literal,
        $doing:literal, $remedy:literal;)*) => {
        /// What is wrong. Of several at one provider, the first in this list is the cause of the others.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ProblemKind { $($(#[$doc])* $variant,)* }

        impl ProblemKind {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            pub fn severity(self) -> ProblemSeverity {
                match self { $(Self::$variant => ProblemSeverity::$severity,)* }
            }

            /// How long its sign must last before it opens.
            pub fn opens_after(self) -> Duration {
                Duration::from_secs(match self { $(Self::$variant => $after_s,)* })
            }

            /// What it is, in a few words.
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// What Postrider already does about it.
            pub fn doing(self) -> &'static str {
                match self { $(Self::$variant => $doing,)* }
            }

            /// What an operator can do, in one sentence.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)* }
            }
        }
    };
}

problem_kinds! {
    /// A credential is refused, cannot be read or has expired.
    CredentialFailing = "credential_failing", Critical, 0, "A credential does not work",
        "Its deliveries are parked and use up no attempts; it is tried again from time to time.",
        "Replace the credential, then run `postrider doctor`; parked deliveries go on by themselves.";
    /// A provider's breaker is open.
    BreakerOpen = "breaker_open", Critical, 5, "A provider fails",
        "Its deliveries wait and use up no attempts; single calls find out when it works again.",
        "Look at the provider's status page; nothing has to be done here once it works again.";
    /// Hardly any retry succeeds.
    RetryStorm = "retry_storm", Critical, 5, "Hardly any retry succeeds",
        "The tenant's deliveries to this provider wait, so that retries do not make it worse.",
        "Read the answers with `postrider deliveries list --state retrying`, and fix the receiver or the sender.";
    /// Too many addresses are called gone at once.
    MassGone = "mass_gone", Critical, 5, "Too many addresses are reported as gone at once",
        "No address is erased, and the deliveries wait.",
        "Check the key and the environment (sandbox or production) of the account.";
    /// Dead letters grow.
    DeadLetters = "dead_letters", Critical, 15, "Dead letters grow",
        "They are kept with their reason and can be replayed.",
        "Read the reasons with `postrider dead list`, fix the cause, then `postrider dead replay --rate 50`.";
    RetriesExhausted = "retries_exhausted", Warning, 30, "Deliveries used up their attempts",
        "They are kept as dead letters and can be replayed.",
        "Fix the receiver, then `postrider dead replay --reason retries_exhausted --rate 50`.";
    /// A provider says that we make a mistake.
    BadRequests = "bad_requests", Warning, 30, "A provider answers 400: the request is wrong",
        "What can never be accepted becomes a dead letter and is not sent again.",
        "Read the answers with `postrider dead list --reason permanent`, and mend the messages that are sent.";
    ManyFailures = "many_failures", Warning, 30, "Many attempts fail in the same way",
        "Failed attempts are made again later, as their class says.",
        "Look at the outcome's page in docs/outcomes and at single deliveries with `postrider explain ID`.";
    /// A failure that this channel has not had before.
    NewFailure = "new_failure", Notice, 60, "A failure of a new kind",
        "It is treated as its outcome says.",
        "Look at one of its deliveries with `postrider explain ID`; acknowledge it if it is expected.";
    /// The queue is nearly full.
    Capacity = "capacity", Critical, 10, "The queue is nearly full",
        "From 100 % on, new messages are refused with 429; accepted ones stay.",
        "Find out what waits with `postrider lanes list`, or raise the capacity.";
    DepthUnusual = "depth_unusual", Warning, 60, "Much more is pending than usual",
        "Everything is sent as fast as providers and limits allow.",
        "See which lanes have the most with `postrider lanes list`.";
    /// Deliveries are taken up late.
    Lag = "lag", Warning, 30, "The server is too busy to take up deliveries in time",
        "Deliveries are taken up in fair turns, urgent ones first.",
        "Add workers or processors; docs/deploy.md says how.";
    CredentialExpiring = "credential_expiring", Warning, 0, "A credential expires soon",
        "It is used as long as it is valid.",
        "Replace it before then; a replaced file is read by itself.";
    /// The store, the disk or the servers that share them.
    Store = "store", Critical, 5, "The store needs attention",
        "What was accepted stays; if there is no room, new messages are refused.",
        "Do what the text says; `postrider doctor` and `postrider fsck` help.";
    /// An objective is missed.
    Objective = "objective", Warning, 60, "An objective is missed",
        "Nothing by itself.",
        "docs/problems.md says what each objective measures and what helps.";
}

impl ProblemKind {
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Whether it explains the other problems of its channel and provider.
    pub fn is_cause(self) -> bool {
        self <= Self::MassGone
    }
}

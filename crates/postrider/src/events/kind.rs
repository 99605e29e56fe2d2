//! The kinds of events, by their public names.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// What happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub(crate) enum EventKind { $(#[serde(rename = $name)] $variant),* }

        impl EventKind {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

kinds! {
    DeliverySent = "delivery.sent",
    DeliveryDelivered = "delivery.delivered",
    DeliverySeen = "delivery.seen",
    DeliveryClicked = "delivery.clicked",
    DeliveryDismissed = "delivery.dismissed",
    DeliveryRetrying = "delivery.retrying",
    DeliveryParked = "delivery.parked",
    DeliveryFellBack = "delivery.fell_back",
    DeliveryGone = "delivery.gone",
    DeliveryExpired = "delivery.expired",
    DeliveryFailed = "delivery.failed",
    DeliveryCancelled = "delivery.cancelled",
    DeliverySuppressed = "delivery.suppressed",
    MessageCancelled = "message.cancelled",
    AddressRegistered = "address.registered",
    AddressDeleted = "address.deleted",
    AddressGone = "address.gone",
    AddressSuspect = "address.suspect",
    ProblemOpened = "problem.opened",
    ProblemResolved = "problem.resolved",
    SubscriptionTest = "subscription.test",
}

impl EventKind {
    /// All names, for errors.
    pub(crate) fn names() -> String {
        Self::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
    }

    /// Whether a pattern means it: its name, or its group such as `delivery.*`.
    pub(crate) fn is_meant_by(self, pattern: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(group) => group.ends_with('.') && self.name().starts_with(group),
            None => self.name() == pattern,
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_a_kind_or_a_group() {
        let meant =
            |pattern: &str| EventKind::ALL.iter().filter(|kind| kind.is_meant_by(pattern)).count();
        assert_eq!(
            ["delivery.sent", "delivery.*", "address.*", "*", "delivery*", "delivery", "x.*"]
                .map(meant),
            [1, 13, 4, 0, 0, 0, 0]
        );
    }
}

//! A subscription to events: whose, which events, and where they are sent.

use std::fmt;

use postrider_core::{KeyId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{EventKind, EventPattern, LoggedEvent};

/// What the tenants are called whose deliveries are events. Each subscription has its own, and with it its own lane,
/// signing secret and turn.
const TENANT_PREFIX: &str = "postrider-events.";
const ID_PREFIX: &str = "evs_";

/// As the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventSubscription {
    pub(crate) id: String,
    /// Whose events; absent for those of all tenants and of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<TenantId>,
    pub(crate) name: String,
    /// Absent for one whose events are only read by cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    #[serde(default)]
    pub(crate) events: EventPattern,
    /// Nothing is sent while it is not.
    pub(crate) enabled: bool,
    /// The position of the log from which it gets events.
    pub(crate) start: String,
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: String,
    pub(crate) changed_at: Timestamp,
}

impl EventSubscription {
    pub(crate) fn new_id(key: KeyId) -> String {
        let text = key.to_string();
        format!("{ID_PREFIX}{}", text.split_once('_').map_or(text.as_str(), |(_, id)| id))
    }

    /// The tenant of the deliveries that carry its events.
    pub(crate) fn sender(&self) -> TenantId {
        TenantId::new(&format!("{TENANT_PREFIX}{}", self.id))
    }

    pub(crate) fn wants(&self, event: &LoggedEvent) -> bool {
        match (&self.tenant, &event.tenant) {
            // A problem is told once for the server and once for each tenant.
            (None, Some(_)) if is_of_problem(event.kind) => false,
            (None, _) => self.events.matches(event),
            (Some(own), of) => Some(own.as_str()) == of.as_deref() && self.events.matches(event),
        }
    }
}

impl fmt::Display for EventSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

fn is_of_problem(kind: EventKind) -> bool {
    matches!(kind, EventKind::ProblemOpened | EventKind::ProblemResolved)
}

/// Whether the deliveries of this tenant are events: they are no events themselves.
pub(crate) fn is_of_events(tenant: &str) -> bool {
    tenant.starts_with(TENANT_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_of_the_server_hears_of_a_problem_once() {
        let subscription = |tenant: Option<&str>| EventSubscription {
            id: "evs_1".to_owned(),
            tenant: tenant.map(TenantId::new),
            name: String::new(),
            url: None,
            events: EventPattern::default(),
            enabled: true,
            start: String::new(),
            created_at: Timestamp(0),
            created_by: String::new(),
            changed_at: Timestamp(0),
        };
        let event = |kind, tenant: Option<&str>| LoggedEvent {
            tenant: tenant.map(str::to_owned),
            ..LoggedEvent::new(kind, "evt_1".to_owned(), Timestamp(0))
        };
        let problem = EventKind::ProblemOpened;
        let (server, acme) = (subscription(None), subscription(Some("acme")));
        assert!(server.wants(&event(problem, None)));
        assert!(!server.wants(&event(problem, Some("acme"))));
        assert!(acme.wants(&event(problem, Some("acme"))));
        assert!(!acme.wants(&event(problem, None)));
        assert!(server.wants(&event(EventKind::DeliverySent, Some("acme"))));
        assert!(!acme.wants(&event(EventKind::DeliverySent, Some("other"))));
        assert!(is_of_events(server.sender().as_str()) && !is_of_events("acme"));
    }
}

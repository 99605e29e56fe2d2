//! What an alert says, and how it is written for each kind of route. Sends nothing.

use postrider_core::policy::problems::{AlertEvent, ProblemRecord, ProblemSeverity};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::sections::{AlertPlace, AlertRouteKind};
use crate::problems::status_pages::status_page;

/// The class of the messages.
const CLASS: &str = "alert";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AlertText {
    pub(crate) event: AlertEvent,
    /// The problem's id.
    pub(crate) problem: String,
    pub(crate) kind: String,
    pub(crate) severity: ProblemSeverity,
    pub(crate) title: String,
    pub(crate) what: String,
    pub(crate) since: String,
    pub(crate) tenants: Vec<String>,
    pub(crate) doing: String,
    pub(crate) remedy: String,
    pub(crate) link: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status_page: Option<String>,
}

impl AlertText {
    pub(crate) fn new(record: &ProblemRecord, event: AlertEvent, link_base: &str) -> Self {
        let key = &record.key;
        Self {
            event,
            problem: record.id.clone(),
            kind: key.kind.name().to_owned(),
            severity: record.severity,
            title: key.kind.title().to_owned(),
            what: record.what.clone(),
            since: record.since.to_string(),
            tenants: record.tenants.keys().map(ToString::to_string).collect(),
            doing: key.kind.doing().to_owned(),
            remedy: key.kind.remedy().to_owned(),
            link: format!("{}/problems/{}", link_base.trim_end_matches('/'), record.id),
            status_page: status_page(&key.channel, &key.provider).map(str::to_owned),
        }
    }

    /// Nothing is wrong: it shows that alerts arrive.
    pub(crate) fn test(id: String, now: String, link_base: &str) -> Self {
        Self {
            event: AlertEvent::Test,
            problem: id,
            kind: "test".to_owned(),
            severity: ProblemSeverity::Notice,
            title: "A test of the alerts".to_owned(),
            what: "somebody ran `postrider alerts test`".to_owned(),
            since: now,
            tenants: Vec::new(),
            doing: "Nothing is wrong.".to_owned(),
            remedy: "Nothing has to be done.".to_owned(),
            link: format!("{}/", link_base.trim_end_matches('/')),
            status_page: None,
        }
    }

    fn headline(&self) -> String {
        let state = match self.event {
            AlertEvent::Resolved => "resolved",
            AlertEvent::Opened => self.severity.name(),
            AlertEvent::Test => "test",
        };
        format!("[{state}] {}", self.title)
    }

    fn body(&self) -> String {
        let mut lines = vec![self.what.clone(), format!("Since {}", self.since)];
        if !self.tenants.is_empty() {
            lines.push(format!("Tenants: {}", self.tenants.join(", ")));
        }
        if self.event == AlertEvent::Opened {
            lines.push(format!("Postrider: {}", self.doing));
            lines.push(format!("You can: {}", self.remedy));
            lines.extend(self.status_page.iter().map(|page| format!("Status page: {page}")));
        }
        lines.join("\n")
    }

    /// The message for a route.
    pub(crate) fn message(&self, kind: AlertRouteKind, place: &AlertPlace) -> Value {
        let target = &place.target;
        let (address, content) = match kind {
            AlertRouteKind::Webhook => {
                let payload = json!({"type": "alert", "alert": self});
                (
                    json!({"channel": "webhook", "url": target}),
                    json!({"webhook": {"payload": payload}}),
                )
            }
            AlertRouteKind::Slack => (json!({"channel": "chat", "url": target}), self.common()),
            AlertRouteKind::Email => (json!({"channel": "email", "email": target}), self.common()),
            AlertRouteKind::PagerDuty => {
                let body = self.pagerduty(place.routing_key.as_deref().unwrap_or_default());
                (json!({"channel": "http", "url": target}), json!({"http": {"body": body}}))
            }
        };
        json!({"to": {"address": address}, "class": CLASS, "content": content})
    }

    fn common(&self) -> Value {
        json!({"title": self.headline(), "body": self.body(), "url": self.link})
    }

    /// Events API v2. A test is resolved at once by hand: it is information.
    fn pagerduty(&self, routing_key: &str) -> Value {
        let action = if self.event == AlertEvent::Resolved { "resolve" } else { "trigger" };
        let severity = match self.severity {
            ProblemSeverity::Critical => "critical",
            ProblemSeverity::Warning => "warning",
            ProblemSeverity::Notice => "info",
        };
        let summary: String =
            format!("{}: {}", self.title, self.what).chars().take(1_000).collect();
        let mut links = vec![json!({"href": self.link, "text": "The problem in Postrider"})];
        let page = self.status_page.iter();
        links.extend(page.map(|page| json!({"href": page, "text": "Status page of the provider"})));
        json!({
            "routing_key": routing_key,
            "event_action": action,
            "dedup_key": self.problem,
            "client": "Postrider",
            "client_url": self.link,
            "links": links,
            "payload": {
                "summary": summary,
                "source": "postrider",
                "severity": severity,
                "timestamp": self.since,
                "class": self.kind,
                "custom_details": {
                    "tenants": self.tenants, "postrider": self.doing, "you_can": self.remedy,
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::Timestamp;
    use postrider_core::policy::problems::{ProblemKey, ProblemKind, ProblemSign};

    fn text(event: AlertEvent) -> AlertText {
        let key = ProblemKey {
            kind: ProblemKind::BreakerOpen,
            channel: "chat".to_owned(),
            provider: "https://hooks.slack.com".to_owned(),
            outcome: String::new(),
        };
        let sign = ProblemSign::new(key, 7, "https://hooks.slack.com: it fails".to_owned());
        let at = Timestamp::from_secs(1_790_000_000);
        AlertText::new(&ProblemRecord::new(&sign, at, at), event, "https://p.example/")
    }

    fn place(target: &str) -> AlertPlace {
        AlertPlace { target: target.to_owned(), routing_key: Some("key".to_owned()) }
    }

    #[test]
    fn every_kind_carries_the_link_the_remedy_and_the_status_page() {
        let alert = text(AlertEvent::Opened);
        for kind in [
            AlertRouteKind::Webhook,
            AlertRouteKind::Slack,
            AlertRouteKind::PagerDuty,
            AlertRouteKind::Email,
        ] {
            let message = alert.message(kind, &place("https://a.example")).to_string();
            let link = format!("https://p.example/problems/{}", alert.problem);
            for part in [&*link, "Look at the provider's status page", "https://slack-status.com/"]
            {
                assert!(message.contains(part), "{kind:?} lacks {part}: {message}");
            }
        }
    }

    #[test]
    fn pagerduty_resolves_what_it_triggered() {
        let body = |event| {
            let message =
                text(event).message(AlertRouteKind::PagerDuty, &place("https://pd.example"));
            message["content"]["http"]["body"].clone()
        };
        let (opened, resolved) = (body(AlertEvent::Opened), body(AlertEvent::Resolved));
        assert_eq!(
            (&opened["event_action"], &resolved["event_action"]),
            (&json!("trigger"), &json!("resolve"))
        );
        assert_eq!(opened["dedup_key"], resolved["dedup_key"]);
        assert_eq!(
            (&opened["routing_key"], &opened["payload"]["severity"]),
            (&json!("key"), &json!("critical"))
        );
    }
}

//! Whom problems are told to.

use std::collections::BTreeMap;

use postrider_channels::accounts::SecretRef;
use postrider_channels::section;
use postrider_core::policy::problems::ProblemSeverity;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check, check_range};

/// Where PagerDuty takes events.
const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";

section! {
    /// Whom problems are told to: docs/alerts.md. Each route is a table [alerts.routes.NAME].
    AlertSection as "alerts" {
        /// What links in alerts begin with, such as "https://postrider.example.com". Default: the address of this
        /// server.
        link_base: Option<String> = None,
        /// A route's backup is used if its alert is not sent after so many seconds.
        backup_after_s: u64 = 20,
        /// The routes by name. kind: webhook, slack, pagerduty or email. url; or secret (env:NAME, file:PATH or
        /// command:PROGRAM), the URL of a webhook or of Slack, or PagerDuty's routing key; email, an address; severity:
        /// notice, warning (default) or critical, this and worse; backup, the name of another route, which then is used
        /// as a backup only.
        routes: BTreeMap<String, AlertRoute> = BTreeMap::new(),
    }
}

/// One route; a table by name, `[alerts.routes.NAME]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertRoute {
    pub kind: AlertRouteKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The URL of a webhook or of Slack, or PagerDuty's routing key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// This and worse.
    #[serde(default = "warning")]
    pub severity: ProblemSeverity,
    /// The route that is used if this one fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
}

fn warning() -> ProblemSeverity {
    ProblemSeverity::Warning
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertRouteKind {
    Webhook,
    Slack,
    PagerDuty,
    Email,
}

impl AlertRouteKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
            Self::PagerDuty => "pagerduty",
            Self::Email => "email",
        }
    }
}

impl AlertRoute {
    /// Where it leads, and the secret that goes there. Reads the secret, so it blocks.
    pub(crate) fn place(&self) -> Result<AlertPlace, String> {
        let secret = || match &self.secret {
            Some(secret) => secret.read().map(|text| text.trim().to_owned()).map(Some),
            None => Ok(None),
        };
        let missing = || "url or secret is missing".to_owned();
        Ok(match self.kind {
            AlertRouteKind::Email => AlertPlace {
                target: self.email.clone().ok_or("email is missing")?,
                routing_key: None,
            },
            AlertRouteKind::PagerDuty => AlertPlace {
                target: self.url.clone().unwrap_or_else(|| PAGERDUTY.to_owned()),
                routing_key: Some(secret()?.ok_or("secret is missing")?),
            },
            AlertRouteKind::Webhook | AlertRouteKind::Slack => {
                let url = self.url.clone().map_or_else(|| secret()?.ok_or_else(missing), Ok)?;
                AlertPlace { target: url, routing_key: None }
            }
        })
    }

    fn validate(&self, name: &str, others: &BTreeMap<String, Self>) -> Result<(), ConfigError> {
        let field = |field: &str| format!("alerts.routes.{name}.{field}");
        let wants_email = self.kind == AlertRouteKind::Email;
        let kind = self.kind.name();
        let given = |is_there: bool| if is_there { "a value" } else { "nothing" };
        let allowed =
            if wants_email { "an address, for kind = email" } else { "only for kind = email" };
        let has_email = self.email.is_some();
        check(has_email == wants_email, &field("email"), given(has_email), allowed)?;
        let places = usize::from(self.url.is_some()) + usize::from(self.secret.is_some());
        match self.kind {
            AlertRouteKind::Email => {
                check(places == 0, &field("url"), "a value", "not for kind = email")?;
            }
            AlertRouteKind::PagerDuty => {
                let allowed =
                    "a reference to the routing key, such as file:/etc/postrider/pagerduty";
                check(self.secret.is_some(), &field("secret"), "nothing", allowed)?;
            }
            AlertRouteKind::Webhook | AlertRouteKind::Slack => {
                let found = if places == 0 { "neither url nor secret" } else { "url and secret" };
                let allowed = format!("exactly one of url and secret, for kind = {kind}");
                check(places == 1, &field("url"), found, &allowed)?;
            }
        }
        let Some(backup) = &self.backup else { return Ok(()) };
        let known = others.get(backup).filter(|_| backup != name);
        let allowed = "the name of another route that has no backup itself";
        let is_usable = known.is_some_and(|b| b.backup.is_none());
        check(is_usable, &field("backup"), "another text", allowed)
    }
}

/// Where a route leads.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AlertPlace {
    /// A URL or an e-mail address.
    pub(crate) target: String,
    /// PagerDuty's.
    pub(crate) routing_key: Option<String>,
}

impl AlertSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        check_range("alerts.backup_after_s", self.backup_after_s, 5..=3_600)?;
        if let Some(base) = &self.link_base {
            let is_url = base.starts_with("https://") || base.starts_with("http://");
            let allowed = "the begin of a URL, such as https://postrider.example.com";
            check(is_url, "alerts.link_base", "another text", allowed)?;
        }
        for (name, route) in &self.routes {
            let is_name = !name.is_empty()
                && name.len() <= 64
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
            let allowed = "names of 1 to 64 letters, digits, - or _";
            check(is_name, "alerts.routes", name, allowed)?;
            route.validate(name, &self.routes)?;
        }
        Ok(())
    }

    /// The routes that are not only a backup.
    pub(crate) fn first_routes(&self) -> impl Iterator<Item = (&String, &AlertRoute)> {
        let is_backup =
            |name: &String| self.routes.values().any(|route| route.backup.as_ref() == Some(name));
        self.routes.iter().filter(move |(name, _)| !is_backup(name))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Environment};

    fn wrong(text: &str) -> String {
        let parsed = Config::parse(text, "test", &Environment::empty());
        parsed.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_route_is_named_with_its_remedy() {
        let neither = wrong("[alerts.routes.a]\nkind = \"slack\"");
        assert!(neither.contains("alerts.routes.a.url"), "{neither}");
        let keyless = wrong("[alerts.routes.a]\nkind = \"pagerduty\"");
        assert!(keyless.contains("alerts.routes.a.secret"), "{keyless}");
        let mail = wrong("[alerts.routes.a]\nkind = \"webhook\"\nemail = \"a@example.com\"");
        assert!(mail.contains("only for kind = email"), "{mail}");
        let alone =
            "[alerts.routes.a]\nkind = \"webhook\"\nurl = \"https://a.example\"\nbackup = \"a\"";
        assert!(wrong(alone).contains("another route"), "{}", wrong(alone));
        let base = wrong("[alerts]\nlink_base = \"postrider.example\"");
        assert!(base.contains("alerts.link_base"), "{base}");
    }

    #[test]
    fn a_backup_is_no_first_route() {
        let text = "[alerts.routes.a]\nkind = \"webhook\"\nurl = \"https://a.example\"\nbackup = \"b\"\n\
                    [alerts.routes.b]\nkind = \"email\"\nemail = \"ops@example.com\"";
        let config = Config::parse(text, "test", &Environment::empty()).unwrap();
        let first: Vec<_> = config.alerts.first_routes().map(|(name, _)| name.as_str()).collect();
        assert_eq!(first, ["a"]);
    }
}

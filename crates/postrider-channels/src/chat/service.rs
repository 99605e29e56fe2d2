//! Which chat service a webhook belongs to, told from its host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    Slack,
    Discord,
    Teams,
    /// Any other: most of them, such as Mattermost and Rocket.Chat, take what Slack takes.
    Other,
}

impl Flavour {
    pub fn of_host(host: &str) -> Self {
        let host = host.split(':').next().unwrap_or_default();
        let under = |domain: &str| {
            host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if under("slack.com") || under("slack-gov.com") {
            Self::Slack
        } else if under("discord.com") || under("discordapp.com") {
            Self::Discord
        } else if under("webhook.office.com")
            || under("outlook.office.com")
            || under("logic.azure.com")
            || under("api.powerplatform.com")
        {
            Self::Teams
        } else {
            Self::Other
        }
    }

    /// The table's name for it.
    pub fn service(self) -> &'static str {
        match self {
            Self::Slack => "chat.slack",
            Self::Discord => "chat.discord",
            Self::Teams => "chat.teams",
            Self::Other => "chat",
        }
    }
}

/// Hosts, or beginnings of URLs without their scheme, whose flavour their name does not tell.
#[derive(Debug, Clone, Default)]
pub struct Flavours(BTreeMap<String, Flavour>);

impl From<BTreeMap<String, Flavour>> for Flavours {
    fn from(hosts: BTreeMap<String, Flavour>) -> Self {
        Self(hosts)
    }
}

impl Flavours {
    /// By the longest entry of the operator's that fits, else by the host's name.
    pub fn of(&self, url: &str) -> Flavour {
        let place = url.split_once("://").map_or(url, |(_, rest)| rest);
        let fits = |prefix: &str| {
            place.strip_prefix(prefix).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with(['/', '?']) || prefix.ends_with('/')
            })
        };
        let own = self.0.iter().filter(|(prefix, _)| fits(prefix));
        let own = own.max_by_key(|(prefix, _)| prefix.len()).map(|(_, flavour)| *flavour);
        let host = || place.split(['/', '?']).next().unwrap_or_default().to_ascii_lowercase();
        own.unwrap_or_else(|| Flavour::of_host(&host()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_known_by_its_host_and_not_by_a_part_of_it() {
        for (host, flavour) in [
            ("hooks.slack.com", Flavour::Slack),
            ("discord.com", Flavour::Discord),
            ("ptb.discord.com", Flavour::Discord),
            ("acme.webhook.office.com", Flavour::Teams),
            ("prod-01.westeurope.logic.azure.com:443", Flavour::Teams),
            ("chat.example.com", Flavour::Other),
            ("notslack.com", Flavour::Other),
            ("slack.com.evil.example", Flavour::Other),
        ] {
            assert_eq!(Flavour::of_host(host), flavour, "{host}");
        }
    }
}

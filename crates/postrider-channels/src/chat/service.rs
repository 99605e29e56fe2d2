//! The chat service of a webhook, by its URL.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatService {
    Slack,
    Discord,
    Teams,
    /// Any other. Most of them, such as Mattermost and Rocket.Chat, accept what Slack accepts.
    Other,
}

/// The domains of the services, with their subdomains.
const DOMAINS: [(&str, ChatService); 8] = [
    ("slack.com", ChatService::Slack),
    ("slack-gov.com", ChatService::Slack),
    ("discord.com", ChatService::Discord),
    ("discordapp.com", ChatService::Discord),
    ("webhook.office.com", ChatService::Teams),
    ("outlook.office.com", ChatService::Teams),
    ("logic.azure.com", ChatService::Teams),
    ("api.powerplatform.com", ChatService::Teams),
];

impl ChatService {
    pub fn of_host(host: &str) -> Self {
        let host = host.split(':').next().unwrap_or_default();
        let is_under = |domain: &str| {
            host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let known = DOMAINS.iter().find(|(domain, _)| is_under(domain));
        known.map_or(Self::Other, |(_, service)| *service)
    }

    /// Its name in the table of answers.
    pub fn table_service(self) -> &'static str {
        match self {
            Self::Slack => "chat.slack",
            Self::Discord => "chat.discord",
            Self::Teams => "chat.teams",
            Self::Other => "chat",
        }
    }
}

/// The services of hosts, or of beginnings of URLs without their scheme, as the operator names them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChatHosts(BTreeMap<String, ChatService>);

impl ChatHosts {
    /// The operator's longest entry that fits decides, else the host's name.
    pub fn of(&self, url: &str) -> ChatService {
        let place = url.split_once("://").map_or(url, |(_, rest)| rest);
        let fits = |prefix: &str| {
            place.strip_prefix(prefix).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with(['/', '?']) || prefix.ends_with('/')
            })
        };
        let own = self.0.iter().filter(|(prefix, _)| fits(prefix));
        let own = own.max_by_key(|(prefix, _)| prefix.len()).map(|(_, service)| *service);
        let host = || place.split(['/', '?']).next().unwrap_or_default().to_ascii_lowercase();
        own.unwrap_or_else(|| ChatService::of_host(&host()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_known_by_its_host_and_not_by_a_part_of_it() {
        for (host, service) in [
            ("hooks.slack.com", ChatService::Slack),
            ("discord.com", ChatService::Discord),
            ("ptb.discord.com", ChatService::Discord),
            ("acme.webhook.office.com", ChatService::Teams),
            ("prod-01.westeurope.logic.azure.com:443", ChatService::Teams),
            ("chat.example.com", ChatService::Other),
            ("notslack.com", ChatService::Other),
            ("slack.com.evil.example", ChatService::Other),
        ] {
            assert_eq!(ChatService::of_host(host), service, "{host}");
        }
    }
}

//! A channel's name, and what the rest of the program needs to know about it. Lists no channel:
//! `postrider-channels` does.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::policy::limiter::Rate;
use crate::policy::ttl;

const NAME_MAX: usize = 15;

/// The name of a channel: 1 to 15 lower-case letters and digits, e.g. `webhook`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelKind {
    /// Padded with zeros.
    bytes: [u8; NAME_MAX],
    len: u8,
}

impl ChannelKind {
    /// For constants: a name that is not allowed does not compile.
    pub const fn new(name: &str) -> Self {
        match Self::parse(name) {
            Some(kind) => kind,
            None => panic!("a channel's name is 1 to 15 lower-case letters and digits"),
        }
    }

    pub const fn parse(name: &str) -> Option<Self> {
        let text = name.as_bytes();
        if text.is_empty() || text.len() > NAME_MAX {
            return None;
        }
        let mut bytes = [0; NAME_MAX];
        let mut at = 0;
        while at < text.len() {
            if !matches!(text[at], b'a'..=b'z' | b'0'..=b'9') {
                return None;
            }
            bytes[at] = text[at];
            at += 1;
        }
        Some(Self { bytes, len: text.len() as u8 })
    }

    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for ChannelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for ChannelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for ChannelKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for ChannelKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(from)?;
        Self::parse(&name).ok_or_else(|| serde::de::Error::custom("not a channel's name"))
    }
}

/// What the intake and the dispatcher need to know about a channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChannelTraits {
    /// It sends through an account at a provider, chosen anew for every attempt. Then the channel is
    /// its lanes' provider.
    pub has_accounts: bool,
    /// A person sees a repeat: the provider knows no idempotency key.
    pub shows_repeats: bool,
    /// The longest TTL that the provider takes; the shortest is 0 everywhere.
    pub ttl_s_max: u32,
    /// Every call of a tenant to an origin carries the same credential.
    pub tenant_credential: bool,
    /// Messages without a key of their own are repeats if their content is the same.
    pub dedupes_content: bool,
    /// The rate that the provider grants an account, unless the configuration says otherwise.
    pub account_rate: Option<Rate>,
    /// Hosts, and domains with all their hosts, that so many addresses share that one worker is not enough.
    pub wide_hosts: &'static [&'static str],
}

impl ChannelTraits {
    /// A channel without accounts whose provider sets no limits of its own.
    pub const PLAIN: Self = Self {
        has_accounts: false,
        shows_repeats: false,
        ttl_s_max: ttl::MAX_S,
        tenant_credential: true,
        dedupes_content: false,
        account_rate: None,
        wide_hosts: &[],
    };

    /// Whether all workers send to the provider of a lane, each to some of the addresses. Any other provider has one
    /// worker, which knows everything about it.
    pub fn is_wide(&self, provider: &str) -> bool {
        if self.has_accounts {
            return true;
        }
        let Some((_, host)) = provider.split_once("://") else { return false };
        let host = host.split(':').next().unwrap_or(host);
        let is_in = |domain: &&str| {
            host.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        self.wide_hosts.iter().any(is_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_and_large_hosts_are_wide() {
        let traits = ChannelTraits { wide_hosts: &["push.example"], ..ChannelTraits::PLAIN };
        for wide in ["https://push.example", "https://eu.push.example", "http://push.example:8443"]
        {
            assert!(traits.is_wide(wide), "{wide}");
        }
        for narrow in ["https://fakepush.example", "https://push.example.org", "push.example", ""] {
            assert!(!traits.is_wide(narrow), "{narrow}");
        }
        assert!(ChannelTraits { has_accounts: true, ..ChannelTraits::PLAIN }.is_wide("email"));
        assert!(!ChannelTraits::PLAIN.is_wide("https://push.example"));
    }

    #[test]
    fn a_name_is_short_and_of_letters_and_digits() {
        for name in ["webhook", "a", "x25", "abcdefghijklmno"] {
            let kind = ChannelKind::parse(name).unwrap();
            assert_eq!(kind.name(), name);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<ChannelKind>(&format!("\"{name}\"")).unwrap(), kind);
        }
        for name in ["", "Webhook", "web-hook", "abcdefghijklmnop", "ü"] {
            assert_eq!(ChannelKind::parse(name), None, "{name}");
        }
    }

    #[test]
    fn names_are_in_alphabetical_order() {
        let mut kinds = ["sms", "chat", "smsx", "email"].map(ChannelKind::new);
        kinds.sort_unstable();
        assert_eq!(kinds.map(|kind| kind.to_string()), ["chat", "email", "sms", "smsx"]);
    }
}

//! Where connections may go: which networks and ports, and which never. Resolves no names and opens no connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::is_public;
use super::own_addresses::{OwnListeners, is_of_this_machine};
use crate::ip_network::IpNetwork;

/// Where clouds answer with credentials of the machine, beside all link-local IPv4 addresses. Nobody is let there.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];
/// The instance and the pods of EC2, and the instance of Google's cloud.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Which private addresses may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PrivateTargets {
    /// None, or all.
    All(bool),
    /// Only those of these networks.
    Networks(Vec<IpNetwork>),
}

impl Default for PrivateTargets {
    fn default() -> Self {
        Self::All(false)
    }
}

impl PrivateTargets {
    fn contains(&self, ip: IpAddr) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Networks(networks) => networks.iter().any(|network| network.contains(ip)),
        }
    }

    /// Whether an entry names this address alone.
    fn names(&self, ip: IpAddr) -> bool {
        match self {
            Self::All(_) => false,
            Self::Networks(networks) => {
                networks.iter().any(|network| network.is_single() && network.contains(ip))
            }
        }
    }

    /// Whether any private address may be reached.
    pub fn is_any(&self) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Networks(networks) => !networks.is_empty(),
        }
    }
}

/// Which addresses may be reached over `http://`, without TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PlainHttpTargets {
    /// None, or all.
    All(bool),
    /// Only those of these networks.
    Networks(Vec<IpNetwork>),
}

impl Default for PlainHttpTargets {
    fn default() -> Self {
        Self::All(true)
    }
}

impl PlainHttpTargets {
    fn contains(&self, ip: IpAddr) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Networks(networks) => networks.iter().any(|network| network.contains(ip)),
        }
    }

    /// Whether any address may be reached without TLS.
    pub fn is_any(&self) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Networks(networks) => !networks.is_empty(),
        }
    }
}

/// A network, and perhaps ports: `10.0.0.0/8`, `192.0.2.0/24 443`, `* 8000-8999`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EgressRule {
    /// Absent for all.
    network: Option<IpNetwork>,
    /// The first and the last one; absent for all.
    ports: Option<(u16, u16)>,
}

impl EgressRule {
    fn matches(&self, address: SocketAddr) -> bool {
        let port = address.port();
        self.network.is_none_or(|network| network.contains(address.ip()))
            && self.ports.is_none_or(|(first, last)| (first..=last).contains(&port))
    }
}

impl FromStr for EgressRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown: String = text.chars().take(60).collect();
        let wrong = || {
            format!(
                "{shown:?} is not a network with ports: use one such as \"10.0.0.0/8\", \
                 \"192.0.2.0/24 443\" or \"* 8000-8999\""
            )
        };
        let mut words = text.split_whitespace();
        let network = match words.next().ok_or_else(wrong)? {
            "*" => None,
            network => Some(network.parse()?),
        };
        let ports = words.next().map(|ports| {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let port = |text: &str| text.parse::<u16>().map_err(|_| wrong());
            Ok::<_, String>((port(first)?, port(last)?))
        });
        let ports = ports.transpose()?;
        if words.next().is_some() || ports.is_some_and(|(first, last)| first > last) {
            return Err(wrong());
        }
        Ok(Self { network, ports })
    }
}

impl TryFrom<String> for EgressRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<EgressRule> for String {
    fn from(rule: EgressRule) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            Some(network) => write!(f, "{network}")?,
            None => write!(f, "*")?,
        }
        match self.ports {
            Some((first, last)) if first == last => write!(f, " {first}"),
            Some((first, last)) => write!(f, " {first}-{last}"),
            None => Ok(()),
        }
    }
}

/// A prefix under which a gateway reaches IPv4 addresses (NAT64, RFC 6052): `64:ff9b::/96`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Nat64Prefix {
    prefix: u128,
    length: u8,
}

/// The prefixes that every network may use, and the one of RFC 8215.
const WELL_KNOWN: [Nat64Prefix; 2] = [
    Nat64Prefix { prefix: 0x0064_ff9b << 96, length: 96 },
    Nat64Prefix { prefix: 0x0064_ff9b_0001 << 80, length: 48 },
];

impl Nat64Prefix {
    /// The IPv4 address that a gateway connects to.
    fn embedded(&self, ip: Ipv6Addr) -> Option<Ipv4Addr> {
        let (bits, length) = (ip.to_bits(), u32::from(self.length));
        if (bits ^ self.prefix) >> (128 - length) != 0 {
            return None;
        }
        // The address follows the prefix; the bits 64 to 71 are left out (RFC 6052, 2.2).
        let v4 = match self.length {
            96 => bits as u32,
            64 => (bits >> 24) as u32,
            length => {
                let without = ((bits >> 64) << 56) | (bits & ((1 << 56) - 1));
                (without >> (88 - u32::from(length))) as u32
            }
        };
        Some(Ipv4Addr::from_bits(v4))
    }
}

impl FromStr for Nat64Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let shown: String = text.chars().take(60).collect();
            format!(
                "{shown:?} is not a NAT64 prefix: use one such as 2001:db8:64::/96, of 32, 40, 48, 56, 64 or 96 bits"
            )
        };
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let prefix = address.parse::<Ipv6Addr>().map_err(|_| wrong())?.to_bits();
        let length: u8 = length.parse().map_err(|_| wrong())?;
        let is_allowed = matches!(length, 32 | 40 | 48 | 56 | 64 | 96);
        if !is_allowed || prefix << length != 0 {
            return Err(wrong());
        }
        Ok(Self { prefix, length })
    }
}

impl TryFrom<String> for Nat64Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Nat64Prefix> for String {
    fn from(prefix: Nat64Prefix) -> Self {
        format!("{}/{}", Ipv6Addr::from_bits(prefix.prefix), prefix.length)
    }
}

/// Where connections may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressRules {
    pub private: PrivateTargets,
    /// Where TLS is not needed, if `http://` is allowed at all.
    pub plain_http: PlainHttpTargets,
    /// If there are any, only these may be reached.
    pub allow: Vec<EgressRule>,
    /// Never reached, whatever is allowed.
    pub deny: Vec<EgressRule>,
    /// Prefixes of gateways to IPv4, beside the well-known one.
    pub nat64: Vec<Nat64Prefix>,
    /// Where this server listens. Never reached.
    pub own: OwnListeners,
}

impl EgressRules {
    /// The code of the reason why an address must not be connected to; `None` if it may.
    pub(crate) fn refusal(&self, address: SocketAddr, allow_private: bool) -> Option<&'static str> {
        let ip = self.meant(address.ip());
        let meant = SocketAddr::new(ip, address.port());
        if is_metadata(ip) {
            return Some("metadata_address");
        }
        if self.own.contains(meant) {
            return Some("own_address");
        }
        let any = |rules: &[EgressRule]| rules.iter().any(|rule| rule.matches(meant));
        if any(&self.deny) || (!self.allow.is_empty() && !any(&self.allow)) {
            return Some("egress_denied");
        }
        if allow_private || self.private.names(ip) {
            return None;
        }
        if !is_public(ip) && !self.private.contains(ip) {
            return Some("private_address");
        }
        // What else listens on this machine may trust its neighbours. A loopback address is meant if it is allowed.
        (!ip.is_loopback() && is_of_this_machine(ip)).then_some("own_address")
    }

    /// The same for a connection without TLS.
    pub(crate) fn plain_refusal(
        &self,
        address: SocketAddr,
        allow_private: bool,
    ) -> Option<&'static str> {
        let is_allowed = self.plain_http.contains(self.meant(address.ip()));
        self.refusal(address, allow_private).or((!is_allowed).then_some("plain_http"))
    }

    /// The IPv4 address that an IPv6 address stands for, or the address itself.
    fn meant(&self, ip: IpAddr) -> IpAddr {
        let IpAddr::V6(v6) = ip.to_canonical() else { return ip.to_canonical() };
        let embedded = self.nat64.iter().chain(&WELL_KNOWN).find_map(|prefix| prefix.embedded(v6));
        embedded.map_or(IpAddr::V6(v6), IpAddr::V4)
    }
}

fn is_metadata(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local() || METADATA_V4.contains(&ip),
        IpAddr::V6(ip) => METADATA_V6.contains(&ip),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> EgressRules {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        EgressRules { allow: parse(allow), deny: parse(deny), ..EgressRules::default() }
    }

    fn refusal(rules: &EgressRules, address: &str) -> Option<&'static str> {
        rules.refusal(address.parse().unwrap(), false)
    }

    #[test]
    fn lists_of_networks_and_ports_are_obeyed_and_deny_wins() {
        let rules = rules(&["8.0.0.0/8 443", "* 8000-8010"], &["8.8.8.0/24", "* 8005"]);
        for (address, expected) in [
            ("8.1.1.1:443", None),
            ("8.1.1.1:444", Some("egress_denied")),
            ("8.8.8.8:443", Some("egress_denied")),
            ("9.9.9.9:8000", None),
            ("9.9.9.9:8005", Some("egress_denied")),
            ("9.9.9.9:443", Some("egress_denied")),
            ("10.0.0.1:8000", Some("private_address")),
        ] {
            assert_eq!(refusal(&rules, address), expected, "{address}");
        }
        assert_eq!(refusal(&EgressRules::default(), "9.9.9.9:1"), None);
    }

    #[test]
    fn without_tls_only_the_named_networks_are_reached() {
        let networks = ["127.0.0.0/8", "::1/128"].map(|text| text.parse().unwrap()).to_vec();
        let rules = EgressRules {
            private: PrivateTargets::Networks(networks.clone()),
            plain_http: PlainHttpTargets::Networks(networks),
            ..EgressRules::default()
        };
        for (address, expected) in [
            ("127.0.0.1:3000", None),
            ("[::1]:3000", None),
            ("[::ffff:127.0.0.1]:3000", None),
            ("9.9.9.9:80", Some("plain_http")),
            ("10.0.0.1:80", Some("private_address")),
        ] {
            assert_eq!(rules.plain_refusal(address.parse().unwrap(), false), expected, "{address}");
        }
        assert_eq!(refusal(&rules, "9.9.9.9:443"), None, "with TLS");
    }

    #[test]
    fn metadata_and_our_own_listener_are_never_reached() {
        let rules = EgressRules { private: PrivateTargets::All(true), ..EgressRules::default() };
        rules.own.add("127.0.0.1:8080".parse().unwrap());
        for address in [
            "169.254.169.254:80",
            "[::ffff:169.254.169.254]:80",
            "[64:ff9b::a9fe:a9fe]:80",
            "[fd00:ec2::254]:80",
            "168.63.129.16:80",
            "100.100.100.200:80",
            "192.0.0.192:80",
            "169.254.170.2:80",
            "169.254.170.23:80",
            "[::ffff:169.254.170.2]:80",
            "[64:ff9b::a9fe:aa17]:80",
            "[64:ff9b:1:a9fe:aa:200::]:80",
            "169.254.0.23:80",
            "[fd00:ec2::23]:80",
            "[fd20:ce::254]:80",
        ] {
            assert_eq!(refusal(&rules, address), Some("metadata_address"), "{address}");
        }
        assert_eq!(refusal(&rules, "127.0.0.1:8080"), Some("own_address"));
        assert_eq!(refusal(&rules, "[::ffff:127.0.0.1]:8080"), Some("own_address"));
        assert_eq!(refusal(&rules, "127.0.0.1:8081"), None);
        rules.clone().own.add("0.0.0.0:8090".parse().unwrap());
        assert_eq!(refusal(&rules, "127.0.0.2:8090"), Some("own_address"));
        assert_eq!(refusal(&rules, "10.200.200.200:8090"), None, "another machine");
        assert_eq!(refusal(&rules, "0.0.0.0:1"), Some("own_address"), "it is this machine");
    }

    #[test]
    fn an_own_address_is_reached_only_if_it_is_named_alone() {
        // The address that this machine has in its network. Nothing is sent for that.
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let own = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
        let own = own.map_or(IpAddr::from([0, 0, 0, 0]), |own| own.ip());
        let other = "10.200.200.200:80";
        for (network, expected) in
            [("0.0.0.0/0".to_owned(), Some("own_address")), (format!("{own}/32"), None)]
        {
            let private = PrivateTargets::Networks(vec![network.parse().unwrap()]);
            let rules = EgressRules { private, ..EgressRules::default() };
            assert_eq!(refusal(&rules, &format!("{own}:22")), expected, "{network}");
        }
        let private = PrivateTargets::Networks(vec!["0.0.0.0/0".parse().unwrap()]);
        let rules = EgressRules { private, ..EgressRules::default() };
        assert_eq!(refusal(&rules, other), None);
        assert_eq!(refusal(&rules, "127.0.0.1:80"), None, "it is allowed, and local tests need it");
    }

    #[test]
    fn private_networks_can_be_named() {
        let private = PrivateTargets::Networks(vec!["10.1.0.0/16".parse().unwrap()]);
        let rules = EgressRules { private, ..EgressRules::default() };
        assert_eq!(refusal(&rules, "10.1.2.3:80"), None);
        assert_eq!(refusal(&rules, "10.2.0.1:80"), Some("private_address"));
        assert_eq!(refusal(&rules, "127.0.0.1:80"), Some("private_address"));
    }

    #[test]
    fn an_address_behind_a_gateway_to_ipv4_is_judged_as_that_address() {
        // RFC 6052, 2.4: 192.0.2.33 under prefixes of each length.
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ] {
            let parsed: Nat64Prefix = prefix.parse().unwrap();
            let found = parsed.embedded(address.parse().unwrap());
            assert_eq!(found, Some(Ipv4Addr::new(192, 0, 2, 33)), "{prefix}");
            assert_eq!(String::from(parsed), prefix);
        }
        let nat64 = vec!["2a00:1450:64::/96".parse().unwrap()];
        let rules = EgressRules { nat64, ..EgressRules::default() };
        assert_eq!(refusal(&rules, "[2a00:1450:64::127.0.0.1]:80"), Some("private_address"));
        assert_eq!(refusal(&rules, "[2a00:1450:64::8.8.8.8]:80"), None);
        for wrong in ["64:ff9b::", "64:ff9b::/95", "64:ff9b::1/96", "10.0.0.0/8", "x/96"] {
            assert!(wrong.parse::<Nat64Prefix>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rule_is_read_as_it_is_written() {
        for text in ["10.0.0.0/8", "192.0.2.0/24 443", "* 8000-8999", "2001:db8::/32 25"] {
            assert_eq!(text.parse::<EgressRule>().unwrap().to_string(), text);
        }
        for wrong in ["", "10.0.0.1/8", "* 9-1", "* 99999", "* 1 2", "example.com"] {
            assert!(wrong.parse::<EgressRule>().is_err(), "{wrong}");
        }
    }
}

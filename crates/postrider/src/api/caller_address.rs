//! The IP address of a caller, also behind proxies that the operator trusts.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::request_limits::CallGate;
use crate::ip_network::IpNetwork;

/// The other end of a connection. The listener adds it to each request.
#[derive(Debug, Clone)]
pub(crate) struct PeerAddress {
    pub(crate) ip: IpAddr,
    /// What this address is doing.
    pub(crate) gate: Arc<CallGate>,
}

pub(crate) fn is_among(networks: &[IpNetwork], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address))
}

/// The address of the caller. A trusted proxy's word counts, nobody else's.
pub(crate) fn caller_address(parts: &Parts, trusted: &[IpNetwork]) -> Option<IpAddr> {
    let peer = parts.extensions.get::<PeerAddress>()?.ip;
    let is_trusted = |address: IpAddr| is_among(trusted, address);
    if !is_trusted(peer) {
        return Some(peer.to_canonical());
    }
    Some(last_untrusted(&parts.headers, is_trusted).unwrap_or(peer).to_canonical())
}

/// Every proxy appends the address that it was called from: the last one that is no proxy of ours is the caller.
fn last_untrusted(headers: &HeaderMap, is_trusted: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let values = headers.get_all("x-forwarded-for").iter().rev();
    let mut last = None;
    for entry in values.flat_map(|value| value.to_str().unwrap_or("?").rsplit(',')) {
        // What stands before an unreadable entry is not reported by a proxy of ours.
        let Ok(address) = entry.trim().parse::<IpAddr>() else { break };
        last = Some(address);
        if !is_trusted(address) {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn caller(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let mut request = Request::builder();
        for value in forwarded {
            request = request.header("x-forwarded-for", *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let (ip, gate) = (peer.parse().unwrap(), Arc::default());
        parts.extensions.insert(PeerAddress { ip, gate });
        let trusted: Vec<_> = trusted.iter().map(|text| text.parse().unwrap()).collect();
        caller_address(&parts, &trusted).unwrap().to_string()
    }

    #[test]
    fn only_a_trusted_proxy_says_who_called() {
        let proxies = ["127.0.0.1", "10.0.0.0/8"];
        for (peer, forwarded, trusted, expected) in [
            ("203.0.113.9", vec!["192.0.2.1"], &[][..], "203.0.113.9"),
            ("203.0.113.9", vec!["192.0.2.1"], &proxies, "203.0.113.9"),
            ("127.0.0.1", vec!["192.0.2.1"], &[], "127.0.0.1"),
            ("127.0.0.1", vec!["192.0.2.1"], &proxies, "192.0.2.1"),
            ("127.0.0.1", vec!["192.0.2.1, 10.1.1.1"], &proxies, "192.0.2.1"),
            ("127.0.0.1", vec!["192.0.2.1", "198.51.100.7"], &proxies, "198.51.100.7"),
            ("127.0.0.1", vec!["192.0.2.1, forged, 10.1.1.1"], &proxies, "10.1.1.1"),
            ("127.0.0.1", vec![], &proxies, "127.0.0.1"),
            ("::ffff:127.0.0.1", vec!["::ffff:192.0.2.1"], &proxies, "192.0.2.1"),
        ] {
            assert_eq!(caller(peer, &forwarded, trusted), expected, "{peer} {forwarded:?}");
        }
    }
}

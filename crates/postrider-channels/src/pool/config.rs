//! The settings of the connection pool.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::{EgressRules, ProxyAccess, descriptors};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Allow loopback, private, link-local and metadata addresses as targets.
    pub allow_private_targets: bool,
    /// Allow `http://` targets.
    pub allow_plain_http: bool,
    /// Which networks and ports may be reached.
    pub egress: EgressRules,
    /// Through which targets are reached.
    pub proxy: Option<ProxyAccess>,
    /// From which connections are made, in turn; the system's choice if empty.
    pub source_addresses: Vec<IpAddr>,
    /// A PEM file of certificates that are trusted beside the system's.
    pub extra_ca_file: Option<PathBuf>,
    /// Hosts for which they are trusted, such as `*.corp.example`; all if empty.
    pub extra_ca_hosts: Vec<String>,
    /// Addresses of names that are not asked of DNS.
    pub hosts: BTreeMap<String, IpAddr>,
    /// A name server that is asked instead of the system's.
    pub name_server: Option<SocketAddr>,
    /// HTTP/2 connections per origin, 1 to 8.
    pub connections_max: usize,
    /// HTTP/1.1 connections per origin, 1 to 1024.
    pub http1_connections_max: usize,
    /// Connections to all origins together; 0 for as many as fit into three quarters of the limit of open files, at
    /// most 20 000. The one that was unused for the longest time makes room when it is reached.
    /// An unused HTTP/1.1 connection without TLS was measured at 17 KB, so 20 000 take about 340 MB.
    pub connections_total_max: usize,
    /// Requests in flight on one HTTP/2 connection; the peer's own limit applies, too.
    pub streams_max: usize,
}

impl PoolConfig {
    /// Connections to all origins together.
    pub fn connections_that_fit(&self) -> usize {
        match self.connections_total_max {
            0 => descriptors::connections_that_fit(),
            max => max,
        }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            allow_private_targets: false,
            allow_plain_http: false,
            egress: EgressRules::default(),
            proxy: None,
            source_addresses: Vec::new(),
            extra_ca_file: None,
            extra_ca_hosts: Vec::new(),
            hosts: BTreeMap::new(),
            name_server: None,
            connections_max: 8,
            http1_connections_max: 512,
            connections_total_max: 0,
            streams_max: 100,
        }
    }
}

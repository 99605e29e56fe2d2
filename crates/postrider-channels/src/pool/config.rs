//! The pool's settings, as written in the section `[network]`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolConfig {
    /// Allow loopback, private, link-local and metadata addresses as targets.
    pub allow_private_targets: bool,
    /// Allow `http://` targets.
    pub allow_plain_http: bool,
    /// A PEM file of certificates that are trusted beside the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_ca_file: Option<PathBuf>,
    /// Addresses of names that are not asked of DNS.
    pub hosts: BTreeMap<String, IpAddr>,
    /// HTTP/2 connections per origin, 1 to 8.
    pub connections_max: usize,
    /// HTTP/1.1 connections per origin, 1 to 256.
    pub http1_connections_max: usize,
    /// Connections to all origins together; unused ones make room when it is reached.
    pub connections_total_max: usize,
    /// Requests in flight on one HTTP/2 connection; the peer's own limit applies, too.
    pub streams_max: usize,
    pub connect_timeout_ms: u64,
    pub tls_timeout_ms: u64,
    /// A connection unused for so long is closed.
    pub idle_timeout_s: u64,
    /// A connection older than this takes no new requests.
    pub connection_age_s_max: u64,
    /// HTTP/2 PING on a quiet connection.
    pub ping_interval_s: u64,
    /// How long the answer to a PING may take.
    pub ping_timeout_s: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            allow_private_targets: false,
            allow_plain_http: false,
            extra_ca_file: None,
            hosts: BTreeMap::new(),
            connections_max: 4,
            http1_connections_max: 32,
            connections_total_max: 768,
            streams_max: 100,
            connect_timeout_ms: 5_000,
            tls_timeout_ms: 5_000,
            idle_timeout_s: 300,
            connection_age_s_max: 3_600,
            ping_interval_s: 60,
            ping_timeout_s: 10,
        }
    }
}

impl PoolConfig {
    pub(super) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub(super) fn tls_timeout(&self) -> Duration {
        Duration::from_millis(self.tls_timeout_ms)
    }

    pub(super) fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_s.max(1))
    }

    pub(super) fn age_max(&self) -> Duration {
        Duration::from_secs(self.connection_age_s_max.max(1))
    }
}

//! The sections of `postrider.toml`: every setting with its default and its meaning.

mod alerts;
mod encryption;
mod events;
mod policy;
mod problems;
mod quotas;
mod receipts;
mod retention;
mod rollups;
mod strikes;
mod traces;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::ValueEnum;
use postrider_channels::accounts::SecretRef;
use postrider_channels::pool::{
    EgressRule, Nat64Prefix, PlainHttpTargets, PrivateTargets, ProxyUrl,
};
use postrider_channels::settings::{SecretText, SectionInfo};
use postrider_channels::{registry, section};
use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::ip_network::IpNetwork;
use crate::keys::is_random;
pub(crate) use alerts::AlertPlace;
pub use alerts::{AlertRoute, AlertRouteKind, AlertSection};
pub use encryption::EncryptionSection;
pub use events::EventSection;
pub use policy::{
    BreakerSection, CapacitySection, DispatchSection, RetryBudgetSection, TenantSection,
};
pub use problems::ProblemSection;
pub use quotas::QuotaSection;
pub use receipts::ReceiptSection;
pub use retention::RetentionSection;
pub use rollups::RollupSection;
pub use strikes::StrikesSection;
pub use traces::{SpanProtocol, TraceSection};

/// All sections that are not tables by name, in the order of the reference.
pub(super) fn all() -> Vec<SectionInfo> {
    let mut all = vec![
        ServerSection::INFO,
        AdminSection::INFO,
        StoreSection::INFO,
        EncryptionSection::INFO,
        NetworkSection::INFO,
    ];
    all.extend(registry::all().map(|channel| channel.section()));
    all.extend([
        DispatchSection::INFO,
        BreakerSection::INFO,
        RetryBudgetSection::INFO,
        StrikesSection::INFO,
        CapacitySection::INFO,
        QuotaSection::INFO,
        ReceiptSection::INFO,
        RetentionSection::INFO,
        RollupSection::INFO,
        ProblemSection::INFO,
        AlertSection::INFO,
        EventSection::INFO,
        TraceSection::INFO,
        LogSection::INFO,
    ]);
    all
}

section! {
    /// The API, the status page and the metrics.
    ServerSection as "server" {
        /// Address and port to listen on. Port 0 picks a free one.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080)),
        /// The URL under which browsers and providers reach this server, such as "https://push.example.com". With it,
        /// each push has the URL for its receipts (docs/receipts.md). A change needs a restart.
        public_url: Option<String> = None,
        /// Largest body of one message, and largest line of a batch, in bytes.
        body_bytes_max: usize = 1 << 20,
        /// How many results of one batch wait for a caller that sends without reading, in bytes;
        /// then its body is no longer read.
        batch_results_bytes_max: usize = 32 << 20,
        /// A client has this long to send the head of its (next) request; then the connection is
        /// closed.
        header_timeout_s: u64 = 30,
        /// A request other than a batch has this long to be read and answered.
        request_timeout_s: u64 = 30,
        /// A batch ends when nothing arrives for this long.
        batch_idle_timeout_s: u64 = 60,
        /// Connections beyond this many wait to be taken. At most an eighth of the limit of open files is used.
        connections_max: usize = 4096,
        /// Connections of one address (of one /64 with IPv6). More are closed at once.
        connections_per_address: usize = 512,
        /// A connection without a request is closed after this time, also with HTTP/2.
        idle_timeout_s: u64 = 75,
        /// A connection takes no new requests after this time, and is closed after twice this time.
        connection_age_s: u64 = 3600,
        /// A connection is closed if its caller reads nothing of an answer for this long.
        write_timeout_s: u64 = 30,
        /// Requests per second of one key; 0 for no limit. More get 429.
        key_requests_per_s: f64 = 20_000.0,
        /// How many of them may come at once.
        key_requests_burst: u32 = 20_000,
        /// Calls of one key at the same time, each until its caller has read the answer; 0 for no limit. More get 429.
        key_calls_max: usize = 1024,
        /// Event streams of one key. More get 429.
        key_event_streams_max: usize = 20,
        /// Requests per second of one address; 0 for no limit. More get 429. Trusted proxies and health
        /// checks have no limit.
        address_requests_per_s: f64 = 20_000.0,
        /// How many of them may come at once.
        address_requests_burst: u32 = 20_000,
        /// "all"; "api": accept and show, but send nothing; or "worker": send and show, but accept nothing. A
        /// store in PostgreSQL or Redis has several servers with any of these.
        role: ServerRole = ServerRole::All,
        /// The name of this server among those that share a store. After a restart, the same name takes its work
        /// back at once, so no two servers have the same. Default: the host's name and the port.
        node: Option<String> = None,
        /// Where this server is: one of store.regions. A worker sends for the tenants that are pinned to its region,
        /// and prefers accounts of it.
        region: Option<String> = None,
        /// Networks of proxies in front of this server, such as ["127.0.0.1", "10.0.0.0/8"]. Their X-Forwarded-For
        /// says who called; nobody else's does.
        trusted_proxies: Vec<IpNetwork> = Vec::new(),
        /// A certificate with its chain, in PEM. With tls_key, the API speaks TLS. Both files are read anew when they
        /// change.
        tls_cert: Option<PathBuf> = None,
        /// The private key of tls_cert, in PEM.
        tls_key: Option<PathBuf> = None,
        /// Certificate authorities, in PEM. Only callers with a certificate of one of them are served.
        tls_client_ca: Option<PathBuf> = None,
        /// Speak HTTP without TLS on an address that other machines reach. For a server behind a proxy that speaks
        /// TLS, in a network where nobody listens.
        allow_plain_http: bool = false,
        /// An address of its own for /metrics, /healthz and /readyz, without a key and without TLS. They name the
        /// providers' hosts, so only the monitoring should reach it.
        metrics_listen: Option<SocketAddr> = None,
        /// Serve /metrics also on the API's address without a key. Else a key for all tenants with the scope read is
        /// needed there.
        metrics_public: bool = false,
        /// How long a one-time code for the status page works.
        sign_in_code_s: u64 = 600,
        /// How long a status page stays signed in that was opened with a code.
        session_s: u64 = 43_200,
    }
}

/// The longest public URL: it is a part of each push.
const PUBLIC_URL_MAX: usize = 200;

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum ServerRole {
    All,
    /// Accepts and shows, but sends nothing.
    Api,
    /// Sends and shows, but accepts nothing.
    Worker,
}

impl TryFrom<String> for ServerRole {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::from_str(&text, false).map_err(|_| {
            format!(
                "{text:?} is not a role: use \"all\", \"api\" to accept messages without sending them, or \
                 \"worker\" to send without accepting"
            )
        })
    }
}

impl ServerRole {
    pub fn sends(self) -> bool {
        self != Self::Api
    }

    pub fn accepts(self) -> bool {
        self != Self::Worker
    }
}

section! {
    /// The key of the operator.
    AdminSection as "admin" {
        /// An admin key of your own: 32 random bytes in hexadecimal or base64, as `openssl rand -base64 32` prints
        /// them. Also POSTRIDER_ADMIN_KEY. Without one, the first start makes a key and prints it once.
        key: Option<SecretText> = None,
    }
}

section! {
    /// Where accepted work is kept.
    StoreSection as "store" {
        /// The data folder, made with mode 0700 if missing.
        data: PathBuf = PathBuf::from("./postrider-data"),
        /// "embedded:" (in the data folder), "postgres://user@host:5432/database" or "redis://user@host:6379/0"
        /// (shared by several servers; docs/postgres.md and docs/redis.md list their parameters), also rediss://,
        /// redis+sentinel:// and redis+cluster://, or "memory:" (nothing survives: for tests only).
        url: String = "embedded:".to_owned(),
        /// The password of the database: env:NAME, file:PATH or command:PROGRAM ARGUMENTS, never the password
        /// itself. Without one, PGPASSWORD or REDISCLI_AUTH.
        password: Option<SecretRef> = None,
        /// The regions of a store that several servers share, such as ["eu", "us"], at most 4. All servers have the
        /// same list; new ones come at its end.
        regions: Vec<String> = Vec::new(),
        /// While another program keeps a read transaction open on the embedded database, its journal grows. Beyond this
        /// size in bytes, new work gets 503 until that program ends; what was accepted is still finished.
        journal_bytes_max: u64 = 4 << 30,
    }
}

section! {
    /// What may be reached.
    NetworkSection as "network" {
        /// Deliver also to loopback, private and link-local addresses: true for all, or networks such as
        /// ["10.20.0.0/16"]. Metadata services of clouds, link-local IPv4 addresses and this server itself are never
        /// reached. Other programs on this machine are reached by loopback addresses, and by another address of the
        /// machine only if an entry such as "10.20.0.7/32" names it.
        allow_private_targets: PrivateTargets = PrivateTargets::All(false),
        /// If given, only these networks and ports are reached: ["203.0.113.0/24", "* 443", "2001:db8::/32 8000-8999"].
        allow: Vec<EgressRule> = Vec::new(),
        /// Networks and ports that are never reached, whatever is allowed.
        deny: Vec<EgressRule> = Vec::new(),
        /// NAT64 prefixes of your network beside 64:ff9b::/96: an address under them is judged as the IPv4 address that
        /// it stands for.
        nat64_prefixes: Vec<Nat64Prefix> = Vec::new(),
        /// Reach targets through a proxy: "http://host:port" (CONNECT) or "socks5://host:port". SMTP and SMPP do not go
        /// through it: accounts with them are refused beside a proxy, ...
        proxy: Option<ProxyUrl> = None,
        /// ... unless this says that relays and message centres are reached without it.
        relays_without_proxy: bool = false,
        /// The proxy's user and password as USER:PASSWORD: env:NAME, file:PATH or command:PROGRAM ARGUMENTS.
        proxy_credential: Option<SecretRef> = None,
        /// Addresses of this machine from which targets are reached, in turn.
        source_addresses: Vec<IpAddr> = Vec::new(),
        /// Deliver also over http:// without TLS: true to all, or networks such as ["127.0.0.0/8", "10.20.0.0/16"].
        allow_plain_http: PlainHttpTargets = PlainHttpTargets::All(false),
        /// A PEM file of certificate authorities, trusted beside the system's roots.
        extra_ca_file: Option<PathBuf> = None,
        /// Trust them only for these hosts, such as ["hooks.corp.example", "*.internal.example"]. For all if empty.
        extra_ca_hosts: Vec<String> = Vec::new(),
        /// Addresses of names that are not asked of DNS, e.g. to meet the sandbox under a provider's own
        /// name: { "web.push.apple.com" = "127.0.0.1" }. They must be public like any other.
        hosts: BTreeMap<String, IpAddr> = BTreeMap::new(),
        /// HTTP/2 connections per origin, 1 to 8.
        connections_max: usize = 8,
        /// HTTP/1.1 connections per origin, 1 to 1024.
        http1_connections_max: usize = 512,
        /// Connections to all origins together, open at once. 0 for three quarters of the limit of open
        /// files, at most 20 000. When it is reached, the one unused for the longest time makes room.
        connections_total_max: usize = 0,
        /// Requests in flight on one HTTP/2 connection; the peer's own limit applies, too.
        streams_max: usize = 100,
    }
}

section! {
    /// Logs, on standard error.
    LogSection as "log" {
        /// "pretty" for people, "json" for machines.
        format: String = "pretty".to_owned(),
        /// error, warn, info, debug, trace; or a filter such as "info,postrider_dispatch=debug".
        level: String = "info".to_owned(),
    }
}

impl ServerSection {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        check_range("server.body_bytes_max", self.body_bytes_max, 1024..=64 << 20)?;
        let results = self.batch_results_bytes_max;
        check_range("server.batch_results_bytes_max", results, 64 << 10..=1 << 30)?;
        let connections = self.connections_max;
        check(connections > 0, "server.connections_max", connections, "at least 1")?;
        check(
            self.header_timeout_s > 0
                && self.request_timeout_s > 0
                && self.batch_idle_timeout_s > 0
                && self.idle_timeout_s > 0
                && self.write_timeout_s > 0,
            "server.…_timeout_s",
            0,
            "at least 1",
        )?;
        let per_address = self.connections_per_address;
        check(per_address > 0, "server.connections_per_address", per_address, "at least 1")?;
        check_range("server.connection_age_s", self.connection_age_s, 1..=10_000_000)?;
        check_range("server.sign_in_code_s", self.sign_in_code_s, 1..=86_400)?;
        check_range("server.session_s", self.session_s, 1..=31_536_000)?;
        self.validate_tls()?;
        self.validate_public_url()?;
        for (field, rate) in [
            ("server.key_requests_per_s", self.key_requests_per_s),
            ("server.address_requests_per_s", self.address_requests_per_s),
        ] {
            check_range(field, rate, 0.0..=1_000_000.0)?;
        }
        Ok(())
    }
}

impl ServerSection {
    /// Whether the API speaks TLS.
    pub fn has_tls(&self) -> bool {
        self.tls_cert.is_some()
    }

    fn validate_public_url(&self) -> Result<(), ConfigError> {
        let Some(url) = &self.public_url else { return Ok(()) };
        let parsed = url.parse::<http::Uri>().ok();
        let is_good = parsed.as_ref().is_some_and(|url| {
            let host = url.host().unwrap_or_default();
            let is_own = ["localhost", "127.0.0.1", "[::1]"].contains(&host);
            let has_scheme =
                url.scheme_str() == Some("https") || (url.scheme_str() == Some("http") && is_own);
            has_scheme && !host.is_empty() && url.query().is_none()
        });
        let has_more = url.contains(['#', '@']) || url.len() > PUBLIC_URL_MAX;
        let allowed = "an https:// URL of at most 200 characters without a user, a query and a fragment (http:// for \
                       localhost only)";
        check(is_good && !has_more, "server.public_url", format!("{url:?}"), allowed)
    }

    fn validate_tls(&self) -> Result<(), ConfigError> {
        let given = |file: &Option<PathBuf>| if file.is_some() { "a file" } else { "nothing" };
        check(
            self.tls_cert.is_some() == self.tls_key.is_some(),
            "server.tls_key",
            given(&self.tls_key),
            "both server.tls_cert and server.tls_key, or none of them",
        )?;
        check(
            self.tls_client_ca.is_none() || self.has_tls(),
            "server.tls_client_ca",
            given(&self.tls_client_ca),
            "only with server.tls_cert and server.tls_key",
        )?;
        check(
            self.has_tls() || self.allow_plain_http || self.listen.ip().is_loopback(),
            "server.listen",
            self.listen,
            "a loopback address such as 127.0.0.1:8080, or TLS (server.tls_cert and server.tls_key); behind a proxy \
             that speaks TLS, server.allow_plain_http = true",
        )
    }

    pub(super) fn validate_role(&self, store: &StoreSection) -> Result<(), ConfigError> {
        check(
            self.role != ServerRole::Worker || store.is_shared(),
            "server.role",
            "\"worker\"",
            "\"all\" or \"api\": only one process can use a store in a folder; a store in PostgreSQL or Redis has workers",
        )
    }
}

impl AdminSection {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let is_strong = self.key.as_ref().is_none_or(|key| is_random(key.reveal()));
        let allowed =
            "32 random bytes in hexadecimal or base64; `openssl rand -base64 32` prints some";
        check(is_strong, "admin.key", "(a secret)", allowed)
    }
}

impl StoreSection {
    /// Whether several servers can use it.
    pub fn is_shared(&self) -> bool {
        self.url.starts_with("postgres://")
            || self.url.starts_with("postgresql://")
            || self.is_redis()
    }

    /// Whether it is kept in Redis.
    pub fn is_redis(&self) -> bool {
        let scheme = self.url.split_once("://").map_or("", |(scheme, _)| scheme);
        let plain = scheme.strip_prefix("rediss").or_else(|| scheme.strip_prefix("redis"));
        matches!(plain, Some("" | "+sentinel" | "+cluster"))
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        // Without a scheme it may be anything, also a password.
        let scheme = self.url.split_once("://").map_or("another text", |(scheme, _)| scheme);
        let is_known = matches!(self.url.as_str(), "embedded:" | "memory:");
        let allowed = "\"embedded:\", \"postgres://user@host:5432/database\", \"redis://user@host:6379/0\" or \"memory:\"";
        check(is_known || self.is_shared(), "store.url", scheme, allowed)?;
        let user = self.url.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
        let has_password = user.is_some_and(|(user, _)| user.contains(':') && !user.contains('/'));
        check(
            !has_password,
            "store.url",
            "(a URL with a password)",
            "a URL without one; name the password with store.password, PGPASSWORD or REDISCLI_AUTH",
        )?;
        check_range("store.journal_bytes_max", self.journal_bytes_max, 64 << 20..=1 << 40)
    }
}

impl LogSection {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        check(
            matches!(self.format.as_str(), "pretty" | "json"),
            "log.format",
            format!("{:?}", self.format),
            "\"pretty\" or \"json\"",
        )?;
        check(
            tracing_subscriber::EnvFilter::try_new(&self.level).is_ok(),
            "log.level",
            format!("{:?}", self.level),
            "error, warn, info, debug, trace, or a filter such as \"info,postrider_dispatch=debug\"",
        )
    }
}

fn check_range<T: PartialOrd + Display>(
    field: &str,
    found: T,
    allowed: RangeInclusive<T>,
) -> Result<(), ConfigError> {
    let text = format!("{} to {}", allowed.start(), allowed.end());
    check(allowed.contains(&found), field, found, &text)
}

fn check(holds: bool, field: &str, found: impl ToString, allowed: &str) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    Err(ConfigError::invalid(field, found, allowed))
}

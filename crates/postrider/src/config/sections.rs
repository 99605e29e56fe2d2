//! The sections of `postrider.toml`: every setting with its default and its meaning.

use std::net::SocketAddr;
use std::path::PathBuf;

use postrider_core::breaker::BreakerPolicy;
use postrider_core::budget::BudgetPolicy;
use postrider_core::limiter::Rate;

use super::ConfigError;
use super::section::{Secret, SectionInfo, section};

pub(super) const ALL: [SectionInfo; 12] = [
    Server::INFO,
    Admin::INFO,
    Store::INFO,
    Network::INFO,
    WebpushChannel::INFO,
    WebhookChannel::INFO,
    HttpChannel::INFO,
    Dispatch::INFO,
    Breaker::INFO,
    RetryBudget::INFO,
    Retention::INFO,
    Log::INFO,
];

section! {
    /// The API, the status page and the metrics.
    Server as "server" {
        /// Address and port to listen on. Port 0 picks a free one.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080)),
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
        /// Connections beyond this many wait to be taken.
        connections_max: usize = 4096,
        /// "all", or "api": accept and show, but dispatch nothing until the next start as "all".
        role: String = "all".to_owned(),
        /// Serve /metrics without a key. It names the providers' hosts.
        metrics_public: bool = true,
    }
}

section! {
    /// The key of the operator.
    Admin as "admin" {
        /// An admin key of your own, at least 16 characters. Also POSTRIDER_ADMIN_KEY. Without one,
        /// the first start makes a key and prints it once.
        key: Option<Secret> = None,
    }
}

section! {
    /// Where accepted work is kept.
    Store as "store" {
        /// The data folder, made with mode 0700 if missing.
        data: PathBuf = PathBuf::from("./postrider-data"),
        /// "embedded:" (in the data folder) or "memory:" (nothing survives: for tests only).
        url: String = "embedded:".to_owned(),
    }
}

section! {
    /// What may be reached.
    Network as "network" {
        /// Deliver also to loopback, private, link-local and metadata addresses.
        allow_private_targets: bool = false,
        /// Deliver also over http:// without TLS.
        allow_plain_http: bool = false,
        /// A PEM file of certificate authorities, trusted beside the system's roots.
        extra_ca_file: Option<PathBuf> = None,
        /// HTTP/2 connections per origin, 1 to 8.
        connections_max: usize = 4,
        /// HTTP/1.1 connections per origin, 1 to 256.
        http1_connections_max: usize = 32,
        /// Requests in flight on one HTTP/2 connection; the peer's own limit applies, too.
        streams_max: usize = 100,
    }
}

section! {
    /// Web Push.
    WebpushChannel as "webpush" {
        /// Whom a push service can write to about our traffic: mailto: or https:.
        subject: String = "mailto:postrider@example.com".to_owned(),
        /// Requests in flight per push service.
        concurrency: usize = 100,
        /// Requests per second to one origin; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 30,
        /// The VAPID private key of the tenant `default`, as `web-push generate-vapid-keys` prints
        /// it. Also VAPID_PRIVATE_KEY. Without one, the first start makes a key pair.
        vapid_private_key: Option<Secret> = None,
    }
}

section! {
    /// Webhooks.
    WebhookChannel as "webhook" {
        /// Requests in flight per origin.
        concurrency: usize = 100,
        /// Requests per second to one origin; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 30,
        /// A replaced secret goes on signing beside the new one for this long.
        secret_overlap_s: u64 = 86_400,
    }
}

section! {
    /// Generic HTTP requests.
    HttpChannel as "http" {
        /// Which credentials callers may name, each with the one origin that it may be sent to, e.g.
        /// ["env:BILLING_TOKEN https://api.billing.example", "file:/run/secrets/crm https://crm.example"].
        credentials: Vec<String> = Vec::new(),
        /// Requests in flight per origin.
        concurrency: usize = 100,
        /// Requests per second to one origin; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 30,
    }
}

section! {
    /// How deliveries are worked on.
    Dispatch as "dispatch" {
        /// How long a delivery belongs to one attempt. At least twice any channel's timeout_s.
        lease_s: u64 = 90,
        /// Results wait at most this long to be written down together.
        settle_linger_ms: u64 = 2,
        /// Results written down together, at most.
        settle_batch: usize = 512,
        /// Calls under way, all lanes together. With one settle batch, this is what a crash can
        /// send twice.
        concurrency: usize = 512,
        /// On shutdown, attempts have this long to finish; then they are left to the next start.
        drain_s: u64 = 25,
    }
}

section! {
    /// When a provider counts as failing, so that its lanes wait without using up attempts. Answers
    /// about one message or one address never count as a failure, nor does being asked for less.
    Breaker as "breaker" {
        /// Opens when more than this share of the calls failed within the window ...
        share: f64 = 0.2,
        /// ... of this length ...
        window_s: u32 = 300,
        /// ... out of at least this many calls,
        calls_min: u32 = 100,
        /// or when at least this share of them failed within the window ...
        burst_share: f64 = 0.5,
        /// ... of this length ...
        burst_window_s: u32 = 10,
        /// ... out of at least this many.
        burst_calls_min: u32 = 20,
        /// It stays open for this long, then one call tries; each failure doubles it ...
        open_s: u32 = 5,
        /// ... up to this.
        open_s_max: u32 = 300,
    }
}

section! {
    /// How much of a lane's traffic may be retries, so that they never make an outage worse. A retry
    /// that succeeds gives its part back.
    RetryBudget as "retry_budget" {
        /// Retries per first attempt.
        share: f64 = 0.2,
        /// Retries per second that are always allowed.
        floor_per_s: f64 = 10.0,
        /// Over which both are counted.
        window_s: u32 = 10,
    }
}

section! {
    /// How long the ledger remembers.
    Retention as "retention" {
        /// Final deliveries and their messages are forgotten after this many days. Dead letters stay
        /// until they are replayed or discarded.
        days: u32 = 30,
    }
}

section! {
    /// Logs, on standard error.
    Log as "log" {
        /// "pretty" for people, "json" for machines.
        format: String = "pretty".to_owned(),
        /// error, warn, info, debug, trace; or a filter such as "info,postrider_dispatch=debug".
        level: String = "info".to_owned(),
    }
}

impl Server {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        check(
            (1024..=64 << 20).contains(&self.body_bytes_max),
            "server.body_bytes_max",
            self.body_bytes_max,
            "1024 to 67108864",
        )?;
        check(
            (64 << 10..=1 << 30).contains(&self.batch_results_bytes_max),
            "server.batch_results_bytes_max",
            self.batch_results_bytes_max,
            "65536 to 1073741824",
        )?;
        check(
            matches!(self.role.as_str(), "all" | "api"),
            "server.role",
            format!("{:?}", self.role),
            "\"all\" or \"api\"; \"worker\" needs an engine that several processes share, which this version has not",
        )?;
        check(
            self.connections_max > 0,
            "server.connections_max",
            self.connections_max,
            "at least 1",
        )?;
        check(
            self.header_timeout_s > 0
                && self.request_timeout_s > 0
                && self.batch_idle_timeout_s > 0,
            "server.…_timeout_s",
            0,
            "at least 1",
        )
    }
}

impl Admin {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let long_enough = self.key.as_ref().is_none_or(|key| key.reveal().len() >= 16);
        check(long_enough, "admin.key", "(a secret)", "at least 16 characters")
    }
}

impl Store {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        check(
            matches!(self.url.as_str(), "embedded:" | "memory:"),
            "store.url",
            format!("{:?}", self.url.split_once("://").map_or(self.url.as_str(), |(s, _)| s)),
            "\"embedded:\" or \"memory:\"; this version has no other engine",
        )
    }
}

impl WebpushChannel {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let subject = self.subject.as_str();
        let contact = subject.strip_prefix("mailto:").map(|m| m.contains('@'));
        let contact = contact.unwrap_or_else(|| subject.starts_with("https://"));
        check(
            contact && !subject.contains("localhost"),
            "webpush.subject",
            format!("{subject:?}"),
            "a mailto: or https: contact that push services can reach, e.g. mailto:ops@example.com",
        )?;
        check(self.concurrency > 0, "webpush.concurrency", self.concurrency, "at least 1")
    }
}

impl Dispatch {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        check(self.lease_s >= 1, "dispatch.lease_s", self.lease_s, "at least 1")?;
        check(
            self.settle_linger_ms <= 1000,
            "dispatch.settle_linger_ms",
            self.settle_linger_ms,
            "0 to 1000",
        )?;
        check(self.settle_batch > 0, "dispatch.settle_batch", self.settle_batch, "at least 1")?;
        check(self.concurrency > 0, "dispatch.concurrency", self.concurrency, "at least 1")
    }
}

impl Breaker {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let is_share = |share: f64| share > 0.0 && share <= 1.0;
        check(is_share(self.share), "breaker.share", self.share, "above 0, up to 1")?;
        check(
            is_share(self.burst_share),
            "breaker.burst_share",
            self.burst_share,
            "above 0, up to 1",
        )?;
        for (field, found) in [
            ("breaker.window_s", self.window_s),
            ("breaker.burst_window_s", self.burst_window_s),
            ("breaker.calls_min", self.calls_min),
            ("breaker.burst_calls_min", self.burst_calls_min),
            ("breaker.open_s", self.open_s),
        ] {
            check((1..=86_400).contains(&found), field, found, "1 to 86400")?;
        }
        check(
            (self.open_s..=86_400).contains(&self.open_s_max),
            "breaker.open_s_max",
            self.open_s_max,
            "open_s to 86400",
        )
    }

    pub(crate) fn policy(&self) -> BreakerPolicy {
        BreakerPolicy {
            window_s: self.window_s,
            share: self.share,
            calls_min: self.calls_min,
            burst_window_s: self.burst_window_s,
            burst_share: self.burst_share,
            burst_calls_min: self.burst_calls_min,
            open_s: self.open_s,
            open_s_max: self.open_s_max,
        }
    }
}

impl RetryBudget {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let share = (0.0..=100.0).contains(&self.share);
        check(share, "retry_budget.share", self.share, "0 to 100")?;
        // Without a floor, a lane whose traffic is all retries would never send again.
        let floor = (0.1..=1e6).contains(&self.floor_per_s);
        check(floor, "retry_budget.floor_per_s", self.floor_per_s, "0.1 to 1000000")?;
        let window = (1..=3_600).contains(&self.window_s);
        check(window, "retry_budget.window_s", self.window_s, "1 to 3600")?;
        check(
            self.floor_per_s * f64::from(self.window_s) >= 1.0,
            "retry_budget.floor_per_s",
            self.floor_per_s,
            "at least one retry within window_s",
        )
    }

    pub(crate) fn policy(&self) -> BudgetPolicy {
        BudgetPolicy { share: self.share, floor_per_s: self.floor_per_s, window_s: self.window_s }
    }
}

/// What holds for one tenant; a table by name, `[tenants.NAME]`.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tenant {
    /// Requests per second, all providers together; 0 for no limit.
    pub rate_per_s: f64,
    pub rate_burst: u32,
    /// Its share where tenants compete.
    pub weight: f64,
}

impl Default for Tenant {
    fn default() -> Self {
        Self { rate_per_s: 0.0, rate_burst: 10, weight: 1.0 }
    }
}

/// A rate limit, if there is one.
pub(crate) fn rate(per_s: f64, burst: u32, ramp_s: u32) -> Option<Rate> {
    (per_s > 0.0).then_some(Rate { per_s, burst, ramp_s })
}

pub(super) fn check_rate(field: &'static str, per_s: f64) -> Result<(), ConfigError> {
    let allowed = per_s == 0.0 || (0.001..=1e6).contains(&per_s);
    check(allowed, field, per_s, "0 (no limit), or 0.001 to 1000000")
}

impl Tenant {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        check_rate("tenants.NAME.rate_per_s", self.rate_per_s)?;
        let weight = (0.01..=1_000.0).contains(&self.weight);
        check(weight, "tenants.NAME.weight", self.weight, "0.01 to 1000")
    }
}

impl Log {
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

fn check(
    holds: bool,
    field: &'static str,
    found: impl ToString,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    Err(ConfigError::Invalid { field, found: found.to_string(), allowed })
}

impl HttpChannel {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        for entry in &self.credentials {
            if credential(entry).is_none() {
                return Err(ConfigError::Invalid {
                    field: "http.credentials",
                    found: format!("{entry:?}"),
                    allowed: "env:NAME or file:PATH, a space, and an origin such as https://api.example.com",
                });
            }
        }
        Ok(())
    }

    /// The credentials that callers may name, with their origins.
    pub fn allowed_credentials(&self) -> Vec<(String, String)> {
        self.credentials.iter().filter_map(|entry| credential(entry)).collect()
    }
}

fn credential(entry: &str) -> Option<(String, String)> {
    let (reference, origin) = entry.rsplit_once(' ')?;
    let reference = reference.trim();
    let known = ["env:", "file:"]
        .iter()
        .any(|kind| reference.strip_prefix(kind).is_some_and(|rest| !rest.is_empty()));
    let normal = postrider_channels::intake::origin(origin);
    (known && origin.contains("://") && *normal == *origin.trim_end_matches('/'))
        .then(|| (reference.to_owned(), normal.to_string()))
}

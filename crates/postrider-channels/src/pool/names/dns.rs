//! Asks the name servers of `/etc/resolv.conf`, after the hosts file. Blocks no thread and keeps no answers.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::{Resolver, TokioResolver};
use tokio::time::{Instant, timeout};

use super::{LookupFailure, LookupResult, NO_SUCH_NAME_KEPT_MAX, NameAnswer, NameLookup};

/// The files that say how names are resolved.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
/// They are looked at for changes at most so often.
const FILES_CHECKED_EVERY: Duration = Duration::from_secs(5);
/// For one query to one server.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// For a whole lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that answered within this time works: if it does not answer now, it is because of the name.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

pub(in crate::pool) struct DnsLookup {
    name_server: Option<SocketAddr>,
    state: Mutex<DnsState>,
}

#[derive(Default)]
struct DnsState {
    resolver: Option<Arc<TokioResolver>>,
    /// When the files were checked, and how old they were then.
    checked: Option<Instant>,
    files: [Option<SystemTime>; 2],
    /// When a server last answered anything.
    answered: Option<Instant>,
}

impl DnsLookup {
    /// With one name server, or with those of the system.
    pub(in crate::pool) fn new(name_server: Option<SocketAddr>) -> Self {
        Self { name_server, state: Mutex::default() }
    }

    fn resolver(&self) -> Result<Arc<TokioResolver>, NetError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.is_none_or(|checked| checked.elapsed() >= FILES_CHECKED_EVERY) {
            let files = FILES.map(|file| Path::new(file).metadata().ok()?.modified().ok());
            if files != state.files {
                state.resolver = None;
            }
            (state.checked, state.files) = (Some(Instant::now()), files);
        }
        if let Some(resolver) = &state.resolver {
            return Ok(resolver.clone());
        }
        let resolver = Arc::new(build(self.name_server)?);
        state.resolver = Some(resolver.clone());
        Ok(resolver)
    }

    /// Notes that a server answered, or returns whether one did lately.
    fn note(&self, has_answered: bool) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if has_answered {
            state.answered = Some(Instant::now());
        }
        state.answered.is_some_and(|answered| answered.elapsed() < ANSWERED_WITHIN)
    }
}

impl NameLookup for DnsLookup {
    async fn look_up(&self, name: &str) -> LookupResult {
        let local = |error: &NetError| LookupFailure::Local(format!("no name server: {error}"));
        let resolver = self.resolver().map_err(|error| local(&error))?;
        let asked = timeout(LOOKUP_TIMEOUT, resolver.lookup_ip(name)).await;
        match asked.unwrap_or(Err(NetError::Timeout)) {
            Ok(found) => {
                self.note(true);
                let valid_for =
                    found.valid_until().saturating_duration_since(std::time::Instant::now());
                Ok(NameAnswer { addresses: found.iter().collect(), valid_for })
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(none)))
                if none.response_code == ResponseCode::NXDomain =>
            {
                self.note(true);
                let valid_for = none.negative_ttl.map(|s| Duration::from_secs(u64::from(s)));
                let valid_for = valid_for.unwrap_or(NO_SUCH_NAME_KEPT_MAX);
                Err(LookupFailure::NoSuchName { valid_for })
            }
            Err(NetError::Dns(_) | NetError::Proto(_)) => {
                self.note(true);
                Err(LookupFailure::Failed)
            }
            Err(_) if self.note(false) => Err(LookupFailure::Failed),
            Err(error) => Err(local(&error)),
        }
    }
}

fn build(name_server: Option<SocketAddr>) -> Result<TokioResolver, NetError> {
    let (config, system) = match name_server {
        Some(address) => (only(address), ResolverOpts::default()),
        None => hickory_resolver::system_conf::read_system_conf()?,
    };
    let mut options = system;
    options.timeout = options.timeout.min(QUERY_TIMEOUT);
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.max_active_requests = 256;
    // Our own cache knows about stale answers and shares lookups.
    options.cache_size = 0;
    Resolver::builder_with_config(config, TokioRuntimeProvider::default())
        .with_options(options)
        .build()
}

fn only(address: SocketAddr) -> ResolverConfig {
    let mut server = NameServerConfig::udp(address.ip());
    server.connections.iter_mut().for_each(|connection| connection.port = address.port());
    ResolverConfig::from_parts(None, Vec::new(), vec![server])
}

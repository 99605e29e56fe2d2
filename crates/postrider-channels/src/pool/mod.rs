//! The HTTP connection pool of all channels: several connections per origin, HTTP/2 if the peer supports it, a slot per
//! request. Addresses are checked before connecting. Follows no redirects, retries nothing and has no queue.

mod budget;
mod config;
mod conn;
pub(crate) mod connect;
mod descriptors;
mod driver;
mod egress;
mod failure;
mod guard;
mod idle;
mod names;
mod network;
mod opening_places;
mod origin;
mod own_addresses;
mod peer;
mod peers;
mod permitted;
mod progress;
mod proxy;
mod scoped_roots;
mod shortage;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use ::http::header::{CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use bytes::Bytes;
use tokio::time::Instant;

pub use config::PoolConfig;
pub use conn::Slot;
pub(crate) use connect::NO_SUCH_HOST;
pub use descriptors::raise_descriptor_limit;
pub use egress::{EgressRule, EgressRules, Nat64Prefix, PlainHttpTargets, PrivateTargets};
pub use failure::TransportError;
pub use guard::is_public;
pub use origin::{Origin, UrlError};
pub use own_addresses::OwnListeners;
pub use proxy::{ProxyAccess, ProxyUrl};
pub use tls::ClientCertificate;

use crate::Error;
use crate::credential_echo::SentCredentials;
use budget::ConnectionBudget;
use names::{DnsLookup, NameCache};
use network::NetworkWatch;
use opening_places::OpeningPlaces;
use peer::Peer;
use peers::Peers;

/// A cheap handle to the pool. Connections run on the caller's runtime.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<PoolState>,
}

struct PoolState {
    resources: Arc<PoolResources>,
    profile: ConnectionProfile,
    peers: Peers,
}

/// What all peers share.
struct PoolResources {
    config: PoolConfig,
    budget: Arc<ConnectionBudget>,
    handshakes: OpeningPlaces,
    names: Arc<NameCache<DnsLookup>>,
    network: NetworkWatch,
}

/// A parsed URL and the peer behind it.
#[derive(Clone)]
pub struct Endpoint {
    peer: Arc<Peer>,
    uri: Uri,
}

/// How connections to a peer are made.
#[derive(Clone)]
struct ConnectionProfile {
    tls: Arc<rustls::ClientConfig>,
    http2_only: bool,
    one_until_proven: bool,
}

impl Endpoint {
    /// Another path at the same peer, over the same connections.
    pub fn at(&self, path: &str) -> Result<Self, TransportError> {
        let uri = Uri::builder()
            .scheme(if self.origin().is_https() { "https" } else { "http" })
            .authority(self.origin().authority())
            .path_and_query(path)
            .build();
        let uri = uri.map_err(|_| TransportError::BadUrl(UrlError::NotAUrl))?;
        Ok(Self { peer: self.peer.clone(), uri })
    }

    /// Replaces its connections by new ones.
    pub fn reconnect(&self) {
        self.peer.retire();
    }

    pub fn origin(&self) -> &Origin {
        &self.peer.origin
    }

    /// The whole URL.
    pub fn url(&self) -> String {
        self.uri.to_string()
    }
}

/// A request to one endpoint. URL and query are sent as they were written.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Request {
    /// With our user agent, and a body of this type.
    pub(crate) fn new(method: Method, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { method, headers: own_headers(content_type), body: body.into() }
    }

    /// Adds a header that `Debug` does not show. A text that cannot be a header is left out.
    pub(crate) fn with_secret(mut self, name: HeaderName, text: String) -> Self {
        if let Ok(mut value) = HeaderValue::try_from(text) {
            value.set_sensitive(true);
            self.headers.insert(name, value);
        }
        self
    }
}

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";

/// Our user agent.
pub(crate) const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("Postrider/", env!("CARGO_PKG_VERSION")));

/// Our user agent and the type of the body, with room for the headers of any channel.
pub(crate) fn own_headers(content_type: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(USER_AGENT, AGENT);
    headers
}

/// An answer with the beginning of its body.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// What the request logged in with, for a channel's own calls.
    pub credentials: SentCredentials,
}

/// The current size of the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    pub origins: usize,
    pub connections: usize,
    pub in_flight: usize,
}

impl Pool {
    pub fn new(config: PoolConfig) -> Result<Self, Error> {
        let tls = Arc::new(tls::client_config(&config, None)?);
        let connections_max = config.connections_that_fit();
        let names = NameCache::new(DnsLookup::new(config.name_server));
        let resources = PoolResources {
            config,
            budget: ConnectionBudget::new(connections_max),
            handshakes: OpeningPlaces::default(),
            names,
            network: NetworkWatch::default(),
        };
        let shared = PoolState {
            resources: Arc::new(resources),
            profile: ConnectionProfile { tls, http2_only: false, one_until_proven: false },
            peers: Peers::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Never connects to this socket from now on, because this server listens on it.
    pub fn refuse_own(&self, listener: SocketAddr) {
        self.shared.resources.config.egress.own.add(listener);
    }

    /// The same trusted certificates for other protocols, such as SMTP.
    pub fn tls_without_http(&self) -> Arc<rustls::ClientConfig> {
        let mut tls = (*self.shared.profile.tls).clone();
        tls.alpn_protocols.clear();
        Arc::new(tls)
    }

    /// Parses a URL and finds its peer. Opens nothing.
    pub fn endpoint(&self, url: &str) -> Result<Endpoint, TransportError> {
        let uri = Uri::from_maybe_shared(Bytes::copy_from_slice(url.as_bytes()))
            .map_err(|_| TransportError::BadUrl(UrlError::NotAUrl))?;
        let prefix = origin::prefix(url);
        if let Some(peer) = self.shared.peers.get(prefix) {
            return Ok(Endpoint { peer, uri });
        }
        let origin = Origin::parse(url).map_err(TransportError::BadUrl)?;
        if !origin.is_https() && !self.shared.resources.config.allow_plain_http {
            return Err(TransportError::Blocked { code: "plain_http" });
        }
        let profile = self.shared.profile.clone();
        Ok(Endpoint { peer: self.shared.insert(prefix, origin, profile), uri })
    }

    /// A peer with connections of its own: HTTP/2 only, and, without a client certificate, one request at a time
    /// until the first one was accepted. `name` tells peers of the same origin apart.
    pub fn private_endpoint(
        &self,
        url: &str,
        name: &str,
        identity: Option<&ClientCertificate>,
    ) -> Result<Endpoint, Error> {
        let bad = |error: UrlError| Error::Endpoint { allowed: error.allowed() };
        let uri = Uri::try_from(url).map_err(|_| bad(UrlError::NotAUrl))?;
        let origin = Origin::parse(url).map_err(bad)?;
        if !origin.is_https() {
            return Err(bad(UrlError::Scheme));
        }
        let tls = match identity {
            None => self.shared.profile.tls.clone(),
            Some(_) => Arc::new(tls::client_config(&self.shared.resources.config, identity)?),
        };
        let profile =
            ConnectionProfile { tls, http2_only: true, one_until_proven: identity.is_none() };
        let key = format!("{} {name}", origin::prefix(url));
        Ok(Endpoint { peer: self.shared.insert(&key, origin, profile), uri })
    }

    /// Waits for a free stream on a connection, and opens a connection if needed.
    pub async fn acquire(
        &self,
        endpoint: &Endpoint,
        deadline: Instant,
    ) -> Result<Slot, TransportError> {
        endpoint.peer.acquire(deadline).await
    }

    /// [`Pool::acquire`] and [`Slot::send`] in one.
    pub async fn send(
        &self,
        url: &str,
        request: Request,
        deadline: Instant,
    ) -> Result<Response, TransportError> {
        let endpoint = self.endpoint(url)?;
        let slot = self.acquire(&endpoint, deadline).await?;
        slot.send(&endpoint, request, deadline).await
    }

    /// Looks at every peer: not for the path of a request.
    pub fn stats(&self) -> PoolStats {
        let mut stats = PoolStats::default();
        self.shared.peers.for_each(|peer| {
            let (connections, in_flight) = peer.load();
            stats.origins += 1;
            stats.connections += connections;
            stats.in_flight += in_flight;
        });
        stats
    }
}

impl PoolState {
    fn insert(&self, prefix: &str, origin: Origin, profile: ConnectionProfile) -> Arc<Peer> {
        self.peers.insert(prefix, || Peer::new(origin, self.resources.clone(), profile))
    }
}

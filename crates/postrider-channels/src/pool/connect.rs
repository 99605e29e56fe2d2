//! Opens one connection: resolves the name, refuses private addresses, connects to exactly the address that was
//! checked, and does the TLS and HTTP handshakes.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::EgressRules;
use super::budget::ConnectionPermit;
use super::names::{DnsLookup, NameCache};
use super::permitted::PermittedStream;
use super::progress::Executor;
use super::proxy::{PROXY_TIMEOUT, ProxyAccess};
use super::{ConnectionProfile, Origin, PoolConfig, TransportError, is_public, shortage, tls};

pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub(super) type Stream = TokioIo<Box<dyn Io>>;
pub(super) type BodyBytes = Full<Bytes>;

pub(super) type Http2Connection = http2::Connection<Stream, BodyBytes, Executor>;

/// A connection after its handshakes, without a driver yet.
pub(super) enum NewConnection {
    H2(http2::SendRequest<BodyBytes>, Http2Connection, Executor),
    H1(http1::SendRequest<BodyBytes>, Box<http1::Connection<Stream, BodyBytes>>),
}

/// Requests in flight before the peer has sent its own limit, which comes with its first bytes. Some peers close
/// a connection that exceeds their limit.
const STREAMS_BEFORE_SETTINGS: usize = 1;
/// The code of a name that does not exist.
pub(crate) const NO_SUCH_HOST: &str = "no_such_host";
/// Name lookups at the same time in the whole process.
const LOOKUPS_MAX: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TLS_TIMEOUT: Duration = Duration::from_secs(5);
/// HTTP/2 PING on a quiet connection.
const PING_INTERVAL: Duration = Duration::from_secs(60);
/// The longest time until the answer to a PING.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Addresses of the origin that may be connected to.
pub(super) async fn addresses_of(
    origin: &Origin,
    config: &PoolConfig,
    names: &Arc<NameCache<DnsLookup>>,
) -> Result<Vec<SocketAddr>, TransportError> {
    let host = origin.host().trim_start_matches('[').trim_end_matches(']');
    let known = config.hosts.get(origin.host()).copied().or_else(|| host.parse().ok());
    let found = match known {
        Some(ip) => Arc::from([ip]),
        None => names.resolve(host).await?,
    };
    let found = found.iter().map(|ip| SocketAddr::new(*ip, origin.port()));
    let refusal = match origin.is_https() {
        true => EgressRules::refusal,
        false => EgressRules::plain_refusal,
    };
    allowed(found, |address| refusal(&config.egress, address, config.allow_private_targets))
}

pub(super) async fn open(
    origin: &Origin,
    addresses: &[SocketAddr],
    profile: &ConnectionProfile,
    config: &PoolConfig,
    permit: ConnectionPermit,
) -> Result<NewConnection, TransportError> {
    let tcp = match &config.proxy {
        None => {
            connect(addresses, &config.source_addresses, Instant::now() + CONNECT_TIMEOUT).await?
        }
        Some(proxy) => connect_through(proxy, addresses, &config.source_addresses).await?,
    };
    let stream = PermittedStream::new(tcp, permit);
    if !origin.is_https() {
        return handshake_http1(Box::new(stream)).await;
    }
    let stream = encrypt(stream, origin.host(), TLS_TIMEOUT, &profile.tls).await?;
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = Box::new(stream);
    match (is_h2, profile.http2_only) {
        (true, _) => handshake_http2(stream).await,
        (false, false) => handshake_http1(stream).await,
        (false, true) => Err(TransportError::unopened("http2", "the peer does not speak HTTP/2")),
    }
}

/// Connects to a host that may be a name or an address, with or without brackets.
pub(crate) async fn dial(
    host: &str,
    port: u16,
    allow_private: bool,
    deadline: Instant,
) -> Result<TcpStream, TransportError> {
    let addresses = resolve(host, port, allow_private, deadline).await?;
    connect(&addresses, &[], deadline).await
}

/// Reaches the first address that the proxy can reach.
async fn connect_through(
    proxy: &ProxyAccess,
    addresses: &[SocketAddr],
    sources: &[IpAddr],
) -> Result<TcpStream, TransportError> {
    let deadline = Instant::now() + PROXY_TIMEOUT;
    let proxy_at = resolve(&proxy.url.host, proxy.url.port, true, deadline).await?;
    let mut last = TransportError::unopened("proxy", "there is no address to connect to");
    for address in addresses {
        let tcp = connect(&proxy_at, sources, deadline).await?;
        match proxy.reach(tcp, *address, deadline).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// By the system's resolver, for the few hosts that the operator names.
async fn resolve(
    host: &str,
    port: u16,
    allow_private: bool,
    deadline: Instant,
) -> Result<Vec<SocketAddr>, TransportError> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found: Vec<SocketAddr> = match host.parse() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => timeout_at(deadline, look_up(host.to_owned(), port))
            .await
            .map_err(|_| TransportError::unopened("dns", "the name could not be resolved in time"))?
            .map_err(|error| unresolved(&error))?,
    };
    if found.is_empty() {
        return Err(TransportError::unopened("dns", "the name has no address"));
    }
    let refusal = |address: SocketAddr| {
        (!allow_private && !is_public(address.ip())).then_some("private_address")
    };
    allowed(found.into_iter(), refusal)
}

/// The addresses that may be connected to, at least one.
fn allowed(
    found: impl Iterator<Item = SocketAddr>,
    refusal: impl Fn(SocketAddr) -> Option<&'static str>,
) -> Result<Vec<SocketAddr>, TransportError> {
    let (mut allowed, mut why) = (Vec::new(), "private_address");
    for address in found {
        match refusal(address) {
            None => allowed.push(address),
            Some(code) => why = code,
        }
    }
    match allowed.is_empty() {
        true => Err(TransportError::Blocked { code: why }),
        false => Ok(allowed),
    }
}

/// Tells a name that does not exist from a lookup that failed. The standard library hides the resolver's code, so
/// this compares the messages of glibc, musl and macOS.
fn unresolved(error: &std::io::Error) -> TransportError {
    const UNKNOWN: [&str; 3] =
        ["Name or service not known", "Name does not resolve", "nodename nor servname provided"];
    let words = error.to_string();
    match UNKNOWN.iter().any(|unknown| words.contains(unknown)) {
        true => TransportError::unopened(NO_SUCH_HOST, "the name does not exist"),
        false => TransportError::unopened("dns", "the name could not be resolved"),
    }
}

/// The system's resolver blocks a thread, and a silent name server blocks it long after our deadline. The store
/// needs the same threads, so the number of lookups is limited.
async fn look_up(host: String, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    static PLACES: Semaphore = Semaphore::const_new(LOOKUPS_MAX);
    let place = PLACES.acquire().await.map_err(std::io::Error::other)?;
    let looked_up = tokio::task::spawn_blocking(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        drop(place);
        found
    });
    looked_up.await?
}

/// Tries the addresses one after the other; each gets an equal share of the remaining time.
async fn connect(
    addresses: &[SocketAddr],
    sources: &[IpAddr],
    deadline: Instant,
) -> Result<TcpStream, TransportError> {
    let mut last = TransportError::unopened("connect", "no address answered");
    for (nth, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - nth).unwrap_or(1);
        match timeout(share.max(Duration::from_millis(1)), connect_from(sources, *address)).await {
            Ok(Ok(tcp)) => {
                // Small requests must not wait for the peer's acknowledgements.
                let _ = tcp.set_nodelay(true);
                return Ok(tcp);
            }
            Ok(Err(error)) => match shortage::of_connect(&error, address) {
                Some(shortage) => return Err(shortage),
                None => last = refused(&error),
            },
            Err(_) => last = TransportError::silent("connect", "timed out"),
        }
    }
    Err(last)
}

/// From one of our addresses of the same kind, in turn; the system's choice if there is none.
async fn connect_from(sources: &[IpAddr], address: SocketAddr) -> std::io::Result<TcpStream> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let fits = |source: &&IpAddr| source.is_ipv4() == address.is_ipv4();
    let fitting = sources.iter().filter(fits).count();
    if fitting == 0 {
        return TcpStream::connect(address).await;
    }
    let turn = TURN.fetch_add(1, Ordering::Relaxed) % fitting;
    let source = sources.iter().filter(fits).nth(turn).copied().unwrap_or(address.ip());
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(address).await
}

fn refused(error: &std::io::Error) -> TransportError {
    let detail = error.kind().to_string();
    match error.kind() {
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            TransportError::silent("connect", detail)
        }
        _ => TransportError::unopened("connect", detail),
    }
}

/// Does the TLS handshake. The host's certificate must be valid for its name.
pub(crate) async fn encrypt<S: Io>(
    stream: S,
    host: &str,
    within: Duration,
    tls: &Arc<ClientConfig>,
) -> Result<TlsStream<S>, TransportError> {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host)
        .map_err(|_| TransportError::unopened("tls", "a certificate cannot name this host"))?;
    timeout(within, TlsConnector::from(tls.clone()).connect(name, stream))
        .await
        .map_err(|_| TransportError::unopened("tls", "timed out"))?
        .map_err(|error| TransportError::unopened("tls", tls::describe(&error)))
}

async fn handshake_http1(stream: Box<dyn Io>) -> Result<NewConnection, TransportError> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| TransportError::unopened("connect", "HTTP/1.1 could not be set up"))?;
    Ok(NewConnection::H1(sender, Box::new(connection)))
}

async fn handshake_http2(stream: Box<dyn Io>) -> Result<NewConnection, TransportError> {
    let executor = Executor::default();
    let (sender, connection) = http2::Builder::new(executor.clone())
        .timer(TokioTimer::new())
        .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .adaptive_window(false)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| TransportError::unopened("connect", "HTTP/2 could not be set up"))?;
    Ok(NewConnection::H2(sender, connection, executor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_exist_is_told_from_a_resolver_that_fails() {
        let code = |words: &str| {
            let text = format!("failed to lookup address information: {words}");
            match unresolved(&std::io::Error::other(text)) {
                TransportError::Unopened { code, .. } => code,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(code("Name or service not known"), NO_SUCH_HOST);
        assert_eq!(code("nodename nor servname provided, or not known"), NO_SUCH_HOST);
        assert_eq!(code("Temporary failure in name resolution"), "dns");
        assert_eq!(code("No address associated with hostname"), "dns");
    }
}

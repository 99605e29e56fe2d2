//! The listening socket: accepts connections up to limits, serves HTTP/1.1 and HTTP/2, closes what is idle, stuck or
//! old, and stops in order.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use postrider_channels::pool::raise_descriptor_limit;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::caller_stream::CallerStream;
use super::connection::{ConnectionState, ConnectionTimes, ConnectionVerdict};
use super::counted_body::CountedBody;
use super::timed_stream::TimedStream;
use super::tls::ServerTls;
use crate::api::{CallGate, OpenPermit, PeerAddress, network_of};
use crate::config::sections::ServerSection;
use crate::telemetry::Metrics;

/// The pause after a failure to accept a connection, e.g. without a free file handle.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a server that stops waits for the first request of a connection, and how often it looks.
const FIRST_REQUEST_AT_END: Duration = Duration::from_millis(500);
const FIRST_REQUEST_LOOK: Duration = Duration::from_millis(5);
/// Connections that wait to be accepted, for example while another process takes over. The system has a limit of its
/// own (net.core.somaxconn).
const WAITING_MAX: u32 = 4_096;
/// Callers have at most this share of the descriptors, so that deliveries always have theirs.
const DESCRIPTORS_SHARE: u64 = 8;

pub(super) struct Listening {
    pub(super) addr: SocketAddr,
    /// The same socket, for a process that takes over.
    pub(super) socket: std::net::TcpListener,
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<()>,
}

impl Listening {
    pub(super) async fn start(
        router: Router,
        listen: SocketAddr,
        config: &ServerSection,
        metrics: Arc<Metrics>,
        tls: Option<Arc<ServerTls>>,
        given: Option<std::net::TcpListener>,
    ) -> std::io::Result<Self> {
        let listener = match given {
            Some(given) => {
                given.set_nonblocking(true)?;
                TcpListener::from_std(given)?
            }
            None => bind(listen)?,
        };
        let addr = listener.local_addr()?;
        let socket = std::net::TcpListener::from(listener.as_fd().try_clone_to_owned()?);
        let (stop, stopped) = oneshot::channel();
        let seconds = Duration::from_secs;
        let connections_max = fitting(config.connections_max, raise_descriptor_limit());
        let acceptor = ConnectionListener {
            router,
            builder: builder(config),
            room: Arc::new(Semaphore::new(connections_max)),
            callers: Arc::default(),
            per_address_max: config.connections_per_address,
            times: ConnectionTimes {
                first_request: seconds(config.header_timeout_s),
                idle: seconds(config.idle_timeout_s),
                age: seconds(config.connection_age_s),
                write: seconds(config.write_timeout_s),
            },
            metrics,
            tls,
        };
        let task = tokio::spawn(acceptor.run(listener, stopped));
        Ok(Self { addr, socket, stop, task })
    }

    /// Closes the socket. Open requests have `timeout` to finish.
    pub(super) async fn stop(self, timeout: Duration) {
        drop(self.socket);
        let _ = self.stop.send(timeout);
        let _ = self.task.await;
    }
}

fn bind(listen: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match listen {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    socket.listen(WAITING_MAX)
}

/// The connections that callers may have, of those that are configured.
fn fitting(configured: usize, descriptors: u64) -> usize {
    let share = usize::try_from(descriptors / DESCRIPTORS_SHARE).unwrap_or(usize::MAX).max(1);
    if share < configured {
        tracing::warn!(
            configured,
            used = share,
            descriptors,
            "server.connections_max does not fit into the limit of open files; raise the limit (ulimit -n)"
        );
    }
    configured.min(share)
}

struct ConnectionListener {
    router: Router,
    builder: Builder<TokioExecutor>,
    room: Arc<Semaphore>,
    callers: Arc<CallerAddresses>,
    per_address_max: usize,
    times: ConnectionTimes,
    metrics: Arc<Metrics>,
    /// Absent for plain HTTP.
    tls: Option<Arc<ServerTls>>,
}

/// A connection that was accepted, with its places.
struct AcceptedConnection {
    stream: TcpStream,
    peer: PeerAddress,
    _place: OwnedSemaphorePermit,
    _own_place: OpenPermit,
}

impl ConnectionListener {
    async fn run(self, listener: TcpListener, mut stopped: oneshot::Receiver<Duration>) {
        let stopping = watch::Sender::new(false);
        // Every connection has a clone; the channel closes when the last one ended.
        let (alive, mut ended) = mpsc::channel::<()>(1);
        let timeout = loop {
            tokio::select! {
                timeout = &mut stopped => break timeout.unwrap_or_default(),
                accepted = self.next(&listener) => match accepted {
                    Ok(Some(accepted)) => self.serve(accepted, stopping.subscribe(), alive.clone()),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        };
        drop(listener);
        drop(alive);
        stopping.send_replace(true);
        let _ = tokio::time::timeout(timeout, ended.recv()).await;
    }

    /// The next connection; `None` if its address has enough of them.
    async fn next(&self, listener: &TcpListener) -> std::io::Result<Option<AcceptedConnection>> {
        let closed = |_| std::io::Error::other("no more connections are accepted");
        let place = self.room.clone().acquire_owned().await.map_err(closed)?;
        let (stream, peer) = listener.accept().await?;
        let gate = self.callers.gate(peer.ip());
        let Some(own_place) = gate.calls.take(self.per_address_max) else {
            self.metrics.connection_refused();
            return Ok(None);
        };
        stream.set_nodelay(true)?;
        let peer = PeerAddress { ip: peer.ip(), gate };
        Ok(Some(AcceptedConnection { stream, peer, _place: place, _own_place: own_place }))
    }

    fn serve(
        &self,
        accepted: AcceptedConnection,
        mut stopping: watch::Receiver<bool>,
        alive: mpsc::Sender<()>,
    ) {
        let AcceptedConnection { stream, peer, _place: place, _own_place: own_place } = accepted;
        let router = TowerToHyperService::new(self.router.clone());
        let state = Arc::new(ConnectionState::new(self.times));
        let requests = state.clone();
        let service = service_fn(move |mut request: http::Request<_>| {
            let open = requests.begin();
            request.extensions_mut().insert(peer.clone());
            let answer = router.call(request);
            async move {
                let answer = answer.await?;
                Ok::<_, std::convert::Infallible>(CountedBody::answer(answer, open))
            }
        });
        let look_every = state.look_every();
        let (builder, write_timeout) = (self.builder.clone(), self.times.write);
        let handshake = secured(stream, self.tls.clone(), self.times.first_request);
        tokio::spawn(async move {
            let _held = (place, own_place, alive);
            let stream = match handshake.await {
                Ok(stream) => TokioIo::new(TimedStream::new(stream, write_timeout)),
                Err(error) => return tracing::debug!(%error, "a TLS handshake failed"),
            };
            let connection = builder.serve_connection(stream, service);
            tokio::pin!(connection);
            let (mut wait, mut is_draining) = (state.verdict(Instant::now()), false);
            loop {
                let next = match wait {
                    ConnectionVerdict::Close => return,
                    ConnectionVerdict::Keep(next) => next,
                    ConnectionVerdict::Drain(next) => {
                        if !std::mem::replace(&mut is_draining, true) {
                            connection.as_mut().graceful_shutdown();
                        }
                        next
                    }
                };
                tokio::select! {
                    ended = &mut connection => {
                        if let Err(error) = ended {
                            tracing::debug!(%error, "a connection ended early");
                        }
                        return;
                    }
                    () = tokio::time::sleep(next.min(look_every).max(PAUSE)) => wait = state.verdict(Instant::now()),
                    () = asked_to_stop(&mut stopping, &state), if !is_draining => {
                        wait = ConnectionVerdict::Drain(next);
                    }
                }
            }
        });
    }
}

/// Returns when the server stops. A connection that was just opened may make its first request before.
async fn asked_to_stop(stopping: &mut watch::Receiver<bool>, state: &ConnectionState) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
    let begun = async {
        while !state.has_begun() {
            tokio::time::sleep(FIRST_REQUEST_LOOK).await;
        }
    };
    let _ = tokio::time::timeout(FIRST_REQUEST_AT_END, begun).await;
}

/// The stream after the TLS handshake, if there is one. The handshake has as long as the head of a request.
async fn secured(
    stream: TcpStream,
    tls: Option<Arc<ServerTls>>,
    timeout: Duration,
) -> std::io::Result<CallerStream> {
    let Some(tls) = tls else { return Ok(CallerStream::Plain(stream)) };
    let accepted = tokio::time::timeout(timeout, tls.acceptor().accept(stream)).await;
    Ok(CallerStream::Tls(Box::new(accepted.map_err(|_| std::io::ErrorKind::TimedOut)??)))
}

/// What each address is doing that has connections.
#[derive(Default)]
struct CallerAddresses(Mutex<HashMap<IpAddr, Arc<CallGate>>>);

/// Addresses whose connections ended are forgotten when there are so many.
const ADDRESSES_KEPT: usize = 4_096;

impl CallerAddresses {
    fn gate(&self, address: IpAddr) -> Arc<CallGate> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ADDRESSES_KEPT {
            known.retain(|_, gate| Arc::strong_count(gate) > 1);
        }
        known.entry(network_of(address)).or_default().clone()
    }
}

fn builder(config: &ServerSection) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(config.header_timeout_s));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_have_a_share_of_the_descriptors() {
        assert_eq!(fitting(4096, 1024), 128);
        assert_eq!(fitting(4096, 65_536), 4096);
        assert_eq!(fitting(4096, 4), 1);
    }
}

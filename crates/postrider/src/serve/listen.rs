//! The listening socket: accepts connections up to a limit, serves HTTP/1.1 and HTTP/2, and stops in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::api::PeerAddress;
use crate::config::sections::ServerSection;

/// The pause after a failure to accept a connection, e.g. without a free file handle.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Listening {
    pub(super) addr: SocketAddr,
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<()>,
}

impl Listening {
    pub(super) async fn start(router: Router, config: &ServerSection) -> std::io::Result<Self> {
        let listener = TcpListener::bind(config.listen).await?;
        let addr = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let acceptor = ConnectionListener {
            router,
            builder: builder(config),
            room: Arc::new(Semaphore::new(config.connections_max)),
            first_request_timeout: Duration::from_secs(config.header_timeout_s),
        };
        let task = tokio::spawn(acceptor.run(listener, stopped));
        Ok(Self { addr, stop, task })
    }

    /// Closes the socket. Open requests have `timeout` to finish.
    pub(super) async fn stop(self, timeout: Duration) {
        let _ = self.stop.send(timeout);
        let _ = self.task.await;
    }
}

struct ConnectionListener {
    router: Router,
    builder: Builder<TokioExecutor>,
    room: Arc<Semaphore>,
    first_request_timeout: Duration,
}

impl ConnectionListener {
    async fn run(self, listener: TcpListener, mut stopped: oneshot::Receiver<Duration>) {
        let graceful = GracefulShutdown::new();
        let timeout = loop {
            tokio::select! {
                timeout = &mut stopped => break timeout.unwrap_or_default(),
                stream = self.next(&listener) => match stream {
                    Ok((stream, peer, permit)) => self.serve(stream, peer, permit, &graceful),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        };
        drop(listener);
        let _ = tokio::time::timeout(timeout, graceful.shutdown()).await;
    }

    async fn next(
        &self,
        listener: &TcpListener,
    ) -> std::io::Result<(TcpStream, PeerAddress, OwnedSemaphorePermit)> {
        let closed = |_| std::io::Error::other("no more connections are accepted");
        let permit = self.room.clone().acquire_owned().await.map_err(closed)?;
        let (stream, peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, PeerAddress(peer.ip()), permit))
    }

    fn serve(
        &self,
        stream: TcpStream,
        peer: PeerAddress,
        permit: OwnedSemaphorePermit,
        graceful: &GracefulShutdown,
    ) {
        let router = TowerToHyperService::new(self.router.clone());
        let has_request = Arc::new(AtomicBool::new(false));
        let seen = has_request.clone();
        let service = service_fn(move |mut request: http::Request<_>| {
            seen.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(peer);
            router.call(request)
        });
        let connection = self.builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        let timeout = tokio::time::sleep(self.first_request_timeout);
        tokio::spawn(async move {
            tokio::pin!(connection);
            // The version is unknown before the first bytes, so the timers of HTTP/1.1 and HTTP/2 do not
            // end a connection without any request.
            let ended = tokio::select! {
                ended = &mut connection => ended,
                () = timeout => match has_request.load(Ordering::Relaxed) {
                    true => connection.await,
                    false => return,
                },
            };
            if let Err(error) = ended {
                tracing::debug!(error = %error, "a connection ended early");
            }
            drop(permit);
        });
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

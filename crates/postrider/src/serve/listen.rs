//! The listening socket: takes connections up to a bound, serves HTTP/1.1 and HTTP/2 on each, and
//! ends in order.

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
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::config::sections::ServerSection;

/// After a failure to take a connection (no file handle left, say).
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
            patience: Duration::from_secs(config.header_timeout_s),
        };
        let task = tokio::spawn(acceptor.run(listener, stopped));
        Ok(Self { addr, stop, task })
    }

    /// Closes the socket; requests under way have until `patience` ends.
    pub(super) async fn stop(self, patience: Duration) {
        let _ = self.stop.send(patience);
        let _ = self.task.await;
    }
}

struct ConnectionListener {
    router: Router,
    builder: Builder<TokioExecutor>,
    room: Arc<Semaphore>,
    patience: Duration,
}

impl ConnectionListener {
    async fn run(self, listener: TcpListener, mut stopped: oneshot::Receiver<Duration>) {
        let graceful = GracefulShutdown::new();
        let patience = loop {
            tokio::select! {
                patience = &mut stopped => break patience.unwrap_or_default(),
                stream = self.next(&listener) => match stream {
                    Ok((stream, place)) => self.serve(stream, place, &graceful),
                    Err(error) => {
                        tracing::warn!(%error, "cannot take a connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        };
        drop(listener);
        let _ = tokio::time::timeout(patience, graceful.shutdown()).await;
    }

    async fn next(
        &self,
        listener: &TcpListener,
    ) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
        let closed = |_| std::io::Error::other("no more connections are taken");
        let place = self.room.clone().acquire_owned().await.map_err(closed)?;
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, place))
    }

    fn serve(
        &self,
        stream: TcpStream,
        place: tokio::sync::OwnedSemaphorePermit,
        graceful: &GracefulShutdown,
    ) {
        let router = TowerToHyperService::new(self.router.clone());
        let asked = Arc::new(AtomicBool::new(false));
        let seen = asked.clone();
        let service = service_fn(move |request| {
            seen.store(true, Ordering::Relaxed);
            router.call(request)
        });
        let connection = self.builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        let patience = tokio::time::sleep(self.patience);
        tokio::spawn(async move {
            tokio::pin!(connection);
            // The version is not known before the first bytes, so neither HTTP/1.1's nor HTTP/2's
            // own timer watches over a caller that never asks anything.
            let ended = tokio::select! {
                ended = &mut connection => ended,
                () = patience => match asked.load(Ordering::Relaxed) {
                    true => connection.await,
                    false => return,
                },
            };
            if let Err(error) = ended {
                tracing::debug!(error = %error, "a connection ended early");
            }
            drop(place);
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

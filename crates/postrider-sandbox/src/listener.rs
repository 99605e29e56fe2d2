//! Sockets: TLS with HTTP/2 or HTTP/1.1 by ALPN, and plain HTTP/1.1 or HTTP/2 with prior
//! knowledge. Cuts and closes connections when a fault asks for it; knows nothing of requests.

use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;

use super::service::{self, SandboxState};

/// What was answered on a connection gets this long to leave before the connection is cut, so
/// that a cut takes only the request it is meant for.
const CUT_DELAY: Duration = Duration::from_millis(50);
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// How a request acts on the connection that it came by.
#[derive(Debug, Default)]
pub(super) struct ConnectionControl {
    pub scheme: &'static str,
    cut: AtomicBool,
    go_away: AtomicBool,
    changed: Notify,
    /// For a provider that takes one request at a time until it has accepted one.
    proven: AtomicBool,
    inside: AtomicUsize,
    /// A hash of the credential that the connection is used with, and the second since when.
    pub credential: Mutex<Option<(u64, i64)>>,
    /// The certificate that the client showed.
    pub certificate: OnceLock<Box<[u8]>>,
}

impl ConnectionControl {
    fn new(scheme: &'static str) -> Self {
        Self { scheme, ..Self::default() }
    }

    /// Whether another request may come in beside those that are there.
    pub(super) fn enter(&self) -> bool {
        let alone = self.inside.fetch_add(1, Ordering::SeqCst) == 0;
        let may = alone || self.proven.load(Ordering::SeqCst);
        if !may {
            self.inside.fetch_sub(1, Ordering::SeqCst);
        }
        may
    }

    pub(super) fn leave(&self, accepted: bool) {
        if accepted {
            self.proven.store(true, Ordering::SeqCst);
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// From here on nothing that arrives on this connection is processed.
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    pub(super) fn go_away(&self) {
        self.go_away.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }
}

/// Serves every connection in a task of its own, until the sandbox stops.
pub(super) async fn accept_loop<F>(
    listener: TcpListener,
    mut stop: watch::Receiver<()>,
    serve: impl Fn(TcpStream, watch::Receiver<()>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely: give connections the time to end.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        tokio::spawn(serve(stream, stop.clone()));
    }
}

pub(super) async fn connection(
    state: Arc<SandboxState>,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    stop: watch::Receiver<()>,
) {
    let control = Arc::new(ConnectionControl::new(if tls.is_some() { "https" } else { "http" }));
    match tls {
        Some(acceptor) => {
            let socket = CuttableSocket { stream, control: Arc::clone(&control) };
            let Ok(stream) = acceptor.accept(socket).await else { return };
            let session = stream.get_ref().1;
            let h2 = session.alpn_protocol() == Some(b"h2");
            if let Some(own) = session.peer_certificates().and_then(|chain| chain.first()) {
                let _ = control.certificate.set(own.to_vec().into());
            }
            serve(state, stream, control, h2, stop).await;
        }
        None => {
            let h2 = speaks_http2(&stream).await;
            let socket = CuttableSocket { stream, control: Arc::clone(&control) };
            serve(state, socket, control, h2, stop).await;
        }
    }
}

async fn serve<I>(
    state: Arc<SandboxState>,
    io: I,
    control: Arc<ConnectionControl>,
    h2: bool,
    stop: watch::Receiver<()>,
) where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let streams_max = state.streams_max;
    let of_request = Arc::clone(&control);
    let service = service_fn(move |request| {
        service::handle(Arc::clone(&state), Arc::clone(&of_request), request)
    });
    let io = TokioIo::new(io);
    if h2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .max_concurrent_streams(streams_max)
            .initial_connection_window_size(4 << 20)
            .max_pending_accept_reset_streams(1024)
            .max_local_error_reset_streams(None);
        let connection = pin!(builder.serve_connection(io, service));
        drive(connection, |c| c.graceful_shutdown(), &control, stop).await;
    } else {
        let connection = pin!(http1::Builder::new().serve_connection(io, service));
        drive(connection, |c| c.graceful_shutdown(), &control, stop).await;
    }
}

/// Polls a connection to its end: its own, the one a fault asks for, or the sandbox's.
async fn drive<C: Future>(
    mut connection: Pin<&mut C>,
    close: impl Fn(Pin<&mut C>),
    control: &ConnectionControl,
    mut stop: watch::Receiver<()>,
) {
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = control.changed.notified() => {
                if control.is_cut() {
                    let _ = tokio::time::timeout(CUT_DELAY, connection).await;
                    return;
                }
                if control.go_away.load(Ordering::SeqCst) {
                    close(connection.as_mut());
                }
            }
            _ = stop.changed() => {
                close(connection.as_mut());
                let _ = tokio::time::timeout(CLOSE_DEADLINE, connection).await;
                return;
            }
        }
    }
}

/// Looks at the first bytes without taking them.
async fn speaks_http2(stream: &TcpStream) -> bool {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0";
    let mut seen = [0u8; PREFACE.len()];
    loop {
        match stream.peek(&mut seen).await {
            Ok(len) if len == PREFACE.len() => return seen == PREFACE,
            Ok(len) if len > 0 && PREFACE.starts_with(&seen[..len]) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            _ => return false,
        }
    }
}

/// A TCP stream that ends with a reset instead of a farewell once the connection is cut.
struct CuttableSocket {
    stream: TcpStream,
    control: Arc<ConnectionControl>,
}

impl Drop for CuttableSocket {
    fn drop(&mut self) {
        if self.control.is_cut() {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for CuttableSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CuttableSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

//! Sockets: TLS with HTTP/2 or HTTP/1.1 by ALPN, and plain HTTP/1.1 or HTTP/2 with prior knowledge. Cuts and closes
//! connections for faults. Reads no request.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use super::cuttable_stream::CuttableStream;
use super::service::{self, SandboxState};
use super::tls::HttpsIdentity;

/// The answers on a connection have this long to be sent before it is cut, so that only the wanted request fails.
const CUT_DELAY: Duration = Duration::from_millis(50);
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Lets a request act on its connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionControl {
    pub scheme: &'static str,
    cut: AtomicBool,
    go_away: AtomicBool,
    changed: Notify,
    /// Whether a request was accepted, for a provider that takes one at a time until then.
    proven: AtomicBool,
    inside: AtomicUsize,
    /// A hash of the credential that the connection is used with, and since when.
    pub credential: Mutex<Option<(u64, i64)>>,
    /// The certificate that the client showed.
    pub certificate: OnceLock<Box<[u8]>>,
}

impl ConnectionControl {
    /// Counts a request in, unless it must wait for the one before it.
    pub(super) fn enter(&self) -> bool {
        let is_alone = self.inside.fetch_add(1, Ordering::SeqCst) == 0;
        let has_entered = is_alone || self.proven.load(Ordering::SeqCst);
        if !has_entered {
            self.inside.fetch_sub(1, Ordering::SeqCst);
        }
        has_entered
    }

    pub(super) fn leave(&self, accepted: bool) {
        if accepted {
            self.proven.store(true, Ordering::SeqCst);
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// Later requests on this connection are not processed.
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
            // Probably there is no free file descriptor: wait until connections end.
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
    tls: Option<Arc<HttpsIdentity>>,
    stop: watch::Receiver<()>,
) {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let control = Arc::new(ConnectionControl { scheme, ..ConnectionControl::default() });
    match tls {
        Some(identity) => {
            let Ok(to) = stream.local_addr() else { return };
            let Ok(acceptor) = identity.acceptor(to.ip()) else { return };
            let stream = CuttableStream { stream, control: control.clone() };
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let session = stream.get_ref().1;
            let h2 = session.alpn_protocol() == Some(b"h2");
            if let Some(own) = session.peer_certificates().and_then(|chain| chain.first()) {
                let _ = control.certificate.set(own.to_vec().into());
            }
            serve(state, stream, &control, h2, stop).await;
        }
        None => {
            let h2 = speaks_http2(&stream).await;
            let stream = CuttableStream { stream, control: control.clone() };
            serve(state, stream, &control, h2, stop).await;
        }
    }
}

async fn serve<I>(
    state: Arc<SandboxState>,
    io: I,
    control: &Arc<ConnectionControl>,
    h2: bool,
    stop: watch::Receiver<()>,
) where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let streams_max = state.streams_max;
    let of_request = Arc::clone(control);
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
        drive(connection, |c| c.graceful_shutdown(), control, stop).await;
    } else {
        let connection = pin!(http1::Builder::new().serve_connection(io, service));
        drive(connection, |c| c.graceful_shutdown(), control, stop).await;
    }
}

/// Runs a connection until it ends, a fault ends it or the sandbox stops.
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

/// Reads the first bytes and leaves them in the socket.
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

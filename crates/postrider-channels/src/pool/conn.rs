//! One connection, and the right to send one request on it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ::http::header::HOST;
use ::http::{HeaderValue, Uri};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use tokio::time::{Instant, timeout_at};

use super::connect::BodyBytes;
use super::peer::Peer;
use super::{Endpoint, Request, Response, TransportError, failure};

/// As much of an answer's body as is ever read.
const BODY_READ_MAX: usize = 16 * 1024;

pub(super) enum RequestSender {
    H2(http2::SendRequest<BodyBytes>),
    /// Taken out while its one request is in flight.
    H1(Mutex<Option<http1::SendRequest<BodyBytes>>>),
}

/// What the pool, the driver and the requests know about a connection.
pub(super) struct ConnectionStatus {
    pub(super) in_flight: AtomicUsize,
    /// How many may be in flight: ours or the peer's limit, whichever is lower; 1 for HTTP/1.1.
    pub(super) max: AtomicUsize,
    /// Whether it takes more than one at a time yet.
    pub(super) proven: AtomicBool,
    /// Takes no new requests.
    pub(super) draining: AtomicBool,
    pub(super) born: Instant,
    /// Whether anything came back yet; the peer's limits always come first.
    heard: AtomicBool,
    /// Milliseconds after `born` of the last answer or, before the first, 0.
    last_answer: AtomicU64,
}

pub(super) struct PooledConnection {
    pub(super) sender: RequestSender,
    pub(super) status: Arc<ConnectionStatus>,
}

impl ConnectionStatus {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            in_flight: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            proven: AtomicBool::new(true),
            draining: AtomicBool::new(false),
            born: Instant::now(),
            heard: AtomicBool::new(false),
            last_answer: AtomicU64::new(0),
        })
    }

    /// How many requests it takes at this moment.
    pub(super) fn room(&self) -> usize {
        if self.proven.load(Ordering::SeqCst) { self.max.load(Ordering::SeqCst) } else { 1 }
    }

    /// Whether the peer has told how many it takes. One that answers has.
    pub(super) fn is_limit_known(&self) -> bool {
        self.max.load(Ordering::SeqCst) > 1 || self.heard.load(Ordering::SeqCst)
    }

    pub(super) fn last_answer(&self) -> Instant {
        self.born + std::time::Duration::from_millis(self.last_answer.load(Ordering::Relaxed))
    }

    fn answered(&self) {
        let after = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_answer.store(after, Ordering::Relaxed);
        self.heard.store(true, Ordering::Relaxed);
    }

    /// A request timed out. A connection on which nothing at all came back since it was sent is
    /// taken for dead.
    fn timed_out(&self, sent: Instant) {
        if self.last_answer() < sent {
            self.draining.store(true, Ordering::SeqCst);
        }
    }
}

impl PooledConnection {
    pub(super) fn is_http2(&self) -> bool {
        matches!(self.sender, RequestSender::H2(_))
    }

    pub(super) fn is_usable(&self) -> bool {
        if self.status.draining.load(Ordering::SeqCst) {
            return false;
        }
        match &self.sender {
            RequestSender::H2(sender) => !sender.is_closed(),
            RequestSender::H1(sender) => {
                let sender = sender.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                // One that is taken out is judged when it comes back.
                sender.as_ref().is_none_or(|sender| !sender.is_closed())
            }
        }
    }
}

/// The right to send one request. Held until the answer is read, then given back by dropping it.
pub struct Slot {
    conn: Arc<PooledConnection>,
    peer: Arc<Peer>,
}

impl Slot {
    /// The caller has counted the request in already.
    pub(super) fn new(conn: Arc<PooledConnection>, peer: Arc<Peer>) -> Self {
        Self { conn, peer }
    }

    /// Sends the request and reads the answer, at most 16 KiB of its body.
    pub async fn send(
        self,
        endpoint: &Endpoint,
        request: Request,
        deadline: Instant,
    ) -> Result<Response, TransportError> {
        match &self.conn.sender {
            RequestSender::H2(sender) => {
                let request = build(endpoint.uri.clone(), request);
                let answer = sender.clone().try_send_request(request);
                self.receive(answer, deadline).await
            }
            RequestSender::H1(home) => self.send_http1(home, endpoint, request, deadline).await,
        }
    }

    async fn send_http1(
        &self,
        home: &Mutex<Option<http1::SendRequest<BodyBytes>>>,
        endpoint: &Endpoint,
        mut request: Request,
        deadline: Instant,
    ) -> Result<Response, TransportError> {
        let taken = home.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let Some(mut sender) = taken else {
            return Err(TransportError::Replay { code: "not_written" });
        };
        if !matches!(timeout_at(deadline, sender.ready()).await, Ok(Ok(()))) {
            return Err(TransportError::Replay { code: "not_written" });
        }
        if let Ok(host) = HeaderValue::from_str(endpoint.origin().authority()) {
            request.headers.insert(HOST, host);
        }
        let path = endpoint.uri.path_and_query().cloned();
        let request = build(path.map_or_else(Uri::default, Uri::from), request);
        let answer = self.receive(sender.try_send_request(request), deadline).await;
        // Only a connection whose answer was read to its end becomes ready again.
        if answer.is_ok() && matches!(timeout_at(deadline, sender.ready()).await, Ok(Ok(()))) {
            *home.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(sender);
        }
        answer
    }

    /// A connection that the peer is leaving gets no more requests, so that a replay goes to another
    /// one. A refused stream means that only within the limits that the peer has told.
    fn failed(&self, error: TransportError, within_limits: bool) -> TransportError {
        let status = &self.conn.status;
        let leaving = match error {
            TransportError::Replay { code: "refused_stream" } => {
                status.heard.store(true, Ordering::SeqCst);
                within_limits
            }
            TransportError::Replay { .. } => true,
            _ => false,
        };
        if leaving {
            status.draining.store(true, Ordering::SeqCst);
        }
        error
    }

    async fn receive<B>(
        &self,
        answer: impl Future<
            Output = Result<::http::Response<Incoming>, hyper::client::conn::TrySendError<B>>,
        >,
        deadline: Instant,
    ) -> Result<Response, TransportError> {
        let sent = Instant::now();
        // Before the peer was heard, its limits are only guessed.
        let within_limits = self.conn.status.heard.load(Ordering::SeqCst);
        let answer = match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.failed(failure::of_send(error), within_limits)),
            Err(_) => {
                self.conn.status.timed_out(sent);
                return Err(TransportError::Ambiguous { code: "timeout" });
            }
        };
        self.conn.status.answered();
        let (head, body) = answer.into_parts();
        if head.status.is_success() && !self.conn.status.proven.swap(true, Ordering::SeqCst) {
            self.peer.wake_all();
        }
        let body = read(body, deadline).await;
        Ok(Response { status: head.status, headers: head.headers, body })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let RequestSender::H1(home) = &self.conn.sender {
            // Not put back means that it cannot be used again.
            let home = home.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if home.is_none() {
                self.conn.status.draining.store(true, Ordering::SeqCst);
            }
        }
        self.conn.status.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.peer.wake_one();
    }
}

fn build(uri: Uri, request: Request) -> ::http::Request<BodyBytes> {
    let mut built = ::http::Request::new(Full::new(request.body));
    *built.method_mut() = request.method;
    *built.uri_mut() = uri;
    *built.headers_mut() = request.headers;
    built
}

/// The beginning of a body. The status has come: a body that breaks off or dawdles changes nothing.
async fn read(mut body: Incoming, deadline: Instant) -> Bytes {
    use hyper::body::Body as _;
    let mut kept = BytesMut::new();
    while !body.is_end_stream() && kept.len() < BODY_READ_MAX {
        match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    kept.extend_from_slice(&data[..data.len().min(BODY_READ_MAX - kept.len())]);
                }
            }
            _ => break,
        }
    }
    kept.freeze()
}

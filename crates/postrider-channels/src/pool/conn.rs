//! One connection, and the right to send one request on it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

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
use crate::credential_echo::SentCredentials;

/// The most that is read of an answer's body.
const BODY_READ_MAX: usize = 16 * 1024;
/// How long the body is awaited once the status is known.
const BODY_AWAITED_FOR: Duration = Duration::from_secs(1);
/// How long a connection that was read to its end may take to be ready for the next request.
const READY_AWAITED_FOR: Duration = Duration::from_millis(100);
/// For so long a new connection belongs to the caller for whom it was opened.
const RESERVED_FOR: Duration = Duration::from_secs(1);

pub(super) enum RequestSender {
    H2(http2::SendRequest<BodyBytes>),
    /// Taken out while its one request is in flight.
    H1(Mutex<Option<http1::SendRequest<BodyBytes>>>),
}

/// What the pool, the driver and the requests know about a connection.
pub(super) struct ConnectionStatus {
    pub(super) in_flight: AtomicUsize,
    /// The limit of requests in flight: the lower of ours and the peer's; 1 for HTTP/1.1.
    pub(super) max: AtomicUsize,
    /// Whether a request was accepted, so that more than one at a time may be sent.
    pub(super) proven: AtomicBool,
    /// Takes no new requests.
    pub(super) draining: AtomicBool,
    pub(super) born: Instant,
    /// Tells connections apart.
    id: u64,
    /// Whether it is in the list of unused connections, and under which time of use.
    pub(super) listed: AtomicBool,
    listed_use: AtomicU64,
    /// Whether the peer has sent anything; it always sends its limits first.
    heard: AtomicBool,
    /// The time of the last answer, in microseconds after `born`; 0 before the first.
    last_answer: AtomicU64,
}

pub(super) struct PooledConnection {
    pub(super) sender: RequestSender,
    pub(super) status: Arc<ConnectionStatus>,
}

impl ConnectionStatus {
    pub(super) fn new(max: usize) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            listed: AtomicBool::new(false),
            listed_use: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            proven: AtomicBool::new(true),
            draining: AtomicBool::new(false),
            born: Instant::now(),
            heard: AtomicBool::new(false),
            last_answer: AtomicU64::new(0),
        })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::SeqCst) == 0
    }

    /// How many requests may be in flight now.
    pub(super) fn room(&self) -> usize {
        if self.proven.load(Ordering::SeqCst) { self.max.load(Ordering::SeqCst) } else { 1 }
    }

    /// Whether the peer has sent its limit. A peer that answers has sent it.
    pub(super) fn is_limit_known(&self) -> bool {
        self.max.load(Ordering::SeqCst) > 1 || self.heard.load(Ordering::SeqCst)
    }

    pub(super) fn last_answer(&self) -> Instant {
        self.born + Duration::from_micros(self.last_answer.load(Ordering::Relaxed))
    }

    /// The time of the last use, comparable between connections.
    pub(super) fn last_use(&self) -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        micros(self.last_answer().saturating_duration_since(*START))
    }

    /// Notes the time under which it is listed now.
    pub(super) fn list_now(&self) -> (u64, u64) {
        self.listed_use.store(self.last_use(), Ordering::Relaxed);
        self.listed_as()
    }

    pub(super) fn listed_as(&self) -> (u64, u64) {
        (self.listed_use.load(Ordering::Relaxed), self.id)
    }

    /// Whether a caller for whom it was opened has not come for it yet.
    pub(super) fn is_reserved(&self) -> bool {
        self.last_answer.load(Ordering::Relaxed) == 0 && self.born.elapsed() < RESERVED_FOR
    }

    fn answered(&self, now: Instant) {
        self.last_answer.store(micros(now - self.born), Ordering::Relaxed);
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Drains the connection if nothing at all has arrived since the request that timed out was sent.
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
                // A sender in use is checked when it is put back.
                sender.as_ref().is_none_or(|sender| !sender.is_closed())
            }
        }
    }
}

/// The right to send one request, which is already counted as in flight. It is returned by dropping it, after the
/// answer was read.
pub struct Slot {
    pub(super) conn: Arc<PooledConnection>,
    pub(super) peer: Arc<Peer>,
}

impl Slot {
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
        // A connection becomes ready again only after its answer was read to the end.
        let ready_by = deadline.min(Instant::now() + READY_AWAITED_FOR);
        if answer.is_ok() && matches!(timeout_at(ready_by, sender.ready()).await, Ok(Ok(()))) {
            *home.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(sender);
        }
        answer
    }

    /// Drains a connection that the peer is closing, so that a replay uses another one. A refused stream is a sign
    /// of that only if the request was within the limits that the peer has sent.
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
        // Before the peer has sent anything, its limits are a guess.
        let within_limits = self.conn.status.heard.load(Ordering::SeqCst);
        let answer = match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.failed(failure::of_send(error), within_limits)),
            Err(_) => {
                self.conn.status.timed_out(sent);
                return Err(TransportError::Ambiguous { code: "timeout" });
            }
        };
        let now = Instant::now();
        self.conn.status.answered(now);
        self.peer.answered(now);
        let (head, body) = answer.into_parts();
        if head.status.is_success() && !self.conn.status.proven.swap(true, Ordering::SeqCst) {
            self.peer.wake_all();
        }
        let body = read(body, deadline.min(now + BODY_AWAITED_FOR)).await;
        let credentials = SentCredentials::default();
        Ok(Response { status: head.status, headers: head.headers, body, credentials })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let RequestSender::H1(home) = &self.conn.sender {
            // A sender that was not put back cannot be used again.
            let home = home.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if home.is_none() {
                self.conn.status.draining.store(true, Ordering::SeqCst);
            }
        }
        let was_last = self.conn.status.in_flight.fetch_sub(1, Ordering::SeqCst) == 1;
        self.peer.ended(&self.conn.status, was_last);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn build(uri: Uri, request: Request) -> ::http::Request<BodyBytes> {
    let mut built = ::http::Request::new(Full::new(request.body));
    *built.method_mut() = request.method;
    *built.uri_mut() = uri;
    *built.headers_mut() = request.headers;
    built
}

/// The beginning of a body. A body that is cut off or late does not matter: the status has already arrived.
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

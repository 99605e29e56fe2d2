//! One request from its arrival to its answer: its provider checks it, it is counted, then it is answered, with its
//! fault if it has one. Knows no provider and no socket.

use std::any::Any;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::Value;

use super::answer::FakeAnswer;
use super::body::{self, BodyReadError, FakeBody};
use super::control;
use super::fakes::{
    self, CheckedRequest, FakeCall, FakeEntry, FakeKind, FakeProvider, RejectedRequest,
};
use super::fault::Fault;
use super::inbox::next_answers::NextAnswers;
use super::inbox::{Inbox, page};
use super::limit::SandboxLimits;
use super::listener::ConnectionControl;
use super::profile::{FaultInput, FaultProfile};
use super::received::{AttemptEnding, FakeAttempt, ReceivedRequests};
use super::receiver::{LastRequest, Receiver, ReceiverRegistry};
use crate::correlation::CorrelationId;

const HANG: Duration = Duration::from_secs(60);
const HUGE_LEN: usize = 32 << 20;
static NOISE: [u8; 16 * 1024] = [b'x'; 16 * 1024];
const SIDE_CALL_BODY_MAX: usize = 64 * 1024;

/// The state that all requests share.
pub(super) struct SandboxState {
    pub(crate) seed: u64,
    pub(crate) streams_max: u32,
    pub(crate) fakes: Vec<(&'static FakeEntry, Box<dyn FakeProvider>)>,
    pub(crate) receivers: Arc<ReceiverRegistry>,
    pub(crate) received: Arc<ReceivedRequests>,
    /// What was received, with its content.
    pub(crate) inbox: Inbox,
    /// Answers that a person ordered.
    pub(crate) next_answers: NextAnswers,
    /// Calls to try, one per channel, which the page of an empty inbox shows.
    pub(crate) samples: OnceLock<Value>,
    pub(crate) limits: SandboxLimits,
    pub(crate) profile: RwLock<Arc<FaultProfile>>,
    pub(crate) ca_pem: String,
    /// `https://host:port` and `http://host:port`, once the sockets are open.
    pub(crate) origins: OnceLock<(String, String)>,
    /// How far the providers' clock is ahead of this machine's.
    pub(crate) clock_offset_s: i64,
}

/// No answer: the stream is reset, or over HTTP/1.1 the connection closed.
#[derive(Debug, thiserror::Error)]
#[error("cut by the sandbox")]
pub(super) struct CutStream(#[source] h2::Error);

impl CutStream {
    fn unprocessed() -> Self {
        Self(h2::Reason::REFUSED_STREAM.into())
    }

    fn abrupt() -> Self {
        Self(h2::Reason::INTERNAL_ERROR.into())
    }
}

pub(super) async fn handle(
    state: Arc<SandboxState>,
    connection: Arc<ConnectionControl>,
    request: Request<Incoming>,
) -> Result<Response<FakeBody>, CutStream> {
    let date = state.shifted_date();
    let mut answered = handle_now(&state, &connection, request).await;
    if let (Ok(response), Some(date)) = (&mut answered, date) {
        response.headers_mut().insert(header::DATE, date);
    }
    answered
}

async fn handle_now(
    state: &SandboxState,
    connection: &ConnectionControl,
    request: Request<Incoming>,
) -> Result<Response<FakeBody>, CutStream> {
    let (parts, body) = request.into_parts();
    let call = FakeCall { state, connection, parts: &parts, body: &Bytes::new() };
    if let Some(fake) = state.fakes().find(|fake| fake.is_side_call(&call)) {
        let body = body::read(body, SIDE_CALL_BODY_MAX).await.map_err(|_| CutStream::abrupt())?;
        return Ok(fake.answer_side_call(&FakeCall { body: &body, ..call }).into());
    }
    if parts.uri.path().starts_with("/sandbox") {
        return Ok(control::handle(state, connection.scheme, &parts, body).await);
    }
    if let Some(file) = page::answer(&parts) {
        return Ok(file.into());
    }
    if connection.is_cut() {
        return Err(CutStream::unprocessed());
    }
    let found = state.fakes.iter().find(|(_, fake)| fake.serves(parts.uri.path()));
    let Some((entry, fake)) = found else {
        let answer = FakeAnswer::text(404, "the sandbox has no such provider; see GET /sandbox\n");
        let kind = fakes::http::ENTRY.kind;
        return Ok(state.reject(kind, *RejectedRequest::request(answer)).into());
    };
    if !fake.is_serial(connection) {
        return answer(state, connection, entry, &**fake, parts, body).await;
    }
    if !connection.enter() {
        return Err(CutStream::unprocessed());
    }
    let answered = answer(state, connection, entry, &**fake, parts, body).await;
    connection.leave(answered.as_ref().is_ok_and(|response| response.status().is_success()));
    answered
}

async fn answer(
    state: &SandboxState,
    connection: &ConnectionControl,
    entry: &FakeEntry,
    fake: &dyn FakeProvider,
    parts: Parts,
    body: Incoming,
) -> Result<Response<FakeBody>, CutStream> {
    let call = FakeCall { state, connection, parts: &parts, body: &Bytes::new() };
    let (checked, body) = match body::read(body, entry.body_max).await {
        Ok(body) => (fake.check(&FakeCall { body: &body, ..call }), body),
        Err(BodyReadError::TooLarge) => {
            (Err(RejectedRequest::request(fake.too_large(&call))), Bytes::new())
        }
        Err(BodyReadError::Broken) => return Err(CutStream::abrupt()),
    };
    let uri = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let (method, headers) = (parts.method, parts.headers);
    match checked {
        Ok(mut request) => {
            let body = std::mem::take(&mut request.content);
            let received = Arc::new(LastRequest { method, uri, headers, body });
            request.receiver.remember(&received);
            settle(state, connection, fake, request, received).await
        }
        Err(rejected) => {
            let answer = state.reject(entry.kind, *rejected);
            if !answer.status.is_success() {
                let request = || LastRequest { method, uri, headers, body };
                let why = String::from_utf8_lossy(&answer.body);
                state.inbox.reject(entry.kind, request, answer.status.as_u16(), &why);
            }
            Ok(answer.into())
        }
    }
}

async fn settle(
    state: &SandboxState,
    connection: &ConnectionControl,
    fake: &dyn FakeProvider,
    request: CheckedRequest,
    received: Arc<LastRequest>,
) -> Result<Response<FakeBody>, CutStream> {
    let attempt = state.note_arrival(&request.receiver, &request.id, Some(received));
    // Held until the answer is complete.
    let permit = state.limits.enter(attempt.since_start_ms);
    if let Some(wait) = state.limits.wait(attempt.since_start_ms) {
        tokio::time::sleep(wait).await;
    }
    let fault = state.fault_for(&request.receiver, &request.id, &attempt, permit.is_some());
    let accept = || state.accept(connection, fake, &request, &attempt);
    match fault {
        Fault::Accept => accept(),
        Fault::Slow { delay_ms } => {
            tokio::time::sleep(Duration::from_millis(delay_ms.into())).await;
            accept()
        }
        Fault::GoAway => {
            let answer = accept();
            connection.go_away();
            answer
        }
        Fault::Status { code, retry_after_s } => {
            Ok(state.refuse(&attempt, fake.refuse(&request, code, retry_after_s)).into())
        }
        Fault::Redirect => {
            let answer = FakeAnswer::empty(307).with("location", "/sandbox/elsewhere");
            Ok(state.refuse(&attempt, answer).into())
        }
        Fault::HugeBody => {
            let answer = FakeAnswer::empty(500).with("content-length", &HUGE_LEN.to_string());
            let noise = std::iter::repeat_n(Bytes::from_static(&NOISE), HUGE_LEN / NOISE.len());
            Ok(Response::from(state.refuse(&attempt, answer)).map(|_| body::in_pieces(noise)))
        }
        Fault::Refused => {
            state.end(&attempt, AttemptEnding::Unprocessed);
            Err(CutStream::unprocessed())
        }
        Fault::Hang => {
            state.end(&attempt, AttemptEnding::Unprocessed);
            tokio::time::sleep(HANG).await;
            Err(CutStream::abrupt())
        }
        Fault::Drip => Ok(accept()?.map(|_| body::drip(HANG))),
        Fault::ResetBefore => state.cut(connection, &attempt, AttemptEnding::Unprocessed).await,
        Fault::ResetAfter => {
            state.cut(connection, &attempt, AttemptEnding::AcceptedUnanswered).await
        }
    }
}

impl SandboxState {
    /// The time by the providers' own clock.
    pub(crate) fn now_s(&self) -> i64 {
        now_s().saturating_add(self.clock_offset_s)
    }

    /// The header `Date`, if the providers' clock differs from this machine's.
    fn shifted_date(&self) -> Option<HeaderValue> {
        let at = jiff::Timestamp::from_second(self.now_s()).ok()?;
        let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok()?;
        HeaderValue::try_from(text).ok().filter(|_| self.clock_offset_s != 0)
    }

    pub(crate) fn profile(&self) -> Arc<FaultProfile> {
        Arc::clone(&self.profile.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn fakes(&self) -> impl Iterator<Item = &dyn FakeProvider> {
        self.fakes.iter().map(|(_, fake)| &**fake)
    }

    /// The fake of this type.
    pub(crate) fn fake<F: FakeProvider>(&self) -> Option<&F> {
        self.fakes().find_map(|fake| (fake as &dyn Any).downcast_ref())
    }

    pub(crate) fn http_origin(&self) -> &str {
        self.origins.get().map_or("", |(_, http)| http)
    }

    /// The origin of the TLS socket, `https://host:port`.
    pub(crate) fn https_origin(&self) -> &str {
        self.origins.get().map_or("", |(https, _)| https)
    }

    /// Counts an attempt, and shows it in the inbox.
    fn note_arrival(
        &self,
        receiver: &Receiver,
        id: &CorrelationId,
        request: Option<Arc<LastRequest>>,
    ) -> FakeAttempt {
        let mut attempt = self.received.begin(id.clone(), receiver);
        attempt.inbox = self.inbox.begin(receiver, id, request);
        attempt
    }

    /// Notes how an attempt ended. Call it before the answer is sent.
    pub(crate) fn end(&self, attempt: &FakeAttempt, ending: AttemptEnding) {
        self.received.end(attempt, ending);
        self.inbox.end(attempt.inbox, ending);
    }

    /// Begins an attempt and decides on its fault.
    pub(crate) fn begin(&self, receiver: &Receiver, id: &CorrelationId) -> (FakeAttempt, Fault) {
        let attempt = self.note_arrival(receiver, id, None);
        let is_within_limits = self.limits.enter(attempt.since_start_ms).is_some();
        let fault = self.fault_for(receiver, id, &attempt, is_within_limits);
        (attempt, fault)
    }

    fn fault_for(
        &self,
        receiver: &Receiver,
        id: &CorrelationId,
        attempt: &FakeAttempt,
        is_within_limits: bool,
    ) -> Fault {
        if !is_within_limits {
            return Fault::Status { code: 429, retry_after_s: Some(1) };
        }
        if let Some(fault) = self.next_answers.take(receiver.kind) {
            self.inbox.note_order(attempt.inbox, fault);
            return fault;
        }
        if let Some(fault) = receiver.scripted(attempt.number) {
            return fault;
        }
        let input = FaultInput {
            kind: receiver.kind,
            name: &receiver.name,
            id_hash: id.stable_hash(self.seed),
            target_hash: receiver.hash,
            attempt: attempt.number,
            since_start_ms: attempt.since_start_ms,
        };
        match &receiver.behaviour.profile {
            Some(own) => own.fault_for(&input),
            None => self.profile().fault_for(&input),
        }
    }

    fn accept(
        &self,
        connection: &ConnectionControl,
        fake: &dyn FakeProvider,
        request: &CheckedRequest,
        attempt: &FakeAttempt,
    ) -> Result<Response<FakeBody>, CutStream> {
        if connection.is_cut() {
            self.end(attempt, AttemptEnding::Unprocessed);
            return Err(CutStream::unprocessed());
        }
        let message_id = request.id.stable_hash(u64::from(attempt.number));
        let answer = fake.accept(self, request, message_id);
        self.end(attempt, AttemptEnding::Accepted { status: answer.status.as_u16() });
        Ok(answer.into())
    }

    /// Counts a request that did not pass its checks.
    fn reject(&self, kind: FakeKind, rejected: RejectedRequest) -> FakeAnswer {
        let status = rejected.answer.status;
        // A request that only validates, and is in order, is neither a message nor a failure.
        if !status.is_success() {
            let now = self.received.since_start_ms();
            self.received.counts.failed(kind, now, rejected.failure, status.as_u16());
        }
        rejected.answer
    }

    fn refuse(&self, attempt: &FakeAttempt, answer: FakeAnswer) -> FakeAnswer {
        let (status, retry_after_s) = (answer.status.as_u16(), answer.retry_after_s);
        self.end(attempt, AttemptEnding::Refused { status, retry_after_s });
        answer
    }

    async fn cut(
        &self,
        connection: &ConnectionControl,
        attempt: &FakeAttempt,
        ending: AttemptEnding,
    ) -> Result<Response<FakeBody>, CutStream> {
        // If another request cut the connection before, this one counts as not processed.
        let ending = if connection.is_cut() { AttemptEnding::Unprocessed } else { ending };
        self.end(attempt, ending);
        connection.cut();
        // The connection normally ends during this sleep. The error is for a request that outlives it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Err(CutStream::abrupt())
    }
}

pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

pub(crate) fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

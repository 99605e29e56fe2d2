//! One request from its arrival to its answer: checked by its receiver, counted, then met by the
//! fault that is its lot, if any. Knows no service's manners and no socket.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use jiff::fmt::rfc2822::DateTimePrinter;

use super::api::Api;
use super::apns;
use super::apple::Apple;
use super::body::{Outgoing, ReadError};
use super::certificate::Certificates;
use super::chat;
use super::control;
use super::correlation::Correlation;
use super::counts::Flaw;
use super::fault::Fault;
use super::fcm;
use super::flavour::{Answer, Refusal};
use super::google::Google;
use super::hook;
use super::limit::Limits;
use super::listener::Line;
use super::mailapi;
use super::profile::{Draw, Profile};
use super::push;
use super::question;
use super::received::{Attempt, Ending, Received};
use super::sms;
use super::target::{Detail, Kind, Target, Targets};
use super::vapid::Verifier;

const HANG: Duration = Duration::from_secs(60);
const HUGE_LEN: usize = 32 << 20;

/// Everything that the requests share.
pub(super) struct App {
    pub seed: u64,
    pub streams_max: u32,
    pub targets: Arc<Targets>,
    pub received: Arc<Received>,
    pub verifier: Verifier,
    pub google: Google,
    pub apple: Apple,
    pub certificates: Certificates,
    pub limits: Limits,
    pub profile: RwLock<Arc<Profile>>,
    /// For webhook receivers that have no secret of their own.
    pub default_secret: Option<hmac::Key>,
    pub ca_pem: String,
    /// `https://host:port` and `http://host:port`, once the sockets are open.
    pub origins: OnceLock<(String, String)>,
    /// How far the providers' clock is ahead of this machine's.
    pub clock_offset_s: i64,
}

/// A request that passed its receiver's checks.
pub(super) struct Arrival {
    pub target: Arc<Target>,
    pub id: Correlation,
    pub ttl_s: u32,
    /// Who answers, where it is not the target itself.
    pub api: Option<Api>,
}

/// A request that did not pass.
pub(super) struct Refused {
    pub kind: Kind,
    pub flaw: Flaw,
    pub answer: Answer,
}

/// No answer: the stream is reset, or over HTTP/1.1 the connection closed.
#[derive(Debug, thiserror::Error)]
#[error("cut by the sandbox")]
pub(super) struct Cut(#[source] h2::Error);

impl Cut {
    fn unprocessed() -> Self {
        Self(h2::Reason::REFUSED_STREAM.into())
    }

    fn abrupt() -> Self {
        Self(h2::Reason::INTERNAL_ERROR.into())
    }
}

pub(super) async fn handle(
    app: Arc<App>,
    line: Arc<Line>,
    request: Request<Incoming>,
) -> Result<Response<Outgoing>, Cut> {
    let date = app.shifted_date();
    let mut answered = handle_now(app, line, request).await;
    if let (Ok(response), Some(date)) = (&mut answered, date) {
        response.headers_mut().insert(header::DATE, date);
    }
    answered
}

async fn handle_now(
    app: Arc<App>,
    line: Arc<Line>,
    request: Request<Incoming>,
) -> Result<Response<Outgoing>, Cut> {
    let (parts, body) = request.into_parts();
    if let Some(answer) = question::answer(&app, &parts) {
        return Ok(answer.into());
    }
    if parts.uri.path().starts_with("/sandbox") {
        return Ok(control::handle(&app, &parts, body).await);
    }
    if parts.uri.path() == "/token" {
        return fcm::token(&app, &parts, body).await.map(Into::into).map_err(|_| Cut::abrupt());
    }
    if line.is_cut() {
        return Err(Cut::unprocessed());
    }
    if !parts.uri.path().starts_with("/3/") {
        return answer(&app, &line, parts, body).await;
    }
    // Apple's: one at a time until one was accepted, unless a certificate says who it is.
    if line.certificate.get().is_some() {
        return answer(&app, &line, parts, body).await;
    }
    if !line.enter() {
        return Err(Cut::unprocessed());
    }
    let answered = answer(&app, &line, parts, body).await;
    line.leave(answered.as_ref().is_ok_and(|response| response.status().is_success()));
    answered
}

async fn answer(
    app: &App,
    line: &Line,
    parts: Parts,
    body: Incoming,
) -> Result<Response<Outgoing>, Cut> {
    match receive(app, line, parts, body).await {
        Ok(Ok(arrival)) => settle(app, line, arrival).await,
        Ok(Err(refused)) => {
            let status = refused.answer.status.as_u16();
            let now = app.received.since_start_ms();
            // What was only to be looked at, and is in order, is neither a message nor a flaw.
            if !refused.answer.status.is_success() {
                app.received.counts.flawed(refused.kind, now, refused.flaw, status);
            }
            Ok(refused.answer.into())
        }
        Err(_) => Err(Cut::abrupt()),
    }
}

/// The outer error: the request broke off while it was read.
async fn receive(
    app: &App,
    line: &Line,
    parts: Parts,
    body: Incoming,
) -> Result<Result<Arrival, Refused>, ReadError> {
    let path = parts.uri.path();
    if path.starts_with("/push/") {
        push::receive(app, line.scheme, parts, body).await
    } else if path.starts_with("/hook/") {
        hook::receive(app, parts, body).await
    } else if path.starts_with("/http/") {
        hook::receive_plain(app, parts, body).await
    } else if path.starts_with("/3/") {
        apns::receive(app, line, parts, body).await
    } else if fcm::project_of(path).is_some() {
        fcm::receive(app, parts, body).await
    } else if path == "/v2/email/outbound-emails" {
        mailapi::receive(app, parts, body, Api::Ses).await
    } else if path == "/v3/mail/send" {
        mailapi::receive(app, parts, body, Api::SendGrid).await
    } else if sms::account_of(path).is_some() {
        sms::receive(app, parts, body).await
    } else if let Some((api, name)) = chat::hook_of(path) {
        chat::receive(app, parts, body, api, &name).await
    } else {
        let answer = Answer::text(404, "the sandbox has no such provider; see GET /sandbox\n");
        Ok(Err(Refused { kind: Kind::Http, flaw: Flaw::Request, answer }))
    }
}

async fn settle(app: &App, line: &Line, arrival: Arrival) -> Result<Response<Outgoing>, Cut> {
    let attempt = app.received.begin(arrival.id.clone(), &arrival.target);
    let place = app.limits.enter(attempt.since_start_ms);
    if let Some(wait) = app.limits.wait(attempt.since_start_ms) {
        tokio::time::sleep(wait).await;
    }
    let fault = match place {
        Some(_) => app.fault_for(&arrival, &attempt),
        None => Fault::Status { code: 429, retry_after_s: Some(1) },
    };
    match fault {
        Fault::Accept => app.accept(line, &arrival, &attempt),
        Fault::Slow { delay_ms } => {
            tokio::time::sleep(Duration::from_millis(delay_ms.into())).await;
            app.accept(line, &arrival, &attempt)
        }
        Fault::GoAway => {
            let answer = app.accept(line, &arrival, &attempt);
            line.go_away();
            answer
        }
        Fault::Status { code, retry_after_s } => {
            Ok(app.refuse(&attempt, arrival.refusal(code, retry_after_s)).into())
        }
        Fault::Redirect => {
            let mut answer = Answer::empty(307);
            answer.set(header::LOCATION, "/sandbox/elsewhere");
            Ok(app.refuse(&attempt, answer).into())
        }
        Fault::HugeBody => {
            let mut response: Response<_> = app.refuse(&attempt, Answer::empty(500)).into();
            *response.body_mut() = Outgoing::Noise(HUGE_LEN);
            Ok(response)
        }
        Fault::Refused => {
            app.received.end(&attempt, Ending::Unprocessed);
            Err(Cut::unprocessed())
        }
        Fault::Hang => {
            app.received.end(&attempt, Ending::Unprocessed);
            tokio::time::sleep(HANG).await;
            Err(Cut::abrupt())
        }
        Fault::ResetBefore => app.cut(line, &attempt, Ending::Unprocessed).await,
        Fault::ResetAfter => app.cut(line, &attempt, Ending::AcceptedUnanswered).await,
    }
}

impl App {
    /// The second that the providers have by their own clock.
    pub(super) fn now_s(&self) -> i64 {
        now_s().saturating_add(self.clock_offset_s)
    }

    /// `Date` by a clock that is not this machine's.
    fn shifted_date(&self) -> Option<HeaderValue> {
        let at = jiff::Timestamp::from_second(self.now_s()).ok()?;
        let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok()?;
        HeaderValue::try_from(text).ok().filter(|_| self.clock_offset_s != 0)
    }

    pub(super) fn profile(&self) -> Arc<Profile> {
        Arc::clone(&self.profile.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn fault_for(&self, arrival: &Arrival, attempt: &Attempt) -> Fault {
        let target = &arrival.target;
        if let Some(fault) = target.scripted(attempt.number) {
            return fault;
        }
        let draw = Draw {
            kind: target.kind,
            id_hash: arrival.id.stable_hash(self.seed),
            target_hash: target.hash,
            attempt: attempt.number,
            since_start_ms: attempt.since_start_ms,
        };
        match &target.setup.profile {
            Some(own) => own.fault_for(&draw),
            None => self.profile().fault_for(&draw),
        }
    }

    fn accept(
        &self,
        line: &Line,
        arrival: &Arrival,
        attempt: &Attempt,
    ) -> Result<Response<Outgoing>, Cut> {
        if line.is_cut() {
            self.received.end(attempt, Ending::Unprocessed);
            return Err(Cut::unprocessed());
        }
        let answer = arrival.acceptance(self, attempt);
        self.received.end(attempt, Ending::Accepted { status: answer.status.as_u16() });
        Ok(answer.into())
    }

    fn refuse(&self, attempt: &Attempt, answer: Answer) -> Answer {
        let (status, retry_after_s) = (answer.status.as_u16(), answer.retry_after_s());
        self.received.end(attempt, Ending::Refused { status, retry_after_s });
        answer
    }

    async fn cut(
        &self,
        line: &Line,
        attempt: &Attempt,
        ending: Ending,
    ) -> Result<Response<Outgoing>, Cut> {
        // Another request may have cut the line already; then nobody knows what this one was.
        let ending = if line.is_cut() { Ending::Unprocessed } else { ending };
        self.received.end(attempt, ending);
        line.cut();
        // The connection dies under this request; the error is for one that outlives it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Err(Cut::abrupt())
    }
}

impl Arrival {
    fn acceptance(&self, app: &App, attempt: &Attempt) -> Answer {
        if self.api == Some(Api::Apns) {
            return apns::accept(&self.id);
        }
        if let Some(api) = self.api {
            return api.accept(self.id.stable_hash(u64::from(attempt.number)));
        }
        match &self.target.detail {
            Detail::Push(subscription) => {
                let origin = app.origins.get().map_or("", |(https, _)| https);
                let id = self.id.stable_hash(u64::from(attempt.number));
                subscription.flavour.accept(&format!("{origin}/m/{id:016x}"), self.ttl_s)
            }
            _ => Answer::empty(200),
        }
    }

    fn refusal(&self, code: u16, retry_after_s: Option<u32>) -> Answer {
        if let Some(api) = self.api {
            return api.refuse(code, retry_after_s);
        }
        if let Detail::Push(subscription) = &self.target.detail {
            return subscription.flavour.refuse(match code {
                404 => Refusal::NotFound,
                410 => Refusal::Gone,
                code => Refusal::Status { code, retry_after_s },
            });
        }
        let mut answer = Answer::text(code, "refused by the sandbox's fault profile\n");
        if let Some(seconds) = retry_after_s {
            answer.headers.insert(header::RETRY_AFTER, seconds.into());
        }
        answer
    }
}

pub(super) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

pub(super) fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

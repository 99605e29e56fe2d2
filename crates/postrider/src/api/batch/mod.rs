//! A batch of messages: NDJSON in, NDJSON out, in order, as streams. Several groups of lines are written to
//! disk while the next lines are read. Memory is bounded.

mod line_queue;
mod results;
mod split;

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use postrider_dispatch::Submission;

use self::line_queue::LineQueue;
use self::results::ResultsSender;
pub(super) use self::split::{BatchLine, Splitter};
use super::auth::rejected;
use super::extract::require_type;
use super::lines;
use super::prelude::*;
use crate::keys::{Caller, KeyEnd, KeyRejection};

const NDJSON: &str = "application/x-ndjson";
pub(super) const TYPES: [&str; 5] = [
    NDJSON,
    "application/ndjson",
    "application/jsonl",
    "application/json",
    "application/octet-stream",
];
/// Groups that are being written to disk.
const GROUPS_MAX: usize = 4;

/// Accept many messages: one per line in, one result per line out, in order. Blank lines are skipped.
#[utoipa::path(post, path = "/v1/messages/batch", tag = "messages",
    request_body(content = String, content_type = "application/x-ndjson", description = "One message per line"),
    responses((status = 200, description = "One result per line: `{\"index\":0,\"status\":202,\"id\":…,\"deliveries\":…,\"duplicate\":…}` or `{\"index\":1,\"status\":422,\"error\":…}`", body = String, content_type = "application/x-ndjson"),
        (status = "4XX", body = Problem)))]
pub(crate) async fn batch(
    State(app): State<SharedState>,
    access: SendAccess,
    request: Request,
) -> ApiResult<Response> {
    app.refuse_if_worker()?;
    require_type(request.headers(), &TYPES)?;
    if request.headers().contains_key("idempotency-key") {
        let allowed = "an idempotency_key in each line: one key cannot stand for many messages";
        return Err(Problem::field("Idempotency-Key", "a header of the whole batch", allowed));
    }
    app.signing.ensure(&access.tenant).await?;
    let traceparent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
    let traceparent = traceparent.map(str::to_owned);
    let (results, stream) = results::channel(app.config().server.batch_results_bytes_max);
    let run = BatchRun {
        idle: Duration::from_secs(app.config().server.batch_idle_timeout_s),
        key_end: app.keys.end_of(&access.caller),
        _caller: access.caller,
        splitter: Splitter::new(app.config().server.body_bytes_max),
        app,
        tenant: access.tenant,
        traceparent,
        results,
        queue: LineQueue::default(),
        groups: FuturesOrdered::new(),
        next_index: 0,
    };
    tokio::spawn(run.run(request.into_body().into_data_stream()));
    Ok(([(CONTENT_TYPE, NDJSON)], Body::from_stream(stream)).into_response())
}

struct BatchRun {
    app: SharedState,
    tenant: TenantId,
    idle: Duration,
    /// Tells when the caller's key stops working.
    key_end: KeyEnd,
    /// Its place is held until the batch ends.
    _caller: Caller,
    splitter: Splitter,
    /// The trace of the caller, which all its messages belong to.
    traceparent: Option<String>,
    results: ResultsSender,
    queue: LineQueue,
    groups: FuturesOrdered<BoxFuture<'static, Bytes>>,
    next_index: u64,
}

/// The event that ended a wait.
enum BatchEvent {
    Written(Bytes),
    Frame(Option<Result<Bytes, axum::Error>>),
    Idle,
    KeyEnded(KeyRejection),
}

impl BatchRun {
    async fn run(mut self, mut body: BodyDataStream) {
        let mut open = true;
        loop {
            if !self.queue.is_empty() && self.groups.len() < self.groups_max() {
                self.start_group();
                continue;
            }
            if !open && self.groups.is_empty() {
                return;
            }
            match self.next_event(&mut body, open).await {
                BatchEvent::Written(text) => {
                    let sent = tokio::select! {
                        biased;
                        sent = self.results.send(text) => sent.is_ok(),
                        // Nobody reads, and nobody may write any more.
                        _ = self.key_end.wait(&self.app.keys), if open => false,
                    };
                    if !sent {
                        return;
                    }
                }
                BatchEvent::Frame(Some(Ok(frame))) => {
                    self.queue.add(|out| self.splitter.push(frame, out));
                }
                BatchEvent::Frame(None) => {
                    open = false;
                    self.queue.add(|out| self.splitter.finish(out));
                }
                // The caller is gone. Complete lines are kept; the rest was never accepted.
                BatchEvent::Frame(Some(Err(_))) => open = false,
                BatchEvent::Idle => {
                    open = false;
                    let what = "nothing arrived for too long; the lines before were accepted";
                    self.report(Problem::timeout(what));
                }
                // What is being written to disk is answered; the rest was never accepted.
                BatchEvent::KeyEnded(rejection) => {
                    open = false;
                    self.queue = LineQueue::default();
                    let problem = rejected(&self.app, rejection);
                    self.report(problem);
                }
            }
        }
    }

    async fn next_event(&mut self, body: &mut BodyDataStream, open: bool) -> BatchEvent {
        let may_read_ahead = self.groups_max() > 1 || self.groups.is_empty();
        let wants_more = open && !self.queue.is_full() && may_read_ahead;
        tokio::select! {
            biased;
            rejection = self.key_end.wait(&self.app.keys), if open => BatchEvent::KeyEnded(rejection),
            Some(text) = self.groups.next(), if !self.groups.is_empty() => BatchEvent::Written(text),
            frame = tokio::time::timeout(self.idle, body.next()), if wants_more => match frame {
                Ok(frame) => BatchEvent::Frame(frame),
                Err(_) => BatchEvent::Idle,
            },
            else => BatchEvent::Frame(None),
        }
    }

    /// Of a tenant over a quota, little is read until what was read is answered.
    fn groups_max(&self) -> usize {
        if self.app.intake.quotas().is_over(&self.tenant) { 1 } else { GROUPS_MAX }
    }

    fn start_group(&mut self) {
        let lines = self.queue.take_group();
        let first = self.next_index;
        self.next_index += lines.len() as u64;
        let (app, tenant) = (self.app.clone(), self.tenant.clone());
        let group = admit(app, tenant, self.traceparent.clone(), first, lines);
        self.groups.push_back(Box::pin(group));
    }

    /// Adds a last line that says why the batch ends.
    fn report(&mut self, problem: Problem) {
        let index = self.next_index;
        self.groups.push_back(Box::pin(async move {
            let mut text = Vec::new();
            lines::refused(&mut text, index, &problem);
            text.into()
        }));
    }
}

/// Accepts a group and writes its results.
async fn admit(
    app: SharedState,
    tenant: TenantId,
    traceparent: Option<String>,
    first: u64,
    group: Vec<BatchLine>,
) -> Bytes {
    let limit = app.config().server.body_bytes_max;
    let too_long: Vec<bool> = group.iter().map(|line| matches!(line, BatchLine::TooLong)).collect();
    let start = app.clock.now();
    let mut own_traces = Vec::new();
    if app.tracer.is_some() {
        own_traces.extend(group.iter().filter_map(|line| match line {
            BatchLine::Text(body) => Some(lines::own_traceparent(body)),
            BatchLine::TooLong => None,
        }));
    }
    let mut own_traces = own_traces.into_iter();
    let submissions = group.into_iter().filter_map(|line| match line {
        BatchLine::Text(body) => {
            let traceparent = traceparent.clone();
            Some(Submission { body, idempotency_key: None, traceparent })
        }
        BatchLine::TooLong => None,
    });
    let mut answers = app.intake.admit(&tenant, submissions.collect()).await.into_iter();
    let mut text = Vec::with_capacity(too_long.len() * 160);
    for (index, too_long) in (first..).zip(too_long) {
        if too_long {
            lines::refused(&mut text, index, &Problem::too_large(limit));
        } else if let Some(answer) = answers.next() {
            app.metrics.admitted(&answer);
            let own = own_traces.next().flatten();
            if let (Some(tracer), Ok(accepted)) = (&app.tracer, &answer) {
                let traceparent = own.as_deref().or(traceparent.as_deref());
                tracer.accepted(traceparent, &tenant, accepted, start);
            }
            lines::result(&mut text, index, answer);
        }
    }
    text.into()
}

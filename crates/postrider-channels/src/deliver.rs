//! The life of a batch: prepare, call, judge. A [`Protocol`] holds what differs between channels.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use postrider_core::model::content::Content;
use postrider_core::policy::account::AccountOffer;
use postrider_core::policy::classify::{ProviderAnswer, judge};
use postrider_core::policy::work_share::WorkShare;
use postrider_core::{
    Attempt, ChannelKind, Clock, Finished, Message, Outcome, Report, Target, TenantId, Timestamp,
};
use serde::Deserialize;
use tokio::time::Instant;

use crate::answers::{self, CurrentAnswerTable};
use crate::call_clock::{self, CallTimes};
use crate::credential_echo::SentCredentials;
use crate::pool::{Endpoint, Pool, Request, Response, TransportError};
use crate::scrub;

/// How many attempts are prepared before those that are ready go out: enough to encrypt in one go,
/// few enough that the network does not stand still meanwhile.
const PREPARED_AT_ONCE: usize = 32;

/// What every channel needs from the outside.
#[derive(Clone)]
pub struct Wiring {
    pub pool: Pool,
    pub clock: Arc<dyn Clock>,
    pub answers: Arc<CurrentAnswerTable>,
    /// The hard deadline of one attempt, connecting included.
    pub attempt_timeout: Duration,
    /// This worker's part of all work, by which limits of accounts are split.
    pub share: Arc<WorkShare>,
}

impl Wiring {
    /// With the built-in classification table and a deadline of 30 s.
    pub fn new(pool: Pool, clock: Arc<dyn Clock>) -> Self {
        let answers = CurrentAnswerTable::new(answers::built_in());
        let share = Arc::default();
        Self { pool, clock, answers, attempt_timeout: Duration::from_secs(30), share }
    }
}

/// The report of an attempt that ended without an answer.
pub(crate) type Ended = Box<Report>;

/// What one channel adds to the common life of a batch.
pub(crate) trait Protocol: Send + Sync {
    /// A prepared attempt, which only needs a connection and the present time.
    type Ready: Send;

    /// Prepares one attempt. An error ends the attempt without a call.
    fn prepare(&self, attempt: &Attempt) -> Result<Self::Ready, Ended>;

    /// Completes prepared attempts together, e.g. encrypts them.
    fn complete(&self, _batch: &mut [Result<Self::Ready, Ended>]) {}

    fn send(
        &self,
        attempt: &Attempt,
        ready: Self::Ready,
    ) -> impl Future<Output = Result<Report, Ended>> + Send;

    /// The accounts that a tenant may use; none if the channel has no accounts.
    fn accounts(&self, _tenant: &TenantId) -> Vec<AccountOffer> {
        Vec::new()
    }

    /// Whether an account can send the message to this target.
    fn fits(&self, _account: &str, _target: &Target, _message: &Message) -> bool {
        true
    }

    /// What one call counts for in rate limits.
    fn weight(&self, _message: &Message) -> u32 {
        1
    }
}

/// Makes a [`Protocol`] the `Channel` of its module's `KIND` and `TRAITS`.
macro_rules! impl_channel {
    ($channel:ty) => {
        #[async_trait::async_trait]
        impl postrider_core::Channel for $channel {
            fn kind(&self) -> postrider_core::ChannelKind {
                KIND
            }

            fn traits(&self) -> &'static postrider_core::ChannelTraits {
                &TRAITS
            }

            fn weight(&self, _: &postrider_core::Target, message: &postrider_core::Message) -> u32 {
                $crate::deliver::Protocol::weight(self, message)
            }

            fn accounts(
                &self,
                tenant: &postrider_core::TenantId,
            ) -> Vec<postrider_core::policy::account::AccountOffer> {
                $crate::deliver::Protocol::accounts(self, tenant)
            }

            fn fits(
                &self,
                account: &str,
                target: &postrider_core::Target,
                message: &postrider_core::Message,
            ) -> bool {
                $crate::deliver::Protocol::fits(self, account, target, message)
            }

            async fn deliver(
                &self,
                batch: Vec<Attempt>,
                done: &(dyn Fn(postrider_core::Finished) + Send + Sync),
            ) {
                $crate::deliver::deliver(self, batch, done).await;
            }
        }
    };
}
pub(crate) use impl_channel;

pub(crate) async fn deliver<P: Protocol>(
    protocol: &P,
    batch: Vec<Attempt>,
    done: &(dyn Fn(Finished) + Send + Sync),
) {
    let mut calls = FuturesUnordered::new();
    for attempts in batch.chunks(PREPARED_AT_ONCE) {
        let mut ready: Vec<_> = attempts.iter().map(|attempt| protocol.prepare(attempt)).collect();
        protocol.complete(&mut ready);
        for (attempt, ready) in attempts.iter().zip(ready) {
            calls.push(call(protocol, attempt, ready));
        }
        std::future::poll_fn(|cx| {
            while let Poll::Ready(Some(finished)) = calls.poll_next_unpin(cx) {
                done(finished);
            }
            Poll::Ready(())
        })
        .await;
        tokio::task::yield_now().await;
    }
    while let Some(finished) = calls.next().await {
        done(finished);
    }
}

async fn call<P: Protocol>(
    protocol: &P,
    attempt: &Attempt,
    ready: Result<P::Ready, Ended>,
) -> Finished {
    let sent = async {
        match ready {
            Ok(ready) => protocol.send(attempt, ready).await,
            Err(ended) => Err(ended),
        }
    };
    let (report, CallTimes { latency_ms, waited_ms }) = call_clock::measure(sent).await;
    let report = report.unwrap_or_else(|ended| *ended);
    Finished { slot: attempt.slot, report, latency_ms, waited_ms }
}

/// How to read one provider's answer.
#[derive(Default)]
pub(crate) struct Reading<'a> {
    pub(crate) service: &'a str,
    pub(crate) code: Option<String>,
    pub(crate) token_age: Option<Duration>,
    /// When to come back, if the provider says it elsewhere than in `Retry-After`.
    pub(crate) retry_after: Option<String>,
    pub(crate) provider_id: Option<String>,
    /// Texts that the report must not repeat even if the provider does.
    pub(crate) hide: &'a [&'a str],
    /// The same for the URL of this endpoint.
    pub(crate) secret_url: Option<&'a Endpoint>,
    /// Credentials outside of the request's headers, and addresses. They are hidden however short they are, and in
    /// every form.
    pub(crate) secrets: &'a [&'a str],
}

impl Wiring {
    pub(crate) fn endpoint(&self, url: &str) -> Result<Endpoint, Ended> {
        self.pool.endpoint(url).map_err(unanswered)
    }

    /// Makes the call. The request is built when a connection is free, with the time of that moment.
    pub(crate) async fn exchange(
        &self,
        attempt: &Attempt,
        endpoint: &Endpoint,
        request: impl FnOnce(Timestamp) -> Request,
    ) -> Result<Response, Ended> {
        let deadline = Instant::now() + self.attempt_timeout;
        let slot = self.pool.acquire(endpoint, deadline).await.map_err(unanswered)?;
        let now = self.clock.wall();
        if now >= attempt.expires_at {
            return Err(ended(Outcome::Expired, "ttl"));
        }
        let request = request(now);
        let credentials = SentCredentials::of(&request.headers);
        call_clock::mark_written();
        let answer = slot.send(endpoint, request, deadline).await.map_err(unanswered)?;
        Ok(Response { credentials, ..answer })
    }

    /// Calls a receiver that is not a provider, and judges its answer by the status alone.
    pub(crate) async fn call_on(
        &self,
        service: &'static str,
        attempt: &Attempt,
        endpoint: &Endpoint,
        body: &[u8],
        secrets: &[&str],
        request: impl FnOnce(Timestamp) -> Request,
    ) -> Result<Report, Ended> {
        let response = self.exchange(attempt, endpoint, request).await?;
        let reading = Reading {
            service,
            provider_id: scrub::whole_header(&response.headers, "x-request-id"),
            secrets,
            hide: &[std::str::from_utf8(body).unwrap_or_default()],
            secret_url: Some(endpoint),
            ..Reading::default()
        };
        Ok(self.judge_answer(&response, reading, attempt.class.retry_all))
    }

    /// Judges an answer that did not come by HTTP.
    pub(crate) fn judge_code(&self, service: &str, status: u16, code: &str) -> Report {
        let code = Some(code);
        let answer = ProviderAnswer { service, status, code, ..ProviderAnswer::default() };
        Report::judged(judge(&self.answers.current(), &answer, self.clock.wall()))
    }

    /// Judges the answer of a provider. What a provider refuses is not retried, whatever the class says.
    pub(crate) fn judge(&self, response: &Response, reading: Reading<'_>) -> Report {
        self.judge_answer(response, reading, false)
    }

    fn judge_answer(&self, response: &Response, reading: Reading<'_>, retry_all: bool) -> Report {
        let retry_after =
            reading.retry_after.or_else(|| scrub::whole_header(&response.headers, "retry-after"));
        let answer = ProviderAnswer {
            service: reading.service,
            status: response.status.as_u16(),
            code: reading.code.as_deref(),
            retry_after: retry_after.as_deref(),
            token_age: reading.token_age,
            retry_all,
        };
        let judged = judge(&self.answers.current(), &answer, self.clock.wall());
        let accepted = judged.0 == Outcome::Accepted;
        let report = Report { status: Some(response.status.as_u16()), ..Report::judged(judged) };
        if accepted && reading.code.is_none() {
            let repeats = |id: &String| response.credentials.are_in(id, reading.secrets);
            let provider_id =
                reading.provider_id.filter(|id| !repeats(id)).map(scrub::short_header);
            return Report { provider_id, ..report };
        }
        let url = reading.secret_url.map(Endpoint::url).unwrap_or_default();
        let hide = [&[&*url], reading.hide].concat();
        let credentials = response.credentials.forms(reading.secrets);
        let safe = |text| scrub::short_header(scrub::hide_all(text, &credentials));
        Report {
            detail: scrub::excerpt(&scrub::without(&response.body, &credentials), &hide)
                .filter(|_| !accepted),
            code: reading.code.map(|code| safe(scrub::hide(code, &hide))),
            retry_after: retry_after.filter(|_| !accepted).map(safe),
            provider_id: reading.provider_id.map(safe),
            ..report
        }
    }
}

/// The outcome of a call without an answer.
fn unanswered(error: TransportError) -> Ended {
    Box::new(error.into_report())
}

/// The message's common fields, and its part for this channel; empty if it has none.
pub(crate) fn content_of<'a, C: Deserialize<'a> + Default>(
    kind: ChannelKind,
    message: &'a Message,
) -> Result<(Content<'a>, C), Ended> {
    let (content, own) = Content::parse_for(kind, &message.content).map_err(bad_content)?;
    Ok((content, own.unwrap_or_default()))
}

/// An end for a reason of our own.
pub(crate) fn ended(outcome: Outcome, code: &str) -> Ended {
    Box::new(Report::new(outcome).code(code))
}

/// An end for content that cannot be read.
pub(crate) fn bad_content<E>(_: E) -> Ended {
    ended(Outcome::DropMessage, "bad_content")
}

/// An end for an account whose credential cannot be read. The log says why.
pub(crate) fn unreadable_credential(account: &str, why: &str) -> Ended {
    tracing::error!(account, why, "no credential");
    let detail = format!("the credential of account {account} cannot be used");
    misconfigured("credential_unreadable", &detail)
}

/// An end that needs the operator. The log says why; a tenant does not learn where the operator keeps secrets.
pub(crate) fn hidden_cause(code: &str, why: &str) -> Ended {
    tracing::error!(code, why, "a secret cannot be used");
    misconfigured(code, "the operator's credential cannot be used; the server's log says why")
}

/// An end that needs a person, who reads `detail`.
pub(crate) fn misconfigured(code: &str, detail: &str) -> Ended {
    Box::new(Report::new(Outcome::Config).code(code).detail(detail))
}

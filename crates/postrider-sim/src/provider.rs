//! The simulated providers, and the channel that calls them. A provider draws its reaction when a
//! request arrives; the real table classifies its answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use postrider_channels::answers;
use postrider_core::policy::classify::{AnswerTable, ProviderAnswer, classify};
use postrider_core::{
    Attempt, Channel, ChannelKind, ChannelTraits, Clock, Finished, Outcome, Report, Timestamp,
};
use tokio::time::{Instant, sleep};

use crate::http_date;
use crate::oracle::SimCall;
use crate::plan::{ProviderBehaviour, ProviderPlan, RetryAfterForm};
use crate::rng::SimRng;
use crate::world::{World, WorldState};

/// How long a channel waits for an answer.
const TIMEOUT_MS: u64 = 10_000;

pub(crate) struct SimProvider {
    pub plan: ProviderPlan,
    rng: SimRng,
    /// Requests in progress.
    busy: usize,
    /// Its own rate limit: tokens left, and when they were counted.
    tokens: f64,
    counted_at: i64,
}

/// How the provider treats one request.
#[derive(Debug, Clone)]
pub(crate) struct SimReaction {
    /// Time until the provider has processed it.
    work_ms: u64,
    /// Whether it then accepts the message.
    takes: bool,
    /// Time from then until the answer arrives.
    answer_ms: u64,
    answer: SimAnswer,
}

#[derive(Debug, Clone)]
enum SimAnswer {
    Status(u16, Option<String>),
    NoConnection,
    Nothing,
    NotProcessed,
    StaleToken,
    BadCredential,
}

impl SimProvider {
    pub(crate) fn new(plan: ProviderPlan, rng: SimRng) -> Self {
        Self { plan, rng, busy: 0, tokens: 1.0, counted_at: 0 }
    }

    fn react(
        &mut self,
        elapsed: i64,
        now: Timestamp,
        credential: bool,
        resigned: bool,
    ) -> SimReaction {
        let mut reaction = SimReaction {
            work_ms: self.rng.within(1, self.plan.latency_ms),
            takes: true,
            answer_ms: self.rng.within(1, self.plan.latency_ms),
            answer: SimAnswer::Status(201, None),
        };
        let behaviour = self.plan.behaviour_at(elapsed);
        let refusal = if credential {
            self.refusal(behaviour, elapsed, now, resigned, &mut reaction)
        } else {
            Some(SimAnswer::BadCredential)
        };
        if let Some(answer) = refusal {
            reaction.takes = false;
            reaction.answer = answer;
        }
        reaction
    }

    /// The answer, if it does not accept the message.
    fn refusal(
        &mut self,
        behaviour: ProviderBehaviour,
        elapsed: i64,
        now: Timestamp,
        resigned: bool,
        reaction: &mut SimReaction,
    ) -> Option<SimAnswer> {
        let percent = |rng: &mut SimRng, percent: u64| rng.below(100) < percent;
        match behaviour {
            ProviderBehaviour::Healthy => None,
            ProviderBehaviour::Limited { per_s, wait } => {
                let limited = if self.plan.service == "webpush.wns" { 406 } else { 429 };
                (!self.take_token(per_s, elapsed))
                    .then(|| SimAnswer::Status(limited, retry_after_header(wait, now)))
            }
            ProviderBehaviour::Slots { at_once } => {
                (self.busy >= at_once).then_some(SimAnswer::Status(503, None))
            }
            ProviderBehaviour::Down { status: Some(status), wait } => {
                Some(SimAnswer::Status(status, retry_after_header(wait, now)))
            }
            ProviderBehaviour::Down { status: None, .. } => Some(SimAnswer::NoConnection),
            ProviderBehaviour::Slow { ms } => {
                reaction.work_ms += ms;
                None
            }
            ProviderBehaviour::Hanging { ms } => {
                reaction.answer_ms += ms;
                None
            }
            ProviderBehaviour::Losing { percent: p } if percent(&mut self.rng, p) => {
                let takes = self.rng.chance(0.5);
                reaction.answer_ms = TIMEOUT_MS;
                if takes {
                    reaction.answer = SimAnswer::Nothing;
                    return None;
                }
                Some(SimAnswer::Nothing)
            }
            ProviderBehaviour::Gone { percent: p } => {
                percent(&mut self.rng, p).then_some(SimAnswer::Status(410, None))
            }
            ProviderBehaviour::Refusing { percent: p } => {
                percent(&mut self.rng, p).then_some(SimAnswer::Status(400, None))
            }
            ProviderBehaviour::Reconnecting { percent: p } => {
                percent(&mut self.rng, p).then_some(SimAnswer::NotProcessed)
            }
            ProviderBehaviour::Stale { percent: p } => {
                (!resigned && percent(&mut self.rng, p)).then_some(SimAnswer::StaleToken)
            }
            ProviderBehaviour::Losing { .. } => None,
        }
    }

    fn take_token(&mut self, per_s: u64, elapsed: i64) -> bool {
        let passed = (elapsed - self.counted_at).max(0) as f64 / 1000.0;
        self.tokens = (self.tokens + passed * per_s as f64).min(per_s as f64);
        self.counted_at = elapsed;
        let granted = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(granted));
        granted
    }
}

fn retry_after_header(wait: RetryAfterForm, now: Timestamp) -> Option<String> {
    match wait {
        RetryAfterForm::Absent => None,
        RetryAfterForm::Seconds(s) => Some(s.to_string()),
        RetryAfterForm::Date(s) => Some(http_date::format(now + Duration::from_secs(s))),
    }
}

/// Calls the simulated providers of one kind.
pub(crate) struct SimChannel {
    pub kind: ChannelKind,
    pub world: Arc<World>,
}

#[async_trait]
impl Channel for SimChannel {
    fn kind(&self) -> ChannelKind {
        self.kind
    }

    fn traits(&self) -> &'static ChannelTraits {
        &ChannelTraits::PLAIN
    }

    async fn deliver(&self, batch: Vec<Attempt>, done: &(dyn Fn(Finished) + Send + Sync)) {
        let calls: FuturesUnordered<_> = batch.into_iter().map(|a| self.call(a, done)).collect();
        calls.for_each(|()| std::future::ready(())).await;
    }
}

/// Reports the end of a call to the world, also when the call is dropped.
struct CallGuard<'a> {
    world: &'a World,
    call: SimCall,
    /// The provider is processing it.
    in_progress: bool,
    answered: bool,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.world.with(|state| {
            state.providers[self.call.provider].busy -= usize::from(self.in_progress);
            state.oracle.call_ended(self.call, self.answered);
        });
    }
}

impl SimChannel {
    async fn call(&self, attempt: Attempt, done: &(dyn Fn(Finished) + Send + Sync)) {
        let world = &*self.world;
        if world.is_dead() {
            return std::future::pending().await;
        }
        let began = Instant::now();
        let Some(call) = world.with(|state| begin(state, &attempt)) else {
            return std::future::pending().await;
        };
        let mut guard = CallGuard { world, call, in_progress: false, answered: false };
        let report = self.exchange(&attempt, &mut guard).await;
        world.with(|state| {
            let status = report.status.unwrap_or(0);
            state.note("answer", call.delivery, report.outcome.name(), status.into());
            let now = state.now();
            state.oracle.answered(call, &report, now);
        });
        guard.answered = true;
        drop(guard);
        let latency_ms = began.elapsed().as_millis() as u32;
        done(Finished { slot: attempt.slot, report, latency_ms, waited_ms: 0 });
    }

    /// One exchange with the provider. Checks the deadline right before the request leaves, as every
    /// channel must.
    async fn exchange(&self, attempt: &Attempt, guard: &mut CallGuard<'_>) -> Report {
        let (world, call) = (&*self.world, guard.call);
        let connect_ms = world.with(|state| state.rng.below(3) * state.rng.below(40));
        if connect_ms > 0 {
            sleep(Duration::from_millis(connect_ms)).await;
        }
        if world.clock.now() >= attempt.expires_at {
            return Report::new(Outcome::Expired);
        }
        let reaction = world.with(|state| {
            let (elapsed, now) = (state.elapsed(), state.now());
            let tenant = state.oracle.tenant_of(call.delivery);
            let good = !state.lost_credentials.contains(&tenant);
            let provider = &mut state.providers[call.provider];
            let reaction = provider.react(elapsed, now, good, attempt.resign);
            provider.busy += 1;
            state.oracle.reached(call);
            reaction
        });
        guard.in_progress = true;
        sleep(Duration::from_millis(reaction.work_ms)).await;
        world.with(|state| {
            state.providers[call.provider].busy -= 1;
            if reaction.takes {
                state.note("taken", call.delivery, "", 0);
                state.oracle.taken(call);
            }
        });
        guard.in_progress = false;
        sleep(Duration::from_millis(reaction.answer_ms)).await;
        let service = world.plan.providers[call.provider].service;
        report(service, reaction.answer, attempt, world.clock.now())
    }
}

fn begin(state: &mut WorldState, attempt: &Attempt) -> Option<SimCall> {
    let now = state.now();
    let (result, call) = state.oracle.call_began(attempt, now);
    if let Some(call) = call {
        let how = if attempt.resign { "re-signed" } else { "" };
        state.note("call", call.delivery, how, attempt.number.into());
    }
    state.report_violation(result);
    call
}

fn report(service: &str, reply: SimAnswer, attempt: &Attempt, now: Timestamp) -> Report {
    static TABLE: OnceLock<AnswerTable> = OnceLock::new();
    match reply {
        SimAnswer::Status(status, retry_after) => {
            let answer = ProviderAnswer {
                service,
                status,
                retry_after: retry_after.as_deref(),
                retry_all: attempt.class.retry_all && matches!(service, "webhook" | "http"),
                ..ProviderAnswer::default()
            };
            let outcome = classify(TABLE.get_or_init(answers::built_in), &answer, now);
            Report { status: Some(status), retry_after, ..Report::new(outcome) }
        }
        SimAnswer::NoConnection => {
            Report::new(Outcome::RetryBackoff { at_least: Duration::ZERO }).code("connect")
        }
        SimAnswer::Nothing => Report::new(Outcome::Ambiguous).code("timeout"),
        SimAnswer::NotProcessed => Report::new(Outcome::Reconnect).code("goaway"),
        SimAnswer::StaleToken => Report { status: Some(401), ..Report::new(Outcome::ResignOnce) },
        SimAnswer::BadCredential => Report { status: Some(401), ..Report::new(Outcome::Config) },
    }
}

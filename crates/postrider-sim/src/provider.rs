//! The providers, and the channel that calls them. What a provider does with a request is drawn when
//! it comes in; what its answer means is looked up in the real table.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use postrider_core::policy::classify::{Answer, Table, classify};
use postrider_core::{Attempt, Channel, ChannelKind, Clock, Finished, Outcome, Report, Timestamp};
use tokio::time::{Instant, sleep};

use crate::httpdate;
use crate::oracle::Handed;
use crate::plan::{Mood, ProviderPlan, Wait};
use crate::rng::Rng;
use crate::world::{State, World};

/// How long a channel waits for an answer.
const TIMEOUT_MS: u64 = 10_000;

pub(crate) struct Provider {
    pub plan: ProviderPlan,
    rng: Rng,
    /// Requests that it works on.
    busy: usize,
    /// Of its own rate: what it may still take, and since when.
    tokens: f64,
    counted_at: i64,
}

/// What becomes of one request.
#[derive(Debug, Clone)]
pub(crate) struct Fate {
    /// Until the provider has dealt with it.
    work_ms: u64,
    /// Whether it then has the message.
    takes: bool,
    /// From then until the answer is here.
    answer_ms: u64,
    said: Said,
}

#[derive(Debug, Clone)]
enum Said {
    Status(u16, Option<String>),
    NoConnection,
    Nothing,
    NotProcessed,
    StaleToken,
    BadCredential,
}

impl Provider {
    pub(crate) fn new(plan: ProviderPlan, rng: Rng) -> Self {
        Self { plan, rng, busy: 0, tokens: 1.0, counted_at: 0 }
    }

    fn react(&mut self, elapsed: i64, now: Timestamp, credential: bool, resigned: bool) -> Fate {
        let mut fate = Fate {
            work_ms: self.rng.within(1, self.plan.latency_ms),
            takes: true,
            answer_ms: self.rng.within(1, self.plan.latency_ms),
            said: Said::Status(201, None),
        };
        let mood = self.plan.mood_at(elapsed);
        let said = if credential {
            self.mood(mood, elapsed, now, resigned, &mut fate)
        } else {
            Some(Said::BadCredential)
        };
        if let Some(said) = said {
            fate.takes = false;
            fate.said = said;
        }
        fate
    }

    /// What it says instead of taking the message.
    fn mood(
        &mut self,
        mood: Mood,
        elapsed: i64,
        now: Timestamp,
        resigned: bool,
        fate: &mut Fate,
    ) -> Option<Said> {
        let percent = |rng: &mut Rng, percent: u64| rng.below(100) < percent;
        match mood {
            Mood::Well => None,
            Mood::Limited { per_s, wait } => {
                let limited = if self.plan.service == "webpush.wns" { 406 } else { 429 };
                (!self.has_room(per_s, elapsed)).then(|| Said::Status(limited, written(wait, now)))
            }
            Mood::Slots { at_once } => (self.busy >= at_once).then_some(Said::Status(503, None)),
            Mood::Down { status: Some(status), wait } => {
                Some(Said::Status(status, written(wait, now)))
            }
            Mood::Down { status: None, .. } => Some(Said::NoConnection),
            Mood::Slow { ms } => {
                fate.work_ms += ms;
                None
            }
            Mood::Hanging { ms } => {
                fate.answer_ms += ms;
                None
            }
            Mood::Losing { percent: p } if percent(&mut self.rng, p) => {
                let takes = self.rng.chance(0.5);
                fate.answer_ms = TIMEOUT_MS;
                if takes {
                    fate.said = Said::Nothing;
                    return None;
                }
                Some(Said::Nothing)
            }
            Mood::Gone { percent: p } => {
                percent(&mut self.rng, p).then_some(Said::Status(410, None))
            }
            Mood::Refusing { percent: p } => {
                percent(&mut self.rng, p).then_some(Said::Status(400, None))
            }
            Mood::Reconnecting { percent: p } => {
                percent(&mut self.rng, p).then_some(Said::NotProcessed)
            }
            Mood::Stale { percent: p } => {
                (!resigned && percent(&mut self.rng, p)).then_some(Said::StaleToken)
            }
            Mood::Losing { .. } => None,
        }
    }

    fn has_room(&mut self, per_s: u64, elapsed: i64) -> bool {
        let passed = (elapsed - self.counted_at).max(0) as f64 / 1000.0;
        self.tokens = (self.tokens + passed * per_s as f64).min(per_s as f64);
        self.counted_at = elapsed;
        let has_room = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(has_room));
        has_room
    }
}

fn written(wait: Wait, now: Timestamp) -> Option<String> {
    match wait {
        Wait::Unsaid => None,
        Wait::Seconds(s) => Some(s.to_string()),
        Wait::Date(s) => Some(httpdate::format(now + Duration::from_secs(s))),
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

    async fn deliver(&self, batch: Vec<Attempt>, done: &(dyn Fn(Finished) + Send + Sync)) {
        let calls: FuturesUnordered<_> = batch.into_iter().map(|a| self.call(a, done)).collect();
        calls.for_each(|()| std::future::ready(())).await;
    }
}

/// A call under way; says so to the world when it ends, however that is.
struct UnderWay<'a> {
    world: &'a World,
    call: Handed,
    /// The provider works on it.
    works: bool,
    answered: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.world.with(|state| {
            state.providers[self.call.provider].busy -= usize::from(self.works);
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
        let mut under_way = UnderWay { world, call, works: false, answered: false };
        let report = self.exchange(&attempt, &mut under_way).await;
        world.with(|state| {
            let status = report.status.unwrap_or(0);
            state.note("answer", call.delivery, report.outcome.name(), status.into());
            let now = state.now();
            state.oracle.answered(call, &report, now);
        });
        under_way.answered = true;
        drop(under_way);
        let latency_ms = began.elapsed().as_millis() as u32;
        done(Finished { slot: attempt.slot, report, latency_ms });
    }

    /// One exchange with the provider. As every channel must, looks at the deadline once more where
    /// the request would leave.
    async fn exchange(&self, attempt: &Attempt, under_way: &mut UnderWay<'_>) -> Report {
        let (world, call) = (&*self.world, under_way.call);
        let connect_ms = world.with(|state| state.chance.below(3) * state.chance.below(40));
        if connect_ms > 0 {
            sleep(Duration::from_millis(connect_ms)).await;
        }
        if world.clock.now() >= attempt.expires_at {
            return Report::new(Outcome::Expired);
        }
        let fate = world.with(|state| {
            let (elapsed, now) = (state.elapsed(), state.now());
            let tenant = state.oracle.tenant_of(call.delivery);
            let good = !state.lost_credentials.contains(&tenant);
            let provider = &mut state.providers[call.provider];
            let fate = provider.react(elapsed, now, good, attempt.resign);
            provider.busy += 1;
            state.oracle.reached(call);
            fate
        });
        under_way.works = true;
        sleep(Duration::from_millis(fate.work_ms)).await;
        world.with(|state| {
            state.providers[call.provider].busy -= 1;
            if fate.takes {
                state.note("taken", call.delivery, "", 0);
                state.oracle.taken(call);
            }
        });
        under_way.works = false;
        sleep(Duration::from_millis(fate.answer_ms)).await;
        let service = world.plan.providers[call.provider].service;
        report(service, fate.said, attempt, world.clock.now())
    }
}

fn begin(state: &mut State, attempt: &Attempt) -> Option<Handed> {
    let now = state.now();
    let (judged, call) = state.oracle.handed_over(attempt, now);
    if let Some(call) = call {
        let how = if attempt.resign { "re-signed" } else { "" };
        state.note("call", call.delivery, how, attempt.number.into());
    }
    state.blame(judged);
    call
}

fn report(service: &str, said: Said, attempt: &Attempt, now: Timestamp) -> Report {
    static TABLE: OnceLock<Table> = OnceLock::new();
    match said {
        Said::Status(status, retry_after) => {
            let answer = Answer {
                service,
                status,
                retry_after: retry_after.as_deref(),
                retry_all: attempt.class.retry_all,
                ..Answer::default()
            };
            let outcome = classify(TABLE.get_or_init(Table::built_in), &answer, now);
            Report { status: Some(status), retry_after, ..Report::new(outcome) }
        }
        Said::NoConnection => {
            Report::new(Outcome::RetryBackoff { at_least: Duration::ZERO }).code("connect")
        }
        Said::Nothing => Report::new(Outcome::Ambiguous).code("timeout"),
        Said::NotProcessed => Report::new(Outcome::Reconnect).code("goaway"),
        Said::StaleToken => Report { status: Some(401), ..Report::new(Outcome::ResignOnce) },
        Said::BadCredential => Report { status: Some(401), ..Report::new(Outcome::Config) },
    }
}

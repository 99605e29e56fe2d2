//! The simulated network: our connections and the origins behind them.

mod connections;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use postrider_channels::answers;
use postrider_core::policy::classify::{AnswerTable, ProviderAnswer, classify};
use postrider_core::{Attempt, Clock, Outcome, Report};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::draw::draw;
use super::invariants::BRISK_MS;
use super::plan::{HarmPlan, HarmRunKind};
use super::sick::{SickKind, SickPart};
use super::traffic::Arrival;
use crate::clock::SimClock;
use crate::rng::SimRng;

/// How long a channel waits for an answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a call waits for one of our connections.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);
/// HTTP/1.1 connections to one origin, at most: as many as the real channels may have.
const HTTP1_MAX: usize = 512;

/// One call, as it was seen on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireCall {
    pub arrival: u32,
    /// When the request was written, and when it ended.
    pub written: i64,
    pub ended: i64,
    /// How long it took before to open a connection for it.
    pub opening_ms: i64,
    /// Answered with 429 or 503.
    pub refused: bool,
    /// No answer, or one that says that something is broken there: 5xx.
    pub failed: bool,
    /// The sick part that refused it because we asked for too much.
    pub refused_by: Option<usize>,
    pub accepted: bool,
    /// Nothing was tried for this arrival before.
    pub is_first: bool,
}

/// A connection that could not be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailedOpening {
    pub arrival: u32,
    pub began: i64,
    pub ended: i64,
}

pub(crate) struct SimNetwork {
    pub plan: Arc<HarmPlan>,
    pub kind: HarmRunKind,
    pub clock: Arc<SimClock>,
    state: Mutex<NetworkState>,
}

#[derive(Default)]
struct NetworkState {
    origins: HashMap<u32, OriginState>,
    open: usize,
    idle: VecDeque<u32>,
    calls: Vec<WireCall>,
    failed_openings: Vec<FailedOpening>,
    load: HashMap<usize, LoadState>,
    /// Requests under way.
    standing: usize,
    /// By the number of the arrival: whether a request was ever written for it.
    written: Vec<bool>,
    /// Arrivals that something was tried for, more than to find a connection of ours.
    tried: HashSet<u32>,
    given_back: HashMap<u32, i64>,
    /// Tenant, origin and address of what was ever accepted.
    served: HashSet<(u32, u32, u32)>,
    /// The same of what ever took so long that it may be a long call.
    lasted: HashSet<(u32, u32, u32)>,
}

/// One origin and our connections to it.
#[derive(Default)]
struct OriginState {
    connections: usize,
    busy: usize,
    /// Told whenever a connection becomes idle.
    freed: Arc<Notify>,
    standing: usize,
    /// The numbers of the calls under way.
    standing_calls: Vec<usize>,
    /// It said that it gets too much: 429, 503 or 504.
    has_refused: bool,
    accepted_at: Option<i64>,
}

impl OriginState {
    /// Whether a connection could be closed.
    fn has_idle(&self, http1: bool) -> bool {
        if http1 { self.busy < self.connections } else { self.busy == 0 && self.connections > 0 }
    }

    fn ended(&mut self, accepted: bool, is_refusal: bool, now: i64) {
        self.standing -= 1;
        self.has_refused |= is_refusal;
        if accepted {
            self.accepted_at = Some(now);
        }
    }
}

/// What a sick part that depends on our load knows.
#[derive(Default)]
struct LoadState {
    busy: usize,
    tokens: f64,
    counted_at: i64,
    /// When each of its slots is free again.
    free_at: Vec<i64>,
}

/// What can be seen of an origin from outside.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OriginSeen {
    /// Requests under way to it.
    pub standing: usize,
    /// A call to it would find a connection.
    pub has_connection: bool,
    /// It said that it gets too much: 429, 503 or 504.
    pub has_refused: bool,
    pub accepted_at: Option<i64>,
}

/// How a written request ends.
struct WireAnswer {
    after_ms: u64,
    reply: WireReply,
    /// The part whose slot is in use meanwhile.
    holds: Option<usize>,
    /// The part that takes no more.
    refused_by: Option<usize>,
}

enum WireReply {
    Status(u16, Option<u64>),
    Reset,
    Nothing,
}

impl SimNetwork {
    pub(crate) fn new(plan: Arc<HarmPlan>, kind: HarmRunKind, clock: Arc<SimClock>) -> Arc<Self> {
        let written = vec![false; plan.arrivals.len()];
        let state = NetworkState { written, ..NetworkState::default() };
        Arc::new(Self { plan, kind, clock, state: Mutex::new(state) })
    }

    /// Requests under way, in all.
    pub(crate) fn standing(&self) -> usize {
        self.state().standing
    }

    pub(crate) fn is_written(&self, arrival: u32) -> bool {
        self.state().written[arrival as usize]
    }

    /// When it was last given back for lack of a connection.
    pub(crate) fn given_back(&self, arrival: u32) -> Option<i64> {
        self.state().given_back.get(&arrival).copied()
    }

    /// The tenants and addresses that were called since then, of those whose arrivals are meant.
    pub(crate) fn addresses_called(
        &self,
        since: i64,
        meant: impl Fn(&Arrival) -> bool,
    ) -> HashSet<(u32, u32)> {
        let state = self.state();
        let calls = state.calls.iter().rev().take_while(|call| call.written >= since);
        let arrivals = calls.map(|call| &self.plan.arrivals[call.arrival as usize]);
        let those = arrivals.filter(|arrival| meant(arrival));
        those.map(|arrival| (arrival.tenant, arrival.address)).collect()
    }

    /// Whether an address ever accepted something.
    pub(crate) fn has_served(&self, arrival: &Arrival) -> bool {
        let Arrival { tenant, origin, address, .. } = *arrival;
        self.has_served_at(origin, (tenant, address))
    }

    /// The same for a tenant's address at an origin.
    pub(crate) fn has_served_at(&self, origin: u32, (tenant, address): (u32, u32)) -> bool {
        self.state().served.contains(&(tenant, origin, address))
    }

    /// The calls under way to an origin, and whether their address never had one that lasted.
    pub(crate) fn standing_at(&self, origin: u32) -> Vec<(WireCall, bool)> {
        let (now, state) = (self.clock.elapsed(), self.state());
        let Some(own) = state.origins.get(&origin) else { return Vec::new() };
        let calls = || own.standing_calls.iter().map(|nth| state.calls[*nth]);
        let ends = |call: &WireCall| {
            let Arrival { tenant, origin, address, .. } = self.plan.arrivals[call.arrival as usize];
            (tenant, origin, address)
        };
        let lasting = calls().filter(|call| now - call.written >= BRISK_MS);
        let lasting: HashSet<_> = lasting.map(|call| ends(&call)).collect();
        let is_quick = |call: &WireCall| {
            let ends = ends(call);
            !state.lasted.contains(&ends) && !lasting.contains(&ends)
        };
        calls().map(|call| (call, is_quick(&call))).collect()
    }

    /// What can be seen of an origin from outside.
    pub(crate) fn origin_seen(&self, origin: u32) -> OriginSeen {
        let plan = self.plan.origin(origin);
        let state = self.state();
        let idle =
            |(other, own): (&u32, &OriginState)| own.has_idle(self.plan.origin(*other).http1);
        let may_open = state.open < self.plan.connections_max || state.origins.iter().any(idle);
        let Some(own) = state.origins.get(&origin) else {
            return OriginSeen { has_connection: may_open, ..OriginSeen::default() };
        };
        let has_own = if plan.http1 { own.has_idle(true) } else { own.connections > 0 };
        let may_have_more = !plan.http1 || own.connections < HTTP1_MAX;
        OriginSeen {
            standing: own.standing,
            has_connection: has_own || (may_open && may_have_more),
            has_refused: own.has_refused,
            accepted_at: own.accepted_at,
        }
    }

    pub(crate) fn calls(&self) -> Vec<WireCall> {
        std::mem::take(&mut self.state().calls)
    }

    pub(crate) fn failed_openings(&self) -> Vec<FailedOpening> {
        std::mem::take(&mut self.state().failed_openings)
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parts that are sick for this call, now.
    fn sick_parts(&self, arrival: &Arrival, number: u32) -> Vec<(usize, &SickPart)> {
        if self.kind != HarmRunKind::SomeSick || arrival.parts == 0 {
            return Vec::new();
        }
        let now = self.clock.elapsed();
        let call = (arrival.key << 16) | u64::from(number);
        let hit = |(n, part): &(usize, &SickPart)| {
            let chance = part.chance * part.when.strength(now);
            let mut rng = draw(self.plan.seed ^ *n as u64, "hit", call);
            arrival.is_in_part(*n) && rng.chance(chance)
        };
        self.plan.sick.iter().enumerate().filter(hit).collect()
    }

    pub(super) async fn call(&self, attempt: &Attempt) -> Report {
        let id: u32 = attempt.message.content.parse().unwrap_or_default();
        let arrival = &self.plan.arrivals[id as usize];
        let origin = self.plan.origin(arrival.origin);
        let mut rng = draw(self.plan.seed, "call", (arrival.key << 16) | u64::from(attempt.number));
        let parts = self.sick_parts(arrival, attempt.number);
        for (_, part) in &parts {
            if matches!(part.kind, SickKind::Local) {
                return self.give_back(id);
            }
            if let SickKind::NoConnection { code, after_ms } = part.kind {
                let began = self.clock.elapsed();
                sleep(Duration::from_millis(after_ms)).await;
                self.note_unopened(arrival, began);
                return Report::unopened().code(code);
            }
        }
        let connected = timeout(CONNECTION_WAIT, self.connect(arrival.origin, origin, &mut rng));
        let Ok(Ok(connection)) = connected.await else {
            return self.give_back(id);
        };
        let opening_ms = connection.opening_ms;
        if self.clock.now() >= attempt.expires_at {
            return Report::new(Outcome::Expired);
        }
        let written = self.clock.elapsed();
        let ms = (origin.median_ms * (origin.sigma * rng.normal()).exp()).max(1.0) as u64;
        let answer = self.answer(ms, &parts, &mut rng, written);
        let refused = matches!(answer.reply, WireReply::Status(429 | 503, _));
        let wait = Duration::from_millis(answer.after_ms).min(TIMEOUT);
        let nth = {
            let mut state = self.state();
            let is_first = state.tried.insert(id);
            state.calls.push(WireCall {
                arrival: id,
                written,
                ended: i64::MAX,
                opening_ms,
                refused,
                failed: false,
                refused_by: answer.refused_by,
                accepted: false,
                is_first,
            });
            state.written[id as usize] = true;
            state.standing += 1;
            let nth = state.calls.len() - 1;
            let own = state.origins.entry(arrival.origin).or_default();
            own.standing += 1;
            own.standing_calls.push(nth);
            nth
        };
        sleep(wait).await;
        let now = self.clock.elapsed();
        let mut state = self.state();
        let reply = if wait == TIMEOUT { WireReply::Nothing } else { answer.reply };
        let accepted = matches!(reply, WireReply::Status(200, _));
        state.calls[nth].ended = now;
        state.calls[nth].accepted = accepted;
        state.calls[nth].failed = !accepted && !matches!(reply, WireReply::Status(..500, _));
        state.standing -= 1;
        let is_refusal = matches!(reply, WireReply::Status(429 | 503 | 504, _));
        let own = state.origins.entry(arrival.origin).or_default();
        own.ended(accepted, is_refusal, now);
        own.standing_calls.retain(|call| *call != nth);
        if now - written >= BRISK_MS {
            state.lasted.insert((arrival.tenant, arrival.origin, arrival.address));
        }
        if accepted {
            state.served.insert((arrival.tenant, arrival.origin, arrival.address));
        }
        if let Some(part) = answer.holds {
            state.load.entry(part).or_default().busy -= 1;
        }
        drop(state);
        self.report(reply)
    }

    fn note_unopened(&self, arrival: &Arrival, began: i64) {
        let ended = self.clock.elapsed();
        let mut state = self.state();
        state.failed_openings.push(FailedOpening { arrival: arrival.id, began, ended });
        state.tried.insert(arrival.id);
    }

    /// There is no connection to be had.
    fn give_back(&self, arrival: u32) -> Report {
        let now = self.clock.elapsed();
        self.state().given_back.insert(arrival, now);
        Report::new(Outcome::Local).code("connections")
    }

    /// How the origin treats a request that arrives now.
    fn answer(
        &self,
        healthy_ms: u64,
        parts: &[(usize, &SickPart)],
        rng: &mut SimRng,
        now: i64,
    ) -> WireAnswer {
        let mut answer = WireAnswer {
            after_ms: healthy_ms,
            reply: WireReply::Status(200, None),
            holds: None,
            refused_by: None,
        };
        let mut state = self.state();
        for (n, part) in parts {
            let load = state.load.entry(*n).or_default();
            match part.kind {
                SickKind::Status(status) => answer.reply = WireReply::Status(status, None),
                SickKind::TooMany { retry_after_s } => {
                    answer.reply = WireReply::Status(429, retry_after_s);
                }
                SickKind::Reset => answer.reply = WireReply::Reset,
                SickKind::NoConnection { .. } | SickKind::Local => {}
                SickKind::Slow(ref shape) => {
                    let sick_for = part.when.since_onset(now).unwrap_or(0);
                    answer.after_ms += shape.extra_ms(rng, sick_for);
                }
                SickKind::Hang => answer.after_ms = TIMEOUT.as_millis() as u64,
                SickKind::Queue { slots, work_ms } => {
                    load.free_at.resize(slots.max(1), 0);
                    let slot = load.free_at.iter_mut().min();
                    if let Some(free_at) = slot {
                        *free_at = (*free_at).max(now) + work_ms as i64;
                        answer.after_ms = (*free_at - now).max(1) as u64;
                    }
                }
                SickKind::Slots { slots, work_ms, status } => {
                    if load.busy >= slots.max(1) {
                        answer.reply = WireReply::Status(status, None);
                        answer.refused_by = Some(*n);
                    } else {
                        load.busy += 1;
                        answer.holds = Some(*n);
                        answer.after_ms = work_ms.max(1);
                    }
                }
                SickKind::Rate { per_s, status } => {
                    let passed = (now - load.counted_at).max(0) as f64 / 1000.0;
                    load.tokens = (load.tokens + passed * per_s as f64).min(per_s.max(1) as f64);
                    load.counted_at = now;
                    if load.tokens >= 1.0 {
                        load.tokens -= 1.0;
                    } else {
                        answer.reply = WireReply::Status(status, None);
                        answer.refused_by = Some(*n);
                    }
                }
            }
        }
        answer
    }

    fn report(&self, reply: WireReply) -> Report {
        static TABLE: OnceLock<AnswerTable> = OnceLock::new();
        match reply {
            WireReply::Status(status, retry_after_s) => {
                let retry_after = retry_after_s.map(|s| s.to_string());
                let answer = ProviderAnswer {
                    service: "webhook",
                    status,
                    retry_after: retry_after.as_deref(),
                    ..ProviderAnswer::default()
                };
                let table = TABLE.get_or_init(answers::built_in);
                let outcome = classify(table, &answer, self.clock.now());
                Report { status: Some(status), retry_after, ..Report::new(outcome) }
            }
            WireReply::Reset => Report::new(Outcome::Ambiguous).code("reset"),
            WireReply::Nothing => Report::new(Outcome::Ambiguous).code("timeout"),
        }
    }
}

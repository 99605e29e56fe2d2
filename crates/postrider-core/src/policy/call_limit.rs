//! How many calls an origin takes at once. The limit doubles at first, then grows by one while calls go
//! well. It is cut when the origin queues our calls or refuses them, and restored when the cut did not
//! help. Reads no clock and makes no call.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::cohort::CohortLatency;
use crate::policy::limit_growth::Growth;
pub use crate::policy::limit_reason::LimitReason;
use crate::policy::limit_signs::{CutTrial, LatencySign, RefusalSign, TimeSpent};
use crate::policy::origin_stall::OriginStall;
use crate::policy::signal::Signal;

const START: f64 = 16.0;
/// The limit of an origin that did not answer lately.
const UNPROVEN: usize = 4;
const PROVEN_FOR: Duration = Duration::from_secs(60);
/// An origin queues calls if even the fastest tenth takes this much longer than the base.
const QUEUEING_FACTOR: u32 = 2;
const QUEUEING_MS: u32 = 50;
/// So many cohorts in a row have to show it.
const QUEUEING_COHORTS: u32 = 3;
/// The share of the limit that a cut keeps because of latency, and the least that it leaves.
const CUT_LATENCY: f64 = 0.7;
const FLOOR_LATENCY: f64 = 8.0;
/// The share of the limit that a cut keeps at least because of refusals.
const CUT_REFUSALS: f64 = 0.5;
/// Cuts are judged once they halved the limit. The fastest tenth has to take this share of the time
/// that it took before, or the calls that go well at once must be more than this share of before.
const JUDGED_AT: f64 = 0.5;
const PAID_LATENCY: f64 = 0.8;
const PAID_WELL: f64 = 0.65;
/// So many calls, as a share of those that went well at once, are surely not too many.
const FEW: f64 = 0.5;
/// Refusals are judged after this time at the latest.
const TRIPS_JUDGED: u32 = 8;
const TIME_JUDGED: Duration = Duration::from_secs(2);
/// A sign whose cuts did not help is ignored for this time.
const IGNORED_FOR: Duration = Duration::from_secs(60);
/// A round trip that nobody has seen yet, and the shortest that is believed.
const UNKNOWN_MS: f64 = 100.0;
const SHORTEST: Duration = Duration::from_millis(5);
/// What an origin gets at most that stands still.
const STALLED: f64 = 32.0;
/// How far one answer moves the estimate of the 75th percentile.
const P75_STEP: f64 = 0.05;
const LONG_MIN_MS: f64 = 250.0;
const LONG_MAX_MS: f64 = 2_000.0;

/// A call under way, as the limit knows it. The caller keeps it and hands it back at the end.
#[derive(Debug, Clone, Copy)]
pub struct CallToken {
    target: u64,
    tenant: u64,
    cohort: u32,
    /// Calls under way when it began, with it, but for those that were expected to take long.
    under_way: u32,
    apart: bool,
}

/// The concurrency limit of one origin.
#[derive(Debug, Clone)]
pub struct CallLimit {
    limit: f64,
    ceiling: f64,
    growth: Growth,
    round: GrowthRound,
    changed_at: Timestamp,
    answered_at: Option<Timestamp>,
    reason: LimitReason,
    /// Estimate for calls that ended well; zero before the first.
    p75_ms: f64,
    latency: LatencySign,
    refusals: RefusalSign,
    stall: OriginStall,
    /// When it was last cut because the origin queued calls, or refused some of a few, if that was not undone.
    behind_at: Option<Timestamp>,
}

/// What one round trip tells.
#[derive(Debug, Clone, Copy, Default)]
struct GrowthRound {
    began: Timestamp,
    well: u32,
    half_used: bool,
    cut: bool,
}

impl CallLimit {
    pub fn new(ceiling: usize) -> Self {
        let ceiling = ceiling.max(1) as f64;
        Self {
            limit: START.min(ceiling),
            ceiling,
            growth: Growth::SEARCH,
            round: GrowthRound::default(),
            changed_at: Timestamp::default(),
            answered_at: None,
            reason: LimitReason::Searching,
            p75_ms: 0.0,
            latency: LatencySign::new(),
            refusals: RefusalSign::new(),
            stall: OriginStall::default(),
            behind_at: None,
        }
    }

    /// Sets another ceiling; a limit below it stays.
    pub fn adopt(&mut self, ceiling: usize) {
        self.ceiling = ceiling.max(1) as f64;
        self.limit = self.limit.min(self.ceiling);
    }

    /// Between one and the ceiling.
    pub fn limit(&self, now: Timestamp) -> usize {
        let limit = self.limit as usize;
        if self.is_proven(now) { limit } else { limit.min(UNPROVEN) }
    }

    /// Whether the origin answered lately.
    pub fn is_proven(&self, now: Timestamp) -> bool {
        self.answered_at.is_some_and(|at| now.since(at) < PROVEN_FOR)
    }

    pub fn ceiling(&self) -> usize {
        self.ceiling as usize
    }

    pub fn reason(&self, now: Timestamp) -> LimitReason {
        match self.reason {
            _ if !self.is_proven(now) => LimitReason::Unproven,
            _ if self.limit >= self.ceiling => LimitReason::AtCeiling,
            reason => reason,
        }
    }

    /// When it was last cut or restored, for people.
    pub fn changed_at(&self) -> Timestamp {
        self.changed_at
    }

    /// A call that takes longer than this is a long one: four times the 75th percentile, within bounds.
    pub fn long_after(&self) -> Duration {
        let ms = (4.0 * self.p75_ms).clamp(LONG_MIN_MS, LONG_MAX_MS);
        Duration::from_millis(ms as u64)
    }

    /// The origin was down and answers again: a few calls, doubling to half of the former limit.
    pub fn recover(&mut self, now: Timestamp) {
        self.growth.double_to_half_of(self.limit);
        self.limit = self.limit.min(UNPROVEN as f64);
        self.reason = LimitReason::Recovering;
        self.restart_samples(now);
        (self.latency.trial, self.refusals.trial) = (None, None);
    }

    /// A call starts to an address of which nothing bad is known: if none of these ends, the origin stands still.
    pub fn expect_end(&mut self, target: u64, tenant: u64, now: Timestamp) {
        self.stall.begin(tenant, target, now);
        if self.is_stalled(now) && self.limit > STALLED {
            self.cut(STALLED, now);
            let to_ms = self.usual_time().as_millis() as u32;
            self.reason = LimitReason::Slowed { from_ms: self.p75_ms as u32, to_ms };
        }
    }

    /// A call starts. A call to a sick or slow address is `apart`: nothing is learned from it. With it, so many calls
    /// are under way that have taken no long time yet, and so many that were not expected to.
    pub fn start(
        &mut self,
        target: u64,
        tenant: u64,
        apart: bool,
        (brisk, under_way): (usize, usize),
        now: Timestamp,
    ) -> CallToken {
        let half_used = self.is_half_used(brisk);
        let cohort = if apart { 0 } else { self.latency.cohort.start(target, half_used, now) };
        if !apart {
            self.refusals.tenants.note(tenant, now);
        }
        CallToken { target, tenant, cohort, under_way: under_way as u32, apart }
    }

    /// A call ends `latency_ms` after its request was written. `in_flight` includes it.
    pub fn end(
        &mut self,
        token: CallToken,
        signal: Signal,
        latency_ms: u32,
        in_flight: usize,
        now: Timestamp,
    ) {
        if matches!(signal, Signal::Well | Signal::Busy | Signal::Credential) {
            self.answered_at = Some(now);
        }
        match u128::from(latency_ms) < self.usual_time().as_millis() {
            true if signal == Signal::Well => self.stall.moves(),
            true if !token.apart => self.stall.forget(token.target),
            _ => {}
        }
        if token.apart {
            return;
        }
        if self.round.began == Timestamp::default() || now < self.round.began {
            self.round.began = now;
        }
        self.changed_at = self.changed_at.min(now);
        self.round.half_used |= self.is_half_used(in_flight);
        let well = signal == Signal::Well;
        self.round.well += u32::from(well);
        if well && token.cohort != 0 {
            self.estimate_p75(f64::from(latency_ms));
        }
        if let Some(cohort) = self.latency.cohort.end(token.cohort, well.then_some(latency_ms), now)
        {
            self.heed_latency(cohort, now);
        }
        if well || signal.is_too_much() {
            self.count_answer(token, !well, latency_ms, now);
            if well || self.refusals.are_of_some() {
                self.grow_while_doubling(in_flight, now);
            }
        }
        if now.since(self.round.began) >= self.round_trip() {
            self.end_round(now);
        }
    }

    /// Whether no call ends within the usual time any more: then it is not some calls that take long.
    fn is_stalled(&self, now: Timestamp) -> bool {
        self.stall.stands(self.usual_time(), now)
    }

    /// Whether calls take long because the origin cannot cope, not because of their addresses: it stands still, was
    /// found to queue calls lately, or to take only a few.
    pub fn is_behind(&self, now: Timestamp) -> bool {
        let is_behind = self.is_stalled(now) || is_within(self.behind_at, IGNORED_FOR, now);
        is_behind && self.is_proven(now)
    }

    /// The most long calls beside the others. An origin that did not answer lately may stand still for those who called
    /// it so far only: there is room left to find that out.
    pub fn long_max(&self, now: Timestamp) -> usize {
        let is_unknown = self.is_stalled(now) && !self.is_proven(now);
        if is_unknown { STALLED as usize - UNPROVEN } else { usize::MAX }
    }

    /// Nearly all calls end within this time as long as the origin moves.
    fn usual_time(&self) -> Duration {
        self.long_after().max(Duration::from_millis(2 * self.p75_ms as u64))
    }

    /// So small that even a call that takes long may be in the way of the others.
    fn is_small(&self) -> bool {
        self.limit <= START
    }

    fn is_half_used(&self, in_flight: usize) -> bool {
        in_flight as f64 * 2.0 >= self.limit
    }

    fn estimate_p75(&mut self, latency_ms: f64) {
        self.p75_ms = match self.p75_ms {
            0.0 => latency_ms.max(1.0),
            p75 if latency_ms > p75 => p75 * (1.0 + 0.75 * P75_STEP),
            p75 => (p75 * (1.0 - 0.25 * P75_STEP)).max(1.0),
        };
    }

    fn round_trip(&self) -> Duration {
        let ms = if self.p75_ms > 0.0 { self.p75_ms } else { UNKNOWN_MS };
        Duration::from_millis(ms.ceil() as u64).max(SHORTEST)
    }

    fn heed_latency(&mut self, cohort: CohortLatency, now: Timestamp) {
        let CohortLatency { p10_ms, half_used } = cohort;
        if self.undo_in_vain(p10_ms, now) {
            return;
        }
        let base = self.latency.learn_base(p10_ms);
        let slow = base.saturating_mul(QUEUEING_FACTOR).max(base.saturating_add(QUEUEING_MS));
        let queueing = p10_ms > slow && half_used;
        self.latency.queueing = if queueing { self.latency.queueing + 1 } else { 0 };
        let ignored = is_within(self.latency.ignored_at, IGNORED_FOR, now);
        if ignored || self.latency.queueing < QUEUEING_COHORTS {
            return;
        }
        self.latency.queueing = 0;
        let measure = f64::from(p10_ms);
        let here = CutTrial { limit: self.limit, measure };
        match self.latency.trial {
            Some(trial) if self.limit <= trial.limit * JUDGED_AT => {
                self.latency.trial = Some(here);
            }
            Some(trial) if self.limit < trial.limit => {
                // The queue may still have been building up at the first cut.
                let measure = measure.max(trial.measure);
                self.latency.trial = Some(CutTrial { measure, ..trial });
            }
            _ => self.latency.trial = Some(here),
        }
        if self.limit <= FLOOR_LATENCY {
            return self.latency.adopt_base(p10_ms);
        }
        self.cut((self.limit * CUT_LATENCY).max(FLOOR_LATENCY), now);
        self.behind_at = Some(now);
        self.reason = LimitReason::Slowed { from_ms: base, to_ms: p10_ms };
    }

    /// Cuts that went far enough must have made the answers faster, whether the limit is in use or not: fewer calls are
    /// under way than before. If they did not, they are undone.
    fn undo_in_vain(&mut self, p10_ms: u32, now: Timestamp) -> bool {
        let is_far = |trial: &CutTrial| {
            self.limit <= (trial.limit * JUDGED_AT).max(FLOOR_LATENCY) && self.limit < trial.limit
        };
        let Some(trial) = self.latency.trial.filter(is_far) else { return false };
        let measure = f64::from(p10_ms);
        if measure > trial.measure * PAID_LATENCY {
            self.latency.adopt_base(p10_ms);
            (self.latency.trial, self.latency.ignored_at) = (None, Some(now));
            self.undo(trial, now);
            return true;
        }
        false
    }

    /// Nothing is learned for one round trip after a change: calls under way tell of the same excess,
    /// and refusals are often faster than other answers.
    fn count_answer(&mut self, token: CallToken, refused: bool, latency_ms: u32, now: Timestamp) {
        let settled = now.since(self.changed_at) >= self.round_trip();
        let is_doubling = self.is_doubling();
        let signs = &mut self.refusals;
        signs.addresses.note(token.target, refused, now);
        if !settled || !signs.sample.count(token.target, refused, now) {
            return;
        }
        signs.spent.add(refused, latency_ms, token.under_way, now);
        signs.refused_tenants.note(token.tenant, refused, now);
        signs.levels.note(token.under_way as usize, refused, now);
        if refused {
            let few = (signs.spent.well_at_once(self.limit) * FEW).max(1.0);
            let are_too_many = signs.levels.depend_on_calls(few, now) != Some(false);
            if !are_too_many || signs.addresses.are_the_same() {
                self.forgive_refusals(now);
            } else if signs.is_refused(is_doubling, now) {
                self.heed_refusals(now);
            }
        }
    }

    /// Cuts to the number of calls that went well at once, or restores the limit.
    fn heed_refusals(&mut self, now: Timestamp) {
        let signs = &self.refusals;
        if is_within(signs.ignored_at, IGNORED_FOR, now) || !signs.spent.has_well() {
            return;
        }
        let well_at_once = signs.spent.well_at_once(self.limit);
        let is_late = signs.spent.time(now) >= TIME_JUDGED.max(self.round_trip() * TRIPS_JUDGED);
        let known = signs.spent.is_known(is_late);
        let here = CutTrial { limit: self.limit, measure: if known { well_at_once } else { 0.0 } };
        if !known && !is_late {
            return;
        }
        match signs.trial {
            Some(trial) if self.limit <= trial.limit * JUDGED_AT => {
                if well_at_once < trial.measure * PAID_WELL {
                    (self.refusals.trial, self.refusals.ignored_at) = (None, Some(now));
                    return self.undo(trial, now);
                }
                self.refusals.trial = Some(here);
            }
            Some(trial) if self.limit < trial.limit => {}
            _ => self.refusals.trial = Some(here),
        }
        let (of, addresses) = self.refusals.sample.addresses();
        let patience = self.growth.patience_after_refusal(self.limit);
        let to = self.limit * (1.0 - self.refusals.spent.refused_share());
        self.cut(to.round().min(self.limit - 1.0).max(self.limit * CUT_REFUSALS), now);
        self.growth.patience = patience;
        if self.is_small() {
            self.behind_at = Some(now);
        }
        self.reason = LimitReason::Refused { addresses, of };
    }

    /// Refusals have another reason than the number of calls: what they led to is undone.
    fn forgive_refusals(&mut self, now: Timestamp) {
        if let Some(trial) = self.refusals.trial.take().filter(|trial| trial.limit > self.limit) {
            self.undo(trial, now);
        }
    }

    fn cut(&mut self, to: f64, now: Timestamp) {
        self.growth = Growth::after_cut_at(self.limit);
        self.limit = to.floor().max(1.0);
        self.round.cut = true;
        self.restart_samples(now);
    }

    fn undo(&mut self, trial: CutTrial, now: Timestamp) {
        self.limit = trial.limit.min(self.ceiling);
        self.growth = Growth::SEARCH;
        self.behind_at = None;
        self.reason = LimitReason::Restored;
        self.restart_samples(now);
    }

    /// Starts new samples: calls under way started at another limit.
    fn restart_samples(&mut self, now: Timestamp) {
        self.changed_at = now;
        self.latency.cohort.restart(now);
        self.refusals.sample.restart(now);
        self.refusals.spent = TimeSpent::default();
    }

    fn end_round(&mut self, now: Timestamp) {
        let GrowthRound { well, half_used, cut, .. } = self.round;
        self.round = GrowthRound { began: now, ..GrowthRound::default() };
        // Where less is asked for than allowed, nothing is learned about more.
        let ignored = is_within(self.latency.ignored_at, IGNORED_FOR, now);
        let held = (self.latency.queueing > 0 && !ignored) || self.is_refused(now);
        if !cut && half_used && well > 0 && !held {
            let more = self.growth.step(self.limit, f64::from(well));
            self.limit = (self.limit + more).min(self.ceiling);
        }
    }

    fn is_doubling(&self) -> bool {
        self.limit < self.growth.doubling_until.min(self.ceiling)
    }

    /// The origin queues calls, and it is not known that fewer calls would not change that.
    fn is_slowed(&self, now: Timestamp) -> bool {
        let ignored = is_within(self.latency.ignored_at, IGNORED_FOR, now);
        !ignored && self.latency.queueing > 0
    }

    /// Refusals say that there are too many calls; how many too many is known a little later.
    fn is_refused(&self, now: Timestamp) -> bool {
        !is_within(self.refusals.ignored_at, IGNORED_FOR, now)
            && self.refusals.is_refused(self.is_doubling(), now)
    }

    /// While the limit doubles, each call that goes well makes room for one more: it doubles per round trip, and
    /// calls that take long do not hold it up.
    fn grow_while_doubling(&mut self, in_flight: usize, now: Timestamp) {
        if self.is_doubling()
            && self.is_half_used(in_flight)
            && !self.is_slowed(now)
            && !self.is_refused(now)
        {
            self.limit = (self.limit + 1.0).min(self.growth.doubling_until).min(self.ceiling);
        }
    }
}

/// Whether `at` is at most so long ago. A time ahead of the clock is not.
fn is_within(at: Option<Timestamp>, time: Duration, now: Timestamp) -> bool {
    at.is_some_and(|at| at <= now && now.since(at) < time)
}

#[cfg(test)]
mod tests;

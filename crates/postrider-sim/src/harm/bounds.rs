//! What the sick part of a world may cost the healthy part: bounds on the run with sickness, against the
//! worse of the two runs without it.

mod load;

use std::collections::VecDeque;

use postrider_testkit::harm_bounds::{
    P50_BOUND, P99_BOUND, P99_HIGH_BOUND, THROUGHPUT_SHARE_MIN, WaitBound, lag_allowed_ms,
    percentile,
};

use super::invariants::CUT_UNDONE;
use super::plan::HarmPlan;
use super::run::{DeliveryFate, HarmRun};
use super::sick::{SickKind, SickPart};
use super::traffic::Arrival;

/// A bound that does not hold.
#[derive(Debug, Clone)]
pub struct BrokenBound {
    pub bound: &'static str,
    pub detail: String,
}

/// A bound on something that is measured, and by how much it is broken: the value as a multiple of what is allowed.
pub(crate) struct MeasuredBreach {
    pub broken: BrokenBound,
    pub times: f64,
}

impl MeasuredBreach {
    fn new(bound: &'static str, detail: String, times: f64) -> Self {
        Self { broken: BrokenBound { bound, detail }, times }
    }

    /// So little too much that other random numbers may show something else.
    pub(crate) fn is_near(&self) -> bool {
        self.times <= NEAR_MISS
    }
}

/// The three runs of a world.
pub(crate) struct HarmRuns<'a> {
    pub plan: &'a HarmPlan,
    pub alone: HarmRun,
    pub well: HarmRun,
    pub sick: HarmRun,
}

/// Time from due to written of the healthy deliveries, in milliseconds, without that for opening a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitFigures {
    /// Without those that were due just when something became sick.
    pub p50: i64,
    pub p99: i64,
    pub p99_high: i64,
}

const WINDOW_MS: i64 = 30_000;
const HEAL_MS: i64 = 60_000;
/// What waited for a sick part comes in the seconds after that is well again.
const HEALED_MS: i64 = 15_000;
const HEALED_LAG_MS: i64 = 2_000;
/// So few deliveries are no measure of a speed; that single ones wait is a matter of the 99th percentile.
const FEW: usize = 5;
const NEVER: i64 = i64::MAX / 4;
/// Beyond this multiple of what is allowed, one run is enough.
const NEAR_MISS: f64 = 1.5;

impl HarmRuns<'_> {
    pub(crate) fn figures(&self) -> [WaitFigures; 3] {
        [&self.alone, &self.well, &self.sick].map(|run| self.waits(run))
    }

    /// Bounds on what is measured. One run is a sample: with other random numbers, the figures are others.
    pub(crate) fn check_measured(&self) -> Vec<MeasuredBreach> {
        let mut broken = Vec::new();
        self.check_waits(&mut broken);
        self.check_lag(&mut broken);
        self.check_throughput(&mut broken);
        self.check_healing(&mut broken);
        broken.extend(load::check(self.plan, &self.sick.calls));
        let measured = self.sick.broken.iter().filter(|broken| is_measured(broken)).cloned();
        broken.extend(measured.map(|broken| MeasuredBreach { broken, times: 1.0 }));
        broken
    }

    /// What holds in every run, whatever the random numbers are.
    pub(crate) fn check_always(&self) -> Vec<BrokenBound> {
        let mut broken = Vec::new();
        self.check_attempts(&mut broken);
        self.check_all_arrive(&mut broken);
        self.check_local(&mut broken);
        broken.extend(self.sick.broken.iter().filter(|broken| !is_measured(broken)).cloned());
        broken
    }

    fn healthy(&self) -> impl Iterator<Item = &Arrival> {
        self.plan.arrivals.iter().filter(|arrival| !arrival.sick)
    }

    fn waits(&self, run: &HarmRun) -> WaitFigures {
        // A call that hangs holds its connection, and to open another takes its time: no rule avoids that.
        let wait = |a: &Arrival| {
            let fate = run.fates[a.id as usize];
            fate.written.map_or(NEVER, |at| at - fate.opening_ms - a.at_ms)
        };
        let all: Vec<_> = self.healthy().map(wait).collect();
        let known = self.healthy().filter(|a| !self.plan.is_onset(a.at_ms)).map(wait).collect();
        let high: Vec<_> = self.healthy().filter(|a| a.class == 0).map(wait).collect();
        let (p50, p99) = (percentile(known, 0.5), percentile(all, 0.99));
        WaitFigures { p50, p99, p99_high: percentile(high, 0.99) }
    }

    fn check_waits(&self, broken: &mut Vec<MeasuredBreach>) {
        let [alone, well, sick] = self.figures();
        let mut check = |bound, is: i64, alone: i64, well: i64, wait: WaitBound| {
            let allowed = wait.allowed(alone.max(well));
            if is > allowed {
                let detail = format!(
                    "{is} ms; {alone} ms alone, {well} ms if all are well, {allowed} ms allowed"
                );
                broken.push(MeasuredBreach::new(bound, detail, is as f64 / allowed as f64));
            }
        };
        check("p50 of the wait", sick.p50, alone.p50, well.p50, P50_BOUND);
        check("p99 of the wait", sick.p99, alone.p99, well.p99, P99_BOUND);
        let (bound, wait) = ("p99 of the wait, urgent", P99_HIGH_BOUND);
        check(bound, sick.p99_high, alone.p99_high, well.p99_high, wait);
    }

    /// What is delivered by a time in the reference is delivered hardly later, but for a few.
    fn check_lag(&self, broken: &mut Vec<MeasuredBreach>) {
        let [alone, well, sick] =
            [&self.alone, &self.well, &self.sick].map(|run| self.accepted(run));
        let reference: Vec<_> = alone.iter().zip(&well).map(|(a, b)| *a.max(b)).collect();
        let slower = self.slower_backlog(&reference);
        let lags = sick.iter().zip(reference.iter().zip(slower).skip(FEW));
        let lags = lags.map(|(is, (reference, slower))| (*is, is - reference, slower));
        let excess = |(at, lag, slower): (i64, i64, i64)| {
            let allowed = lag_allowed_ms(self.plan.since_onset(at));
            let allowed = match self.plan.since_healing(at) {
                Some(..HEALED_MS) => allowed.max(HEALED_LAG_MS),
                _ => allowed,
            };
            let allowed = allowed + slower;
            (lag > allowed).then_some((lag - allowed, lag, at))
        };
        if let Some((excess, lag, at)) = lags.filter_map(excess).max() {
            let detail = format!("{lag} ms behind at {at} ms");
            let times = lag as f64 / (lag - excess) as f64;
            broken.push(MeasuredBreach::new("lag of the delivered", detail, times));
        }
    }

    /// How much longer a backlog of the reference takes at the least speed that is allowed, at each of its deliveries:
    /// by the longest wait of the last half minute.
    fn slower_backlog(&self, reference: &[i64]) -> Vec<i64> {
        let mut due: Vec<_> = self.healthy().map(|arrival| arrival.at_ms).collect();
        due.sort_unstable();
        let mut longest: VecDeque<(i64, i64)> = VecDeque::new();
        let slower = reference.iter().zip(due).map(|(at, due)| {
            let wait = at - due;
            while longest.back().is_some_and(|(_, other)| *other <= wait) {
                longest.pop_back();
            }
            longest.push_back((*at, wait));
            while longest.front().is_some_and(|(other, _)| at - other > WINDOW_MS) {
                longest.pop_front();
            }
            let longest = longest.front().map_or(0, |(_, wait)| *wait);
            (longest as f64 * (1.0 / THROUGHPUT_SHARE_MIN - 1.0)) as i64
        });
        slower.collect()
    }

    /// When each healthy delivery was accepted, in order of time.
    fn accepted(&self, run: &HarmRun) -> Vec<i64> {
        let accepted = |a: &Arrival| run.fates[a.id as usize].accepted.unwrap_or(NEVER);
        let mut times: Vec<_> = self.healthy().map(accepted).collect();
        times.sort_unstable();
        times
    }

    /// While healthy work waits, it goes on at nearly the speed of the reference.
    fn check_throughput(&self, broken: &mut Vec<MeasuredBreach>) {
        let [alone, well, sick] =
            [&self.alone, &self.well, &self.sick].map(|run| self.accepted(run));
        let count = |times: &[i64], from: i64| {
            times.partition_point(|t| *t < from + WINDOW_MS) - times.partition_point(|t| *t < from)
        };
        for from in (0..self.plan.size.length_ms).step_by(5_000) {
            let is = count(&sick, from);
            let reference = count(&alone, from).min(count(&well, from));
            let times = reference as f64 * THROUGHPUT_SHARE_MIN / (is + FEW) as f64;
            if times <= 1.0 || !self.is_backlogged(from) {
                continue;
            }
            let detail = format!("{is} deliveries from {from} ms on, {reference} in the reference");
            broken.push(MeasuredBreach::new("throughput in 30 s", detail, times));
            return;
        }
    }

    /// Whether healthy work waited all the time in the run with sickness.
    fn is_backlogged(&self, from: i64) -> bool {
        (from..from + WINDOW_MS).step_by(1_000).all(|at| {
            self.healthy().any(|a| {
                let written = self.sick.fates[a.id as usize].written.unwrap_or(NEVER);
                a.at_ms <= at && written > at
            })
        })
    }

    fn check_attempts(&self, broken: &mut Vec<BrokenBound>) {
        let sum = |run: &HarmRun, of: fn(&DeliveryFate) -> u32| -> u32 {
            self.healthy().map(|a| of(&run.fates[a.id as usize])).sum()
        };
        let mut check = |bound, of: fn(&DeliveryFate) -> u32| {
            let (is, allowed) =
                (sum(&self.sick, of), sum(&self.alone, of).max(sum(&self.well, of)));
            if is > allowed {
                broken.push(BrokenBound {
                    bound,
                    detail: format!("{is}, {allowed} in the reference"),
                });
            }
        };
        check("counted attempts", |fate| fate.counted);
        check("dead letters", |fate| u32::from(fate.dead));
    }

    /// What arrives in both references arrives, every single delivery.
    fn check_all_arrive(&self, broken: &mut Vec<BrokenBound>) {
        let has_arrived = |run: &HarmRun, a: &Arrival| run.fates[a.id as usize].accepted.is_some();
        let is_lost = |a: &&Arrival| {
            has_arrived(&self.alone, a) && has_arrived(&self.well, a) && !has_arrived(&self.sick, a)
        };
        let lost: Vec<_> = self.healthy().filter(is_lost).collect();
        if let Some(Arrival { tenant, origin, at_ms, .. }) = lost.first() {
            let count = lost.len();
            let detail = format!("{count}; the first is of t{tenant} at o{origin} from {at_ms} ms");
            broken.push(BrokenBound { bound: "all healthy work arrives", detail });
        }
    }

    /// What only our own process is to blame for costs no attempt and no message.
    fn check_local(&self, broken: &mut Vec<BrokenBound>) {
        let is_local = |nth: usize| matches!(self.plan.sick[nth].kind, SickKind::Local);
        let parts = 0..self.plan.sick.len();
        let only_local = |a: &&Arrival| {
            a.parts != 0 && parts.clone().all(|nth| !a.is_in_part(nth) || is_local(nth))
        };
        let fates = || {
            let ids = self.plan.arrivals.iter().filter(only_local).map(|a| a.id as usize);
            ids.map(|id| (self.sick.fates[id], self.well.fates[id]))
        };
        // The run in health may have ended before its last attempts.
        let extra = fates().filter(|(sick, well)| sick.counted > well.counted.max(1)).count();
        let dead = fates().filter(|(sick, well)| sick.dead && !well.dead).count();
        if extra + dead > 0 {
            let detail = format!("{extra} deliveries with more attempts, {dead} dead letters");
            broken.push(BrokenBound { bound: "our own limits cost no attempt", detail });
        }
    }

    /// What is well again is served as if it had never been sick.
    fn check_healing(&self, broken: &mut Vec<MeasuredBreach>) {
        let healed: Option<Vec<_>> = self.plan.sick.iter().map(SickPart::healed_at).collect();
        let Some(healed_at) = healed.and_then(|times| times.into_iter().max()) else { return };
        let from = healed_at + HEAL_MS;
        let late: Vec<_> =
            self.plan.arrivals.iter().filter(|a| a.sick && a.at_ms >= from).collect();
        let in_time = |run: &HarmRun| {
            let accepted = |a: &&&Arrival| {
                let at = run.fates[a.id as usize].accepted;
                at.is_some_and(|at| at <= self.plan.size.length_ms + 1_000)
            };
            late.iter().filter(accepted).count()
        };
        let (is, reference) = (in_time(&self.sick), in_time(&self.well));
        let times = reference as f64 * 0.9 / (is + 3) as f64;
        if times > 1.0 {
            let detail = format!("{is} of {reference} from {from} ms on");
            broken.push(MeasuredBreach::new("what healed is served", detail, times));
        }
    }
}

/// Whether a limit was cut, and restored, is decided by samples of the latency: these are measured, too.
fn is_measured(broken: &BrokenBound) -> bool {
    broken.bound == CUT_UNDONE
}

#[cfg(test)]
mod tests;

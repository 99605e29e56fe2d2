//! What the sick part of a world may cost the healthy part: bounds on the run with sickness, against the
//! worse of the two runs without it.

mod load;

use postrider_testkit::harm_bounds::{
    P50_BOUND, P99_BOUND, P99_HIGH_BOUND, THROUGHPUT_SHARE_MIN, WaitBound, lag_allowed_ms,
    percentile,
};

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
    pub p50: i64,
    pub p99: i64,
    pub p99_high: i64,
}

const WINDOW_MS: i64 = 30_000;
const HEAL_MS: i64 = 60_000;
/// What waited for a sick part comes in the seconds after that is well again.
const HEALED_MS: i64 = 15_000;
const HEALED_LAG_MS: i64 = 2_000;
const NEVER: i64 = i64::MAX / 4;

impl HarmRuns<'_> {
    pub(crate) fn figures(&self) -> [WaitFigures; 3] {
        [&self.alone, &self.well, &self.sick].map(|run| self.waits(run))
    }

    pub(crate) fn check(&self) -> Vec<BrokenBound> {
        let mut broken = Vec::new();
        self.check_waits(&mut broken);
        self.check_lag(&mut broken);
        self.check_throughput(&mut broken);
        self.check_attempts(&mut broken);
        self.check_healing(&mut broken);
        broken.extend(load::check(self.plan, &self.sick.calls));
        self.check_local(&mut broken);
        broken.extend(self.sick.broken.iter().cloned());
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
        let high: Vec<_> = self.healthy().filter(|a| a.class == 0).map(wait).collect();
        let (p50, p99) = (percentile(all.clone(), 0.5), percentile(all, 0.99));
        WaitFigures { p50, p99, p99_high: percentile(high, 0.99) }
    }

    fn check_waits(&self, broken: &mut Vec<BrokenBound>) {
        let [alone, well, sick] = self.figures();
        let mut check = |bound, is: i64, alone: i64, well: i64, wait: WaitBound| {
            let allowed = wait.allowed(alone.max(well));
            if is > allowed {
                let detail = format!(
                    "{is} ms; {alone} ms alone, {well} ms if all are well, {allowed} ms allowed"
                );
                broken.push(BrokenBound { bound, detail });
            }
        };
        check("p50 of the wait", sick.p50, alone.p50, well.p50, P50_BOUND);
        check("p99 of the wait", sick.p99, alone.p99, well.p99, P99_BOUND);
        let (bound, wait) = ("p99 of the wait, urgent", P99_HIGH_BOUND);
        check(bound, sick.p99_high, alone.p99_high, well.p99_high, wait);
    }

    /// The n-th delivery comes hardly later than the n-th of the reference.
    fn check_lag(&self, broken: &mut Vec<BrokenBound>) {
        let [alone, well, sick] =
            [&self.alone, &self.well, &self.sick].map(|run| self.accepted(run));
        let lags =
            sick.iter().zip(alone.iter().zip(&well)).map(|(is, (a, b))| (*is, is - a.max(b)));
        let excess = |(at, lag): (i64, i64)| {
            let allowed = lag_allowed_ms(self.plan.since_onset(at));
            let allowed = match self.plan.since_healing(at) {
                Some(..HEALED_MS) => allowed.max(HEALED_LAG_MS),
                _ => allowed,
            };
            (lag > allowed).then_some((lag - allowed, lag, at))
        };
        if let Some((_, lag, at)) = lags.filter_map(excess).max() {
            let detail = format!("{lag} ms behind at {at} ms");
            broken.push(BrokenBound { bound: "lag of the delivered", detail });
        }
    }

    /// When each healthy delivery was accepted, in order of time.
    fn accepted(&self, run: &HarmRun) -> Vec<i64> {
        let accepted = |a: &Arrival| run.fates[a.id as usize].accepted.unwrap_or(NEVER);
        let mut times: Vec<_> = self.healthy().map(accepted).collect();
        times.sort_unstable();
        times
    }

    /// While healthy work waits, it goes on at nearly the speed of the reference.
    fn check_throughput(&self, broken: &mut Vec<BrokenBound>) {
        let [alone, well, sick] =
            [&self.alone, &self.well, &self.sick].map(|run| self.accepted(run));
        let count = |times: &[i64], from: i64| {
            times.partition_point(|t| *t < from + WINDOW_MS) - times.partition_point(|t| *t < from)
        };
        for from in (0..self.plan.size.length_ms).step_by(5_000) {
            let is = count(&sick, from);
            let reference = count(&alone, from).min(count(&well, from));
            // 5 deliveries are no measure of a speed.
            if (is + 5) as f64 >= reference as f64 * THROUGHPUT_SHARE_MIN
                || !self.is_backlogged(from)
            {
                continue;
            }
            let detail = format!("{is} deliveries from {from} ms on, {reference} in the reference");
            broken.push(BrokenBound { bound: "throughput in 30 s", detail });
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
    fn check_healing(&self, broken: &mut Vec<BrokenBound>) {
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
        if ((is + 3) as f64) < reference as f64 * 0.9 {
            let detail = format!("{is} of {reference} from {from} ms on");
            broken.push(BrokenBound { bound: "what healed is served", detail });
        }
    }
}

#[cfg(test)]
mod tests;

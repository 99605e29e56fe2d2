//! What the sick part of a world may cost the healthy part on a real machine: the bounds of the simulator, half as
//! wide again, and when two equal runs differ too much to say anything.

use postrider_testkit::harm_bounds::{
    P50_BOUND, P99_BOUND, P99_HIGH_BOUND, THROUGHPUT_SHARE_MIN, WaitBound, lag_allowed_ms,
    percentile,
};

use super::run::{FinishedRun, MessageFate, NEVER, shown_wait};
use super::traffic::DueMessage;

/// A real machine is less even than a simulated one.
const WIDER: f64 = 1.5;
const WINDOW_MS: i64 = 30_000;
/// Equal runs may differ by this share of a bound.
const DIFFERENCE_MAX: f64 = 1.0 / 3.0;
/// Later than this, the machine had no time for the messages of a run in health.
const LATE_MAX_MS: i64 = 100;
/// Runs at the same time share the machine: what a sick one takes of it slows the others down. Up to so late, it took
/// nothing that matters.
const UNDISTURBED_MS: i64 = 50;
/// A handful of deliveries is no measure of a speed.
const FEW: usize = 5;

/// What happened to the healthy messages of one run.
pub(super) struct HealthyPart {
    pub(super) p50: i64,
    pub(super) p99: i64,
    p99_high: i64,
    /// When they were accepted, in order of time.
    accepted: Vec<i64>,
    /// Due and arrived.
    waits: Vec<(i64, i64)>,
    /// Attempts that were counted beyond the one that each needs.
    burned: u32,
    dead: u32,
    /// How late the messages were handed in.
    late_p99_ms: i64,
}

impl HealthyPart {
    pub(super) fn new(messages: &[DueMessage], run: &FinishedRun) -> Self {
        let fates = &run.fates;
        let healthy: Vec<_> =
            messages.iter().zip(fates).filter(|(message, _)| message.healthy).collect();
        let waits = |high: bool| -> Vec<_> {
            let chosen = healthy.iter().filter(|(message, _)| !high || message.is_high());
            chosen.map(|(message, fate)| fate.wait_ms(message)).collect()
        };
        let mut accepted: Vec<_> =
            healthy.iter().map(|(_, fate)| fate.accepted_ms.unwrap_or(NEVER)).collect();
        accepted.sort_unstable();
        let arrived = |fate: &MessageFate| fate.arrived_ms.unwrap_or(NEVER);
        Self {
            p50: percentile(waits(false), 0.5),
            p99: percentile(waits(false), 0.99),
            p99_high: percentile(waits(true), 0.99),
            accepted,
            waits: healthy.iter().map(|(m, fate)| (m.due_ms as i64, arrived(fate))).collect(),
            burned: healthy.iter().map(|(_, fate)| fate.counted.saturating_sub(1)).sum(),
            dead: healthy.iter().map(|(_, fate)| u32::from(fate.dead)).sum(),
            late_p99_ms: run.late_p99_ms,
        }
    }

    fn within(&self, from: i64) -> usize {
        let until = self.accepted.partition_point(|at| *at < from + WINDOW_MS);
        until - self.accepted.partition_point(|at| *at < from)
    }

    /// The seconds in which some of them waited.
    fn waiting_seconds(&self, length_ms: i64) -> Vec<bool> {
        let seconds = (length_ms + WINDOW_MS) / 1_000;
        let mut waiting = vec![false; seconds as usize];
        for (due, arrived) in &self.waits {
            let until = ((arrived - 1) / 1_000).min(seconds - 1);
            for second in (due + 999) / 1_000..=until {
                waiting[second as usize] = true;
            }
        }
        waiting
    }
}

/// The healthy part in each run of a world.
pub(super) struct ComparedRuns<'a> {
    pub(super) alone: HealthyPart,
    pub(super) well: HealthyPart,
    /// The same run as `well` again.
    pub(super) well_again: HealthyPart,
    pub(super) sick: HealthyPart,
    pub(super) length_ms: i64,
    /// So much later may everything be, because the servers share a store.
    pub(super) extra_ms: i64,
    /// How long before a time something last became sick.
    pub(super) since_onset: Box<dyn Fn(i64) -> i64 + 'a>,
}

type WaitFigure = (&'static str, WaitBound, fn(&HealthyPart) -> i64);
type CountFigure = (&'static str, fn(&HealthyPart) -> i64);

const WAITS: [WaitFigure; 3] = [
    ("p50", P50_BOUND, |part| part.p50),
    ("p99", P99_BOUND, |part| part.p99),
    ("p99 of high", P99_HIGH_BOUND, |part| part.p99_high),
];

impl ComparedRuns<'_> {
    fn references(&self) -> [&HealthyPart; 3] {
        [&self.alone, &self.well, &self.well_again]
    }

    fn worst(&self, of: impl Fn(&HealthyPart) -> i64) -> i64 {
        self.references().into_iter().map(of).max().unwrap_or(0)
    }

    /// Why the runs say nothing: the machine was busy, or the same traffic in the same health took different times.
    pub(super) fn void(&self) -> Option<String> {
        let late = self.worst(|part| part.late_p99_ms);
        if late > LATE_MAX_MS {
            return Some(format!("messages were handed in {} late in health", shown_wait(late)));
        }
        for (name, bound, of) in WAITS {
            let (a, b) = (of(&self.well), of(&self.well_again));
            let allowed = wider(bound.allowed(a.max(b))) as f64 * DIFFERENCE_MAX;
            if (a - b).abs() as f64 > allowed {
                return Some(format!(
                    "{name} {} and {} in equal runs",
                    shown_wait(a),
                    shown_wait(b)
                ));
            }
        }
        let (a, b) = (&self.well.accepted, &self.well_again.accepted);
        a.iter().zip(b).find_map(|(a, b)| {
            let allowed = wider(lag_allowed_ms((self.since_onset)(*a))) as f64 * DIFFERENCE_MAX;
            let lag = (a - b).abs();
            (lag as f64 > allowed)
                .then(|| format!("{} of lag at {} in equal runs", shown_wait(lag), shown_wait(*a)))
        })
    }

    /// Why runs in health may have been slowed down by those beside them.
    pub(super) fn disturbed(&self) -> Option<String> {
        let (late, p99) = (self.worst(|part| part.late_p99_ms), self.worst(|part| part.p99));
        let is_so = late.max(p99) > UNDISTURBED_MS;
        is_so.then(|| format!("p99 {}, handed in {} late", shown_wait(p99), shown_wait(late)))
    }

    pub(super) fn broken(&self) -> Vec<String> {
        let mut broken: Vec<_> = WAITS.into_iter().filter_map(|wait| self.late(wait)).collect();
        broken.extend(self.behind());
        broken.extend(self.slower());
        let counts: [CountFigure; 2] =
            [("burned attempts", |p| p.burned.into()), ("dead letters", |p| p.dead.into())];
        for (name, of) in counts {
            let (is, allowed) = (of(&self.sick), self.worst(of));
            if is > allowed {
                broken.push(format!("{name}: {is}, {allowed} in the reference"));
            }
        }
        broken
    }

    fn late(&self, (name, bound, of): WaitFigure) -> Option<String> {
        let (is, reference) = (of(&self.sick), self.worst(of));
        let allowed = wider(bound.allowed(reference)) + self.extra_ms;
        (is > allowed).then(|| format!("{name}: {}, {allowed} ms allowed", shown_wait(is)))
    }

    /// The n-th healthy delivery comes hardly later than the n-th of the reference.
    fn behind(&self) -> Option<String> {
        let excess = |(n, is): (usize, &i64)| {
            let lag = is - self.worst(|part| part.accepted.get(n).copied().unwrap_or(NEVER));
            let allowed = wider(lag_allowed_ms((self.since_onset)(*is))) + self.extra_ms;
            (lag > allowed).then_some((lag - allowed, lag, *is))
        };
        let (_, lag, at) = self.sick.accepted.iter().enumerate().filter_map(excess).max()?;
        Some(format!("lag: {} at {}", shown_wait(lag), shown_wait(at)))
    }

    /// While healthy work waits, it goes on at nearly the speed of the reference.
    fn slower(&self) -> Option<String> {
        let share_min = 1.0 - (1.0 - THROUGHPUT_SHARE_MIN) * WIDER;
        let waiting = self.sick.waiting_seconds(self.length_ms);
        (0..self.length_ms).step_by(5_000).find_map(|from| {
            let first = (from / 1_000) as usize;
            let is_backlogged =
                waiting[first..first + WINDOW_MS as usize / 1_000].iter().all(|w| *w);
            let is = self.sick.within(from);
            let reference = self.references().map(|part| part.within(from)).into_iter().min()?;
            let is_slower = ((is + FEW) as f64) < reference as f64 * share_min;
            (is_backlogged && is_slower).then(|| {
                format!("throughput: {is} in 30 s from {from} ms on, {reference} in the reference")
            })
        })
    }
}

fn wider(allowed_ms: i64) -> i64 {
    (allowed_ms as f64 * WIDER) as i64
}

#[cfg(test)]
mod tests {
    use super::super::traffic::{DueDestination, DueMessage};
    use super::*;

    const LENGTH_MS: i64 = 60_000;

    fn messages() -> Vec<DueMessage> {
        let message = |n: u64| DueMessage {
            due_ms: n * 20,
            tenant: 1,
            class: if n.is_multiple_of(10) { "otp" } else { "transactional" },
            destination: DueDestination::Mailbox("a".to_owned()),
            healthy: true,
        };
        (0..LENGTH_MS as u64 / 20).map(message).collect()
    }

    /// Each arrives 5 ms after its time, changed like this.
    fn part(change: impl Fn(&DueMessage, &mut MessageFate)) -> HealthyPart {
        let messages = messages();
        let fates: Vec<_> = messages
            .iter()
            .map(|message| {
                let at = Some(message.due_ms as i64 + 5);
                let calls = 1;
                let mut fate =
                    MessageFate { arrived_ms: at, accepted_ms: at, calls, counted: 1, dead: false };
                change(message, &mut fate);
                fate
            })
            .collect();
        let run = FinishedRun { fates, late_p99_ms: 0, metrics: String::new() };
        HealthyPart::new(&messages, &run)
    }

    fn compared(change: impl Fn(&DueMessage, &mut MessageFate)) -> ComparedRuns<'static> {
        let well = || part(|_, _| {});
        ComparedRuns {
            alone: well(),
            well: well(),
            well_again: well(),
            sick: part(change),
            length_ms: LENGTH_MS,
            extra_ms: 0,
            since_onset: Box::new(|at| at),
        }
    }

    fn later(fate: &mut MessageFate, ms: i64) {
        fate.arrived_ms = fate.arrived_ms.map(|at| at + ms);
        fate.accepted_ms = fate.accepted_ms.map(|at| at + ms);
    }

    fn names(runs: &ComparedRuns<'_>) -> Vec<String> {
        let name = |text: String| text.split(':').next().unwrap_or_default().to_owned();
        runs.broken().into_iter().map(name).collect()
    }

    #[test]
    fn a_run_like_the_reference_breaks_nothing_and_is_not_void() {
        let runs = compared(|_, _| {});
        assert!(runs.broken().is_empty() && runs.void().is_none());
    }

    #[test]
    fn waiting_longer_breaks_the_bounds_on_waiting() {
        assert_eq!(names(&compared(|_, fate| later(fate, 45))), ["p50"]);
        assert_eq!(names(&compared(|_, fate| later(fate, 500))), ["p50", "p99", "p99 of high"]);
        let one_in_fifty = |message: &DueMessage, fate: &mut MessageFate| {
            later(fate, if message.due_ms % 1_000 == 20 { 420 } else { 0 });
        };
        assert_eq!(names(&compared(one_in_fifty)), ["p99"]);
    }

    #[test]
    fn a_stop_breaks_the_bounds_on_lag_and_throughput() {
        let runs = compared(|message, fate| {
            if message.due_ms > 20_000 {
                (fate.arrived_ms, fate.accepted_ms) = (None, None);
            }
        });
        assert_eq!(names(&runs), ["p50", "p99", "p99 of high", "lag", "throughput"]);
    }

    #[test]
    fn one_more_attempt_and_one_dead_letter_break_their_bounds() {
        let only = |message: &DueMessage| u32::from(message.due_ms == 40);
        assert_eq!(names(&compared(|m, fate| fate.counted += only(m))), ["burned attempts"]);
        assert_eq!(names(&compared(|m, fate| fate.dead = only(m) == 1)), ["dead letters"]);
    }

    #[test]
    fn equal_runs_that_differ_are_void() {
        let mut runs = compared(|_, _| {});
        runs.well_again = part(|_, fate| later(fate, 300));
        assert!(runs.void().is_some());
        let mut runs = compared(|_, _| {});
        runs.alone.late_p99_ms = 500;
        assert!(runs.void().is_some());
    }

    #[test]
    fn servers_that_share_a_store_may_be_so_much_later() {
        let mut runs = compared(|_, fate| later(fate, 230));
        runs.extra_ms = 200;
        assert!(runs.broken().is_empty(), "{:?}", runs.broken());
        let mut runs = compared(|_, fate| later(fate, 245));
        runs.extra_ms = 200;
        assert_eq!(names(&runs), ["p50"]);
    }

    #[test]
    fn runs_that_were_late_in_health_may_have_been_disturbed() {
        let mut runs = compared(|_, fate| later(fate, 500));
        assert!(runs.disturbed().is_none(), "that a sick run is late is no excuse");
        runs.well_again = part(|_, fate| later(fate, 60));
        assert!(runs.disturbed().is_some());
        let mut runs = compared(|_, _| {});
        runs.alone.late_p99_ms = 60;
        assert!(runs.disturbed().is_some());
    }
}

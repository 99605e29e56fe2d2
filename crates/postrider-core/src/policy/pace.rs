//! The pace that a provider seems to take, learned from its 429s and 503s: a little below what it accepted when it
//! complained, then slowly up again until it complains once more. A provider that never complains is not
//! paced. Complaints that do not become fewer at a lower pace have another reason and are then ignored.
//! Reads no clock and makes no call.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::limiter::{Limiter, Rate};
use crate::policy::signal::Signal;
use crate::policy::window::{SlidingWindow, WindowCounts};

/// The window over which calls and complaints are counted.
const WITHIN: Duration = Duration::from_secs(2);
/// So many complaints, and so large a share of all answers, say "too fast" ...
const COMPLAINTS_MIN: u32 = 2;
/// ... also where each is about one address, if they are a share of so many that it is no chance ...
const MANY: u32 = 100;
const SHARE_AT_FIRST: f64 = 0.2;
/// ... and where they are overload (503), which may have other reasons, if it lasts and most calls get it ...
const OVERLOADED_MIN: u32 = 8;
const SHARE_OVERLOADED: f64 = 0.5;
/// ... less where a pace was learned already ...
const COMPLAINTS_SHARE: f64 = 0.02;
/// ... and a tenth of that share where complaints came at this pace before ...
const SHARE_CONFIRMED: f64 = 0.002;
/// ... at most this often: calls under way complain about the same excess.
const ONCE_PER: Duration = Duration::from_secs(1);
/// Refusals come back faster than acceptances: the first ones are judged after a second, or once so many
/// calls were accepted.
const ACCEPTED_MIN: u32 = 20;
/// Where most calls get complaints, hardly anything is accepted.
const SHARE_OF_MOST: f64 = 0.5;
/// The learned pace, as a share of what was accepted.
const BELOW: f64 = 0.97;
/// How fast it grows per second near where complaints came twice; beyond that ever faster.
const GROWTH: f64 = 0.002;
/// How fast while it is not known how far it can grow: the first complaints come in odd moments.
const GROWTH_AT_FIRST: f64 = 0.1;
/// Two paces that differ by less are the same.
const SAME: f64 = 0.2;
const GROWTH_MAX: f64 = 0.5;
const DOUBLES_EVERY_S: f64 = 4.0;
/// How long a growing pace counts as near the last complaint.
const NEAR: Duration = Duration::from_secs(20);
/// Calls that are late by up to this much are made up for.
const BURST_WINDOW: Duration = Duration::from_millis(50);
/// The slowest pace.
const PER_S_MIN: f64 = 0.5;
/// After so many cuts that changed nothing, complaints are ignored for a while.
const VAIN_MAX: u32 = 3;
/// So many answers tell whether a cut changed anything.
const VAIN_CALLS: u32 = 8;
const LEAVE_ALONE: Duration = Duration::from_secs(60);
/// A pace that held no lane for so long is forgotten.
const FORGET: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub struct Pace {
    /// All answers; what is counted as failed are complaints.
    answers: SlidingWindow,
    /// The first answer after a rest.
    first_at: Timestamp,
    /// The provider is left alone until then; answers to calls that were under way tell nothing.
    resting_until: Timestamp,
    learned: Option<LearnedPace>,
    /// Cuts in a row that changed nothing.
    vain: u32,
    left_alone_until: Timestamp,
    /// When many calls got complaints first that may have another reason.
    suspected_at: Timestamp,
}

#[derive(Debug, Clone)]
struct LearnedPace {
    per_s: f64,
    limiter: Limiter,
    cut_at: Timestamp,
    cut_to: f64,
    /// The share of complaints that led to the cut.
    share: f64,
    /// Answers since then, and the complaints among them; not those of calls that were under way.
    since: WindowCounts,
    grown_at: Timestamp,
    /// Complaints came at about this pace before.
    confirmed: bool,
    /// It held a lane since it last grew.
    limits: bool,
    limited_at: Timestamp,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            answers: SlidingWindow::new(WITHIN),
            first_at: Timestamp::default(),
            resting_until: Timestamp::default(),
            learned: None,
            vain: 0,
            left_alone_until: Timestamp::default(),
            suspected_at: Timestamp::default(),
        }
    }
}

impl Pace {
    /// Calls per second that the provider seems to take, if it ever complained.
    pub fn per_s(&self) -> Option<f64> {
        self.learned.as_ref().map(|learned| learned.per_s)
    }

    /// How many of `want` calls may be made now, or when the next one may.
    pub fn available(&mut self, want: usize, now: Timestamp) -> Result<usize, Timestamp> {
        let Some(learned) = &mut self.learned else { return Ok(want) };
        if now.since(learned.limited_at) > FORGET {
            self.learned = None;
            return Ok(want);
        }
        learned.grow(now);
        let count = learned.limiter.available(want, now);
        if count < want {
            learned.limits = true;
            learned.limited_at = now;
        }
        if count == 0 {
            Err(learned.limiter.next(now).max(Timestamp(now.0 + 1)))
        } else {
            Ok(count)
        }
    }

    /// Counts calls that went well before the provider ever complained.
    pub fn count_well(&mut self, calls: usize, at: Timestamp) {
        if self.first_at == Timestamp::default() {
            self.first_at = at;
        }
        self.answers.count_many(calls, false, at);
    }

    /// When the next call may be made. Changes nothing.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let next = self.learned.as_ref().map(|learned| learned.limiter.next(now));
        next.filter(|next| *next > now)
    }

    pub fn take(&mut self, calls: usize, now: Timestamp) {
        if let Some(learned) = &mut self.learned {
            learned.limiter.take(calls, now);
        }
    }

    pub fn refund(&mut self, calls: usize, now: Timestamp) {
        if let Some(learned) = &mut self.learned {
            learned.limiter.refund(calls, now);
        }
    }

    /// No calls are made until then: what comes too fast for a learned pace is counted anew.
    pub fn rest(&mut self, until: Timestamp) {
        if self.learned.is_some() {
            self.resting_until = self.resting_until.max(until);
            self.answers = SlidingWindow::new(WITHIN);
        }
    }

    /// The end of a call. A few complaints, each `of_one` address, begin nothing; once a pace is learned,
    /// every complaint may be about it.
    pub fn report(&mut self, signal: Signal, of_one: bool, now: Timestamp) {
        let complains = signal.is_too_much();
        if (!complains && signal != Signal::Well) || now < self.resting_until {
            return;
        }
        if self.answers.tally(now).calls == 0 {
            self.first_at = now;
        }
        self.answers.count(complains, now);
        if let Some(learned) =
            self.learned.as_mut().filter(|last| now.since(last.cut_at) >= ONCE_PER)
        {
            learned.since.calls = learned.since.calls.saturating_add(1);
            learned.since.failed = learned.since.failed.saturating_add(u32::from(complains));
        }
        if !complains || now < self.left_alone_until {
            return;
        }
        let tally = self.answers.tally(now);
        if self.learned.is_none() {
            let is_begun = match signal {
                Signal::Overloaded => self.is_overload(tally, now),
                _ => !of_one || self.is_lasting(tally, now),
            };
            if !is_begun {
                return;
            }
        }
        let (since, needed) = match &self.learned {
            Some(last) if last.confirmed => (last.cut_at.max(self.first_at), SHARE_CONFIRMED),
            Some(last) => (last.cut_at.max(self.first_at), COMPLAINTS_SHARE),
            None => (self.first_at, SHARE_AT_FIRST),
        };
        let evident = self.learned.is_none() && tally.calls - tally.failed >= ACCEPTED_MIN;
        let judged = evident || now.since(since) >= ONCE_PER;
        // Where most calls go well, it takes some to see what the last cut changed.
        let is_seen = self.learned.as_ref().is_none_or(|last| last.since.calls >= VAIN_CALLS);
        let judged = judged && (is_seen || share(tally) >= SHARE_OF_MOST);
        if judged && tally.failed >= COMPLAINTS_MIN && share(tally) >= needed {
            self.cut(tally, now);
        }
    }

    /// Whether many calls get complaints, each about one address, for longer than one burst of them takes.
    fn is_lasting(&mut self, tally: WindowCounts, now: Timestamp) -> bool {
        tally.calls >= MANY && share(tally) >= SHARE_AT_FIRST && self.is_suspected(now)
    }

    /// Whether more is refused than accepted, for longer than one burst takes. Where all is refused, it is an outage.
    fn is_overload(&mut self, tally: WindowCounts, now: Timestamp) -> bool {
        let some_accepted = tally.failed < tally.calls;
        let many = tally.failed >= OVERLOADED_MIN && share(tally) >= SHARE_OVERLOADED;
        some_accepted && many && self.is_suspected(now)
    }

    fn is_suspected(&mut self, now: Timestamp) -> bool {
        if now.since(self.suspected_at) >= WITHIN * 5 {
            self.suspected_at = now;
        }
        now.since(self.suspected_at) >= WITHIN
    }

    fn cut(&mut self, tally: WindowCounts, now: Timestamp) {
        let share = share(tally);
        let counted = now.since(self.first_at).min(self.answers.covered(now));
        let seconds = counted.as_secs_f64().max(1.0);
        let before = self.per_s().unwrap_or(f64::MAX);
        if let Some(last) = &self.learned {
            // Where hardly anything is accepted, a lower pace has not had its chance yet.
            let since = self::share(last.since);
            let in_vain = share < SHARE_OF_MOST && since > last.share / 2.0;
            self.vain = if in_vain { self.vain + 1 } else { 0 };
            if self.vain >= VAIN_MAX {
                self.vain = 0;
                self.left_alone_until = now + LEAVE_ALONE;
                self.learned = None;
                return;
            }
        }
        let accepted = f64::from(tally.calls - tally.failed) / seconds;
        // Where nothing was accepted, what was learned before is halved.
        let accepted = accepted.max(if before < f64::MAX { before / 2.0 } else { 0.0 });
        let per_s = (accepted.min(before) * BELOW).max(PER_S_MIN);
        let confirmed =
            self.learned.as_ref().is_some_and(|last| (last.cut_to / per_s - 1.0).abs() < SAME);
        let limiter = match self.learned.take() {
            Some(mut learned) => {
                learned.limiter.adopt(rate(per_s), now);
                learned.limiter
            }
            None => Limiter::new(rate(per_s)),
        };
        self.learned = Some(LearnedPace {
            per_s,
            limiter,
            cut_at: now,
            share,
            since: WindowCounts::default(),
            confirmed,
            cut_to: per_s,
            grown_at: now,
            limits: false,
            limited_at: now,
        });
    }
}

impl LearnedPace {
    /// Grows only if it held a lane: otherwise nothing is learned about a higher pace.
    fn grow(&mut self, now: Timestamp) {
        let passed = now.since(self.grown_at);
        if passed < Duration::from_millis(100) {
            return;
        }
        self.grown_at = now;
        if std::mem::take(&mut self.limits) {
            let (slowly, near) =
                if self.confirmed { (GROWTH, NEAR) } else { (GROWTH_AT_FIRST, Duration::ZERO) };
            let beyond = now.since(self.cut_at).saturating_sub(near).as_secs_f64();
            let growth = (slowly * 2_f64.powf(beyond / DOUBLES_EVERY_S)).min(GROWTH_MAX);
            self.per_s *= 1.0 + growth * passed.as_secs_f64().min(1.0);
            self.limiter.adopt(rate(self.per_s), now);
        }
    }
}

fn rate(per_s: f64) -> Rate {
    let burst = 1 + (per_s * BURST_WINDOW.as_secs_f64()) as u32;
    Rate { per_s, burst, ramp_s: 0 }
}

fn share(tally: WindowCounts) -> f64 {
    f64::from(tally.failed) / f64::from(tally.calls.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn at(ms: u64) -> Timestamp {
        NOW + Duration::from_millis(ms)
    }

    #[test]
    fn who_never_complains_is_not_paced() {
        let mut pace = Pace::default();
        (0..10_000).for_each(|n| pace.report(Signal::Well, false, at(n)));
        assert_eq!((pace.available(5_000, at(10_000)), pace.per_s()), (Ok(5_000), None));
    }

    #[test]
    fn a_few_complaints_among_many_calls_are_somebodys_own() {
        let mut pace = Pace::default();
        for n in 0..10_000 {
            pace.report(if n % 20 == 0 { Signal::Busy } else { Signal::Well }, false, at(n));
        }
        assert_eq!(pace.per_s(), None);
    }

    #[test]
    fn complaints_that_no_pace_makes_fewer_are_left_alone() {
        let mut pace = Pace::default();
        let (mut paced, mut sent) = (0, 0);
        for n in 0..60_000 {
            if pace.available(1, at(n)).is_ok() {
                pace.take(1, at(n));
                pace.report(if n % 10 == 0 { Signal::Busy } else { Signal::Well }, false, at(n));
                sent += 1;
            }
            paced += u32::from(pace.per_s().is_some());
        }
        assert!(paced < 12_000 && sent > 50_000, "paced for {paced} ms, sent {sent}");
    }

    #[test]
    fn a_third_that_complains_at_any_pace_does_not_slow_the_others_down_for_long() {
        let mut pace = Pace::default();
        let (mut paced, mut sent) = (0, 0_u32);
        for n in 0..60_000 {
            if pace.available(1, at(n)).is_ok() {
                pace.take(1, at(n));
                sent += 1;
                let signal = if sent.is_multiple_of(3) { Signal::Busy } else { Signal::Well };
                pace.report(signal, false, at(n));
            }
            paced += u32::from(pace.per_s().is_some());
        }
        assert!(paced < 6_000, "paced for {paced} ms, sent {sent}");
    }

    #[test]
    fn a_burst_of_complaints_about_single_addresses_begins_nothing() {
        let mut pace = Pace::default();
        let third = |n: u64| if n.is_multiple_of(3) { Signal::Busy } else { Signal::Well };
        (0..300).for_each(|n| pace.report(third(n), true, at(n * 5)));
        assert_eq!(pace.per_s(), None, "it lasted for a second and a half");
        (300..900).for_each(|n| pace.report(third(n), true, at(n * 5)));
        assert!(pace.per_s().is_some(), "it goes on");
    }

    #[test]
    fn complaints_after_a_rest_are_not_taken_for_a_slow_time() {
        let mut pace = Pace::default();
        let third = |n: u64| if n.is_multiple_of(3) { Signal::Busy } else { Signal::Well };
        (0..500).for_each(|n| pace.report(Signal::Well, false, at(n)));
        (500..1_000).for_each(|n| pace.report(Signal::Busy, false, at(n)));
        let learned = pace.per_s().unwrap();
        pace.rest(at(2_200));
        pace.report(Signal::Busy, false, at(1_100));
        (0..700).for_each(|n| pace.report(third(n), false, at(2_200 + n * 5 / 3)));
        let again = pace.per_s().unwrap();
        assert!(again < learned && again > 350.0, "{learned} per second, then {again}");
    }

    #[test]
    fn a_pace_that_holds_nobody_up_is_forgotten() {
        let mut pace = Pace::default();
        (0..20).for_each(|n| pace.report(Signal::Busy, false, at(n * 100)));
        assert!(pace.per_s().is_some());
        assert_eq!(pace.available(100, at(310_000)), Ok(100));
    }

    #[test]
    fn complaints_of_single_addresses_begin_no_pace_and_go_on_counting_once_there_is_one() {
        let half = |n: u64| if n.is_multiple_of(2) { Signal::Busy } else { Signal::Well };
        let mut pace = Pace::default();
        (0..400).for_each(|n| pace.report(half(n), true, at(n * 30)));
        assert_eq!(pace.per_s(), None, "each of them is about its own address");
        pace.report(Signal::Busy, false, at(12_000));
        let first = pace.per_s().expect("one that speaks for the host is enough");
        (401..800).for_each(|n| pace.report(half(n), true, at(n * 30)));
        assert!(pace.per_s().is_some_and(|per_s| per_s != first), "they all count from then on");
    }

    #[test]
    fn so_many_complaints_of_single_addresses_that_it_is_no_chance_begin_a_pace() {
        let mut pace = Pace::default();
        let quarter = |n: u64| if n.is_multiple_of(4) { Signal::Busy } else { Signal::Well };
        (0..400).for_each(|n| pace.report(quarter(n), true, at(n * 10)));
        assert!(pace.per_s().is_some(), "a hundred a second, a quarter of them refused");
    }
}

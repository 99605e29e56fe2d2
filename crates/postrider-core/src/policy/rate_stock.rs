//! Calls of a rate that several nodes share: what one node was given and has not made yet. Says when to ask for more.
//! Pure; asks nobody itself.

use std::collections::VecDeque;
use std::time::Duration;

use super::limiter::{Limiter, Rate, RateSource};
use super::rate_slice::RateSlice;
use crate::model::time::Timestamp;

/// A call is lost so long after its time, or after half the time between two calls: a later one would be in a window
/// of time that has its own calls.
const LATE_MAX: Duration = Duration::from_millis(200);
/// Only this part of a rate is used, so that late calls do not exceed it in any window of 10 s.
const USED_PART: f64 = 0.98;
/// While there is more to send, more calls are asked for when those that are left are used up within this time.
const AHEAD: Duration = Duration::from_millis(150);
/// Nobody asks for the calls of more time than this.
const ASKED_MAX: Duration = Duration::from_millis(250);
/// How soon to look again while nothing was given yet.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What one node may call under a shared rate.
#[derive(Debug, Clone)]
pub struct RateStock {
    /// Knows the rate and how far it has ramped up. Limits nothing by itself.
    own: Limiter,
    parts: VecDeque<StockPart>,
    /// Calls that were made without being given.
    owed: usize,
    /// How many to ask for.
    want: u32,
    is_asked: bool,
    /// Everything that was taken was used: there may be more to send.
    has_more: bool,
    /// Some calls of the present parts were not used.
    has_spare: bool,
    is_wanted: bool,
    none_before: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct StockPart {
    slice: RateSlice,
    used: u32,
    given_at: Timestamp,
}

impl StockPart {
    /// When its next call may be made; `None` if it has none left.
    fn next(&self) -> Option<Timestamp> {
        (self.used < self.slice.calls).then(|| self.slice.at(self.used).max(self.given_at))
    }

    fn ready(&self, now: Timestamp) -> usize {
        let calls = self.used..self.slice.calls;
        calls.take_while(|n| self.slice.at(*n).max(self.given_at) <= now).count()
    }
}

impl RateStock {
    pub fn new(rate: Rate) -> Self {
        Self {
            own: Limiter::new(rate),
            parts: VecDeque::new(),
            owed: 0,
            want: 1,
            is_asked: false,
            has_more: false,
            has_spare: false,
            is_wanted: false,
            none_before: Timestamp::default(),
        }
    }

    pub fn adopt(&mut self, rate: Rate, now: Timestamp) {
        self.own.adopt(rate, now);
        self.parts.clear();
    }

    /// Nothing is left and nothing is owed.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        let late = self.late_max();
        let is_over = |part: &StockPart| part.slice.until.max(part.given_at) + late < now;
        self.owed == 0 && !self.is_asked && self.parts.iter().all(is_over)
    }

    /// What to ask for now, if anything: the rate, and how many calls. Asks once until [it is given](Self::give).
    pub fn request(&mut self, now: Timestamp) -> Option<(Rate, u32)> {
        if self.is_asked || now < self.none_before {
            return None;
        }
        self.forget_late(now);
        let end = self.parts.iter().map(|part| part.slice.until).max();
        let is_short = end.is_none_or(|end| end <= now + AHEAD);
        let is_empty = self.parts.iter().all(|part| part.next().is_none());
        if !(self.is_wanted && is_empty || self.has_more && is_short) {
            return None;
        }
        self.is_asked = true;
        let rate = self.own.present_rate(now);
        let rate = Rate { per_s: rate.per_s * USED_PART, ..rate };
        let most = (rate.per_s * ASKED_MAX.as_secs_f64()).ceil().max(1.0) as u32;
        Some((rate, self.want.min(most).max(1)))
    }

    /// The answer to a request.
    pub fn give(&mut self, slice: RateSlice, now: Timestamp) {
        self.is_asked = false;
        if slice.calls == 0 {
            self.none_before = slice.from;
            return;
        }
        self.want =
            if self.has_spare { (self.want / 2).max(1) } else { self.want.saturating_mul(2) };
        (self.has_spare, self.is_wanted) = (false, false);
        self.parts.push_back(StockPart { slice, used: 0, given_at: now });
    }

    /// The request failed.
    pub fn give_nothing(&mut self, now: Timestamp) {
        self.is_asked = false;
        self.none_before = now + LOOK_AGAIN;
    }

    fn late_max(&self) -> Duration {
        let step = 1.0 / self.own.rate().per_s.max(1e-3);
        LATE_MAX.max(Duration::from_secs_f64(step / 2.0))
    }

    /// Calls whose time is over are lost.
    fn forget_late(&mut self, now: Timestamp) {
        let late = self.late_max();
        for part in &mut self.parts {
            while part.next().is_some_and(|at| at + late < now) {
                part.used += 1;
                self.has_spare = true;
            }
        }
        self.parts.retain(|part| part.next().is_some());
    }

    fn use_up(&mut self, mut count: usize, now: Timestamp) -> usize {
        for part in &mut self.parts {
            let calls = part.ready(now).min(count);
            part.used += calls as u32;
            count -= calls;
        }
        count
    }
}

impl RateSource for RateStock {
    fn rate(&self) -> Rate {
        self.own.rate()
    }

    fn available(&mut self, want: usize, now: Timestamp) -> usize {
        // Begins to ramp up after a rest.
        self.own.available(1, now);
        self.forget_late(now);
        self.owed = self.use_up(self.owed, now);
        let ready: usize = match self.owed {
            0 => self.parts.iter().map(|part| part.ready(now)).sum(),
            _ => 0,
        };
        self.is_wanted |= want > 0 && ready == 0;
        ready.min(want)
    }

    fn take(&mut self, count: usize, now: Timestamp) {
        self.own.take(count, now);
        self.owed += self.use_up(count, now);
        self.has_more |= count > 0;
    }

    fn refund(&mut self, count: usize, now: Timestamp) {
        self.own.refund(count, now);
        (self.has_more, self.has_spare) = (false, true);
        let still_owed = self.owed.saturating_sub(count);
        let calls = count.saturating_sub(self.owed) as u32;
        self.owed = still_owed;
        if calls > 0 {
            let slice = RateSlice { calls, from: now, until: now };
            self.parts.push_front(StockPart { slice, used: 0, given_at: now });
        }
    }

    fn next(&self, now: Timestamp) -> Timestamp {
        let first = self.parts.iter().filter_map(StockPart::next).min();
        first.unwrap_or_else(|| self.none_before.max(now + LOOK_AGAIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::rate_slice::SharedRate;

    const NOW: i64 = 1_790_000_000_000;

    fn rate(per_s: f64, burst: u32) -> Rate {
        Rate { per_s, burst, ramp_s: 0 }
    }

    struct SharedRun {
        shared: SharedRate,
        stocks: Vec<RateStock>,
        /// Requests that are under way, each with the time of its answer.
        asked: Vec<(usize, Rate, u32, i64)>,
        calls: Vec<(i64, usize)>,
    }

    impl SharedRun {
        fn new(nodes: usize, rate: Rate) -> Self {
            let stocks = vec![RateStock::new(rate); nodes];
            Self { shared: SharedRate::default(), stocks, asked: Vec::new(), calls: Vec::new() }
        }

        /// Each node looks every few milliseconds, and has work for so many calls.
        fn run(&mut self, from_ms: i64, to_ms: i64, backlog: &[usize], late_ms: i64) {
            for ms in from_ms..to_ms {
                let now = Timestamp(NOW + ms);
                for (node, rate, want, at) in std::mem::take(&mut self.asked) {
                    if at <= ms {
                        let slice = self.shared.grant(rate, want, now);
                        self.stocks[node].give(slice, now);
                    } else {
                        self.asked.push((node, rate, want, at));
                    }
                }
                for (node, stock) in self.stocks.iter_mut().enumerate() {
                    if backlog[node] > 0 && ms % late_ms == 0 {
                        let may = stock.available(64, now);
                        stock.take(may, now);
                        let made = may.min(backlog[node]);
                        if may > made {
                            stock.refund(may - made, now);
                        }
                        self.calls.push((ms, made));
                    }
                    if let Some((rate, want)) = stock.request(now) {
                        self.asked.push((node, rate, want, ms + 5));
                    }
                }
            }
        }

        fn made(&self, from_ms: i64, to_ms: i64) -> usize {
            let within = self.calls.iter().filter(|(ms, _)| (from_ms..to_ms).contains(ms));
            within.map(|(_, calls)| calls).sum()
        }
    }

    #[test]
    fn three_nodes_with_work_use_a_rate_almost_whole_and_never_exceed_it() {
        for late_ms in [1, 3, 10, 30, 100, 150] {
            let mut run = SharedRun::new(3, rate(300.0, 1));
            run.run(0, 40_000, &[1_000_000; 3], late_ms);
            for from in (5_000..30_000).step_by(500) {
                let made = run.made(from, from + 10_000);
                assert!((2_850..=3_000).contains(&made), "{made} with looks every {late_ms} ms");
            }
        }
    }

    #[test]
    fn one_node_with_work_gets_what_the_others_do_not_need() {
        let mut run = SharedRun::new(3, rate(300.0, 10));
        run.run(0, 20_000, &[1_000_000, 0, 0], 2);
        let made = run.made(5_000, 15_000);
        assert!((2_850..=3_000).contains(&made), "{made}");
    }

    #[test]
    fn a_rate_of_one_call_per_second_is_used() {
        let mut run = SharedRun::new(2, rate(1.0, 1));
        run.run(0, 60_000, &[1_000; 2], 5);
        let made = run.made(5_000, 55_000);
        assert!((40..=50).contains(&made), "{made}");
    }

    #[test]
    fn calls_that_were_made_without_being_given_are_owed() {
        let mut stock = RateStock::new(rate(100.0, 1));
        let now = Timestamp(NOW);
        stock.take(5, now);
        let slice = RateSlice { calls: 8, from: now, until: Timestamp(NOW + 80) };
        stock.give(slice, now);
        assert_eq!(stock.available(64, Timestamp(NOW + 41)), 0);
        assert_eq!(stock.available(64, Timestamp(NOW + 51)), 1);
    }

    #[test]
    fn a_call_is_lost_when_its_time_is_over() {
        let mut stock = RateStock::new(rate(100.0, 1));
        let now = Timestamp(NOW);
        stock.give(RateSlice { calls: 5, from: now, until: Timestamp(NOW + 50) }, now);
        assert_eq!(stock.available(64, Timestamp(NOW + 45)), 5);
        assert_eq!(stock.available(64, Timestamp(NOW + 225)), 2, "three are too late");
    }
}

//! A circuit breaker: keeps work away from a provider that fails, and lets it come back gently.
//! A state machine over calls, signals and the time it is told. Reads no clock, draws no number.
//!
//! Closed, it counts. Open, it lets nothing through until its time. Then it lets one call through;
//! if that goes well two, four, and so on until it is closed again; if not, it opens for longer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;
use crate::policy::signal::Signal;
use crate::policy::window::{SlidingWindow, WindowCounts};

/// When a breaker opens and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerPolicy {
    /// The long window.
    pub window_s: u32,
    /// The share of failures in it above which the breaker opens.
    pub share: f64,
    pub calls_min: u32,
    /// The short window: a total outage must not take minutes to be seen.
    pub burst_window_s: u32,
    pub burst_share: f64,
    pub burst_calls_min: u32,
    /// How long it stays open the first time; doubled each time in a row.
    pub open_s: u32,
    pub open_s_max: u32,
    /// A retry storm: at least so many retries within the window, more than there are first
    /// attempts, and less than this share of them successful ([`crate::policy::storm`]).
    pub storm_window_s: u32,
    pub storm_retries_min: u32,
    pub storm_success: f64,
    /// More than this share of at least so many sends of one credential called gone within the
    /// window is not believed ([`crate::policy::gone_guard`]).
    pub gone_window_s: u32,
    pub gone_sends_min: u32,
    pub gone_share: f64,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            window_s: 300,
            share: 0.2,
            calls_min: 100,
            burst_window_s: 10,
            burst_share: 0.5,
            burst_calls_min: 20,
            open_s: 5,
            open_s_max: 60,
            storm_window_s: 60,
            storm_retries_min: 100,
            storm_success: 0.1,
            gone_window_s: 60,
            gone_sends_min: 50,
            gone_share: 0.2,
        }
    }
}

/// An operator's order, which holds until it is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BreakerOverride {
    Open,
    Closed,
}

/// Why it opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerCause {
    /// Too many calls failed.
    #[default]
    Failures,
    /// Retries without success.
    Storm,
    /// The provider does not accept the credential.
    Refused,
    /// Too many addresses at once are called gone.
    MassGone,
}

/// Calls that may be made, and the count of openings under which they were permitted: results of an
/// earlier epoch do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    pub calls: usize,
    pub epoch: u32,
}

/// Why no call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerRefusal {
    Until(Timestamp),
    /// A probe is under way; its end decides.
    Probing,
    /// By an operator.
    Forced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    Open {
        until: Timestamp,
    },
    /// Coming back: so many calls at once.
    Recovering {
        allowed: usize,
    },
    ForcedOpen,
    ForcedClosed,
}

/// What a result has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerChange {
    Opened {
        until: Timestamp,
    },
    /// More may go through than before.
    Eased,
    Closed,
}

impl BreakerChange {
    /// Whether more calls may go than before.
    pub fn is_easing(self) -> bool {
        matches!(self, Self::Eased | Self::Closed)
    }
}

#[derive(Debug, Clone)]
enum BreakerPhase {
    Closed,
    Open { until: Timestamp },
    Recovering { allowed: usize, under_way: usize, good: usize, bad: usize },
}

/// From this many calls at once on, it is closed.
const RAMP_END: usize = 64;

#[derive(Debug, Clone)]
pub struct Breaker {
    policy: BreakerPolicy,
    phase: BreakerPhase,
    epoch: u32,
    /// Openings without a full recovery between them.
    in_a_row: u32,
    cause: BreakerCause,
    forced: Option<BreakerOverride>,
    long: SlidingWindow,
    short: SlidingWindow,
}

impl Breaker {
    pub fn new(policy: BreakerPolicy) -> Self {
        Self {
            policy,
            phase: BreakerPhase::Closed,
            epoch: 0,
            in_a_row: 0,
            cause: BreakerCause::default(),
            forced: None,
            long: SlidingWindow::new(Duration::from_secs(policy.window_s.into())),
            short: SlidingWindow::new(Duration::from_secs(policy.burst_window_s.into())),
        }
    }

    /// Applies other rules from now on. An opening stays as it is; counts over a window of another length
    /// are forgotten.
    pub fn adopt(&mut self, policy: BreakerPolicy) {
        if policy.window_s != self.policy.window_s {
            self.long = SlidingWindow::new(Duration::from_secs(policy.window_s.into()));
        }
        if policy.burst_window_s != self.policy.burst_window_s {
            self.short = SlidingWindow::new(Duration::from_secs(policy.burst_window_s.into()));
        }
        self.policy = policy;
    }

    /// The same with nothing known; calls under way no longer count.
    pub fn fresh(&self) -> Self {
        Self { epoch: self.epoch.wrapping_add(1), ..Self::new(self.policy) }
    }

    /// Asks for `want` calls. What is not used is to be [handed back](Self::hand_back).
    pub fn admit(&mut self, want: usize, now: Timestamp) -> Result<Permit, BreakerRefusal> {
        self.may_pass(now)?;
        if matches!(self.phase, BreakerPhase::Open { .. }) && self.forced.is_none() {
            self.epoch = self.epoch.wrapping_add(1);
            self.phase = BreakerPhase::Recovering { allowed: 1, under_way: 0, good: 0, bad: 0 };
        }
        let calls = match &mut self.phase {
            BreakerPhase::Recovering { allowed, under_way, .. } if self.forced.is_none() => {
                let calls = want.min(allowed.saturating_sub(*under_way));
                *under_way += calls;
                calls
            }
            _ => want,
        };
        Ok(Permit { calls, epoch: self.epoch })
    }

    /// Whether at least one call could be made now. Changes nothing.
    pub fn may_pass(&self, now: Timestamp) -> Result<(), BreakerRefusal> {
        match (self.forced, &self.phase) {
            (Some(BreakerOverride::Open), _) => Err(BreakerRefusal::Forced),
            (Some(BreakerOverride::Closed), _) | (None, BreakerPhase::Closed) => Ok(()),
            (None, BreakerPhase::Open { until }) if now < *until => {
                Err(BreakerRefusal::Until(*until))
            }
            (None, BreakerPhase::Open { .. }) => Ok(()),
            (None, BreakerPhase::Recovering { allowed, under_way, .. }) if under_way >= allowed => {
                Err(BreakerRefusal::Probing)
            }
            (None, BreakerPhase::Recovering { .. }) => Ok(()),
        }
    }

    /// Calls that were permitted and not made.
    pub fn hand_back(&mut self, calls: usize, epoch: u32) {
        if let BreakerPhase::Recovering { under_way, .. } = &mut self.phase
            && epoch == self.epoch
        {
            *under_way = under_way.saturating_sub(calls);
        }
    }

    /// The end of a call. `random` is a random number in `0.0..1.0`.
    pub fn report(
        &mut self,
        signal: Signal,
        epoch: u32,
        now: Timestamp,
        random: f64,
    ) -> Option<BreakerChange> {
        if epoch != self.epoch {
            return None;
        }
        // A breaker that a storm opened also counts a 429 to a probe as a failure.
        let failed = signal.is_failure() || self.is_storm_again(signal);
        let counts = failed || signal == Signal::Well;
        match &mut self.phase {
            BreakerPhase::Open { .. } => None,
            BreakerPhase::Closed => {
                if counts {
                    self.long.count(failed, now);
                    self.short.count(failed, now);
                }
                let opens = failed && self.has_too_many_failures(now);
                opens.then(|| self.open(BreakerCause::Failures, now, random))
            }
            BreakerPhase::Recovering { allowed, under_way, good, bad } => {
                *under_way = under_way.saturating_sub(1);
                *good += usize::from(signal == Signal::Well);
                *bad += usize::from(failed);
                // A single probe must succeed; of more calls, a few may fail.
                let too_bad = *bad > 0 && (*bad * 5 >= *good + *bad || *allowed == 1);
                let round_is_over = *good >= *allowed;
                if too_bad && self.forced.is_none() {
                    return Some(self.open(self.cause, now, random));
                }
                if !round_is_over {
                    return Some(BreakerChange::Eased);
                }
                (*allowed, *good, *bad) = (*allowed * 2, 0, 0);
                if *allowed < RAMP_END {
                    return Some(BreakerChange::Eased);
                }
                self.close();
                Some(BreakerChange::Closed)
            }
        }
    }

    /// Opens at once, whatever was counted.
    pub fn open(&mut self, cause: BreakerCause, now: Timestamp, random: f64) -> BreakerChange {
        self.cause = cause;
        let first = f64::from(self.policy.open_s);
        let longest = f64::from(self.policy.open_s_max).max(first);
        let open_s = (first * f64::powi(2.0, self.in_a_row.min(30) as i32)).min(longest);
        // Jitter keeps providers behind one cause from being probed all at the same moment.
        let until = now + Duration::from_secs_f64(open_s * (1.0 + 0.25 * random));
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.epoch = self.epoch.wrapping_add(1);
        self.phase = BreakerPhase::Open { until };
        self.long.clear();
        self.short.clear();
        BreakerChange::Opened { until }
    }

    fn close(&mut self) {
        self.phase = BreakerPhase::Closed;
        self.in_a_row = 0;
        self.long.clear();
        self.short.clear();
    }

    /// Sets an operator's order; `None` takes it back.
    pub fn force(&mut self, forced: Option<BreakerOverride>) {
        if self.forced == Some(BreakerOverride::Closed) {
            // Answers of the forced time do not count; it starts anew.
            self.epoch = self.epoch.wrapping_add(1);
            self.close();
        }
        self.forced = forced;
    }

    pub fn state(&self) -> BreakerState {
        match (self.forced, &self.phase) {
            (Some(BreakerOverride::Open), _) => BreakerState::ForcedOpen,
            (Some(BreakerOverride::Closed), _) => BreakerState::ForcedClosed,
            (None, BreakerPhase::Closed) => BreakerState::Closed,
            (None, BreakerPhase::Open { until }) => BreakerState::Open { until: *until },
            (None, BreakerPhase::Recovering { allowed, .. }) => {
                BreakerState::Recovering { allowed: *allowed }
            }
        }
    }

    /// Why it opened last.
    pub fn cause(&self) -> BreakerCause {
        self.cause
    }

    /// Whether an answer says nothing about the delivery that got it, because the provider is known
    /// to fail as a whole. Asked after the answer was reported.
    pub fn excuses(&self, signal: Signal) -> bool {
        let is_shut = !matches!(self.state(), BreakerState::Closed | BreakerState::ForcedClosed);
        is_shut && (signal.is_failure() || self.is_storm_again(signal))
    }

    fn is_storm_again(&self, signal: Signal) -> bool {
        let is_shut = !matches!(self.phase, BreakerPhase::Closed);
        is_shut && self.cause == BreakerCause::Storm && signal == Signal::Busy
    }

    fn has_too_many_failures(&mut self, now: Timestamp) -> bool {
        let p = &self.policy;
        if self.forced.is_some() {
            return false;
        }
        // "Half of them" is enough: at least, not more than.
        let is_outage = |tally: WindowCounts| {
            tally.calls >= p.burst_calls_min.max(1)
                && f64::from(tally.failed) >= p.burst_share * f64::from(tally.calls)
        };
        let (short, long) = (self.short.tally(now), self.long.tally(now));
        // A provider that never answers gets few calls, because each takes long: what is an outage
        // within seconds is one within minutes, too.
        is_outage(short) || is_outage(long) || long.exceeds(p.share, p.calls_min)
    }
}

impl BreakerState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::Recovering { .. } => "half_open",
            Self::ForcedOpen => "forced_open",
            Self::ForcedClosed => "forced_closed",
        }
    }
}

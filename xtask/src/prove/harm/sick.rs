//! What is wrong with a part of a world: with whom, what, and when; and the provider's fault for it.

use std::fmt;

use postrider_testkit::random::SimRng;
use postrider_testkit::sick_level::{MessageEnds, SickLevel};

/// One cause of trouble.
#[derive(Debug, Clone)]
pub(super) struct SickCause {
    pub(super) place: SickLevel,
    pub(super) trouble: Trouble,
    /// The share of the calls that are hit.
    chance: f64,
    when: TroubleTime,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Trouble {
    /// In the provider's own words, e.g. `503`, `429:2`, `hang`.
    Fault(String),
    /// Nobody listens.
    Refused,
}

/// When a part is sick, in milliseconds from the beginning.
#[derive(Debug, Clone, Copy)]
enum TroubleTime {
    Always,
    From(u64),
    Wave { period: u64, on: u64 },
}

impl SickCause {
    /// `near` is somebody in the world; the cause is drawn around them.
    pub(super) fn draw(rng: &mut SimRng, near: MessageEnds, length_ms: u64) -> Self {
        let place = match rng.below(10) {
            0..=4 => {
                let share = rng.log_uniform(0.001, 0.95);
                SickLevel::Addresses { origin: near.origin, share, salt: rng.next() }
            }
            5..=6 => SickLevel::TenantAtOrigin { tenant: near.tenant, origin: near.origin },
            7 => SickLevel::Origin(near.origin),
            8 => SickLevel::Origins { share: rng.log_uniform(0.01, 0.8), salt: rng.next() },
            _ => SickLevel::Tenant(near.tenant),
        };
        let is_of_origins = matches!(place, SickLevel::Origin(_) | SickLevel::Origins { .. });
        let onset = rng.within(length_ms / 12, length_ms / 3);
        let period = rng.within(length_ms / 4, length_ms / 2);
        let when = match rng.below(3) {
            0 => TroubleTime::Always,
            1 => TroubleTime::From(onset),
            _ => TroubleTime::Wave { period, on: rng.within(1_000, period / 2) },
        };
        let chance = if rng.chance(0.5) { 1.0 } else { rng.log_uniform(0.05, 1.0) };
        let fault = draw_fault(rng);
        // A closed port cannot open at a set time.
        if is_of_origins && rng.chance(0.4) {
            let (trouble, when) = (Trouble::Refused, TroubleTime::Always);
            return Self { place, trouble, chance: 1.0, when };
        }
        Self { place, trouble: Trouble::Fault(fault), chance, when }
    }

    pub(super) fn covers(&self, ends: MessageEnds) -> bool {
        self.place.covers(ends)
    }

    /// The rule of the provider's fault profile for receivers whose name has this in it. Sending begins so long after
    /// the provider.
    pub(super) fn rule(&self, name: &str, lead_ms: u64) -> Option<String> {
        let Trouble::Fault(fault) = &self.trouble else { return None };
        let window = match self.when {
            TroubleTime::Always => String::new(),
            TroubleTime::From(from) => window(u32::MAX.into(), u32::MAX.into(), from + lead_ms),
            TroubleTime::Wave { period, on } => window(period, on, lead_ms),
        };
        let chance = self.chance;
        Some(format!(
            "[[rule]]\nfault = \"{fault}\"\nname = \"{name}\"\nshare = {chance:.4}\n{window}"
        ))
    }

    /// How long before `at` it last began to be sick; nothing if it had not begun.
    pub(super) fn since_onset(&self, at: i64) -> Option<i64> {
        let since = match self.when {
            TroubleTime::Always => at,
            TroubleTime::From(from) => at - from as i64,
            TroubleTime::Wave { period, .. } => at % period as i64,
        };
        (since >= 0).then_some(since)
    }
}

fn window(every: u64, lasting: u64, after: u64) -> String {
    format!("window = {{ every_ms = {every}, for_ms = {lasting}, after_ms = {after} }}\n")
}

fn draw_fault(rng: &mut SimRng) -> String {
    match rng.below(10) {
        0 | 1 => rng.pick(&["500", "502", "503", "504"]).to_string(),
        2 => "429".to_owned(),
        3 => format!("429:{}", rng.log_uniform(1.0, 3_600.0) as u64),
        4 => "reset".to_owned(),
        5..=7 => format!("slow:{}", rng.log_uniform(50.0, 30_000.0) as u64),
        8 => "drip".to_owned(),
        _ => "hang".to_owned(),
    }
}

impl fmt::Display for SickCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        match &self.trouble {
            Trouble::Fault(fault) => write!(f, ": {fault}")?,
            Trouble::Refused => write!(f, ": refused")?,
        }
        if self.chance < 1.0 {
            write!(f, " for {:.0} % of the calls", self.chance * 100.0)?;
        }
        match self.when {
            TroubleTime::Always => Ok(()),
            TroubleTime::From(from) => write!(f, ", from {from} ms on"),
            TroubleTime::Wave { period, on } => write!(f, ", {on} of every {period} ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_begins_anew_in_every_period() {
        let cause = |when| SickCause {
            place: SickLevel::Origin(1),
            trouble: Trouble::Fault("503".to_owned()),
            chance: 1.0,
            when,
        };
        let wave = cause(TroubleTime::Wave { period: 1_000, on: 100 });
        assert_eq!(
            [0, 1_100, 2_900].map(|at| wave.since_onset(at)),
            [Some(0), Some(100), Some(900)]
        );
        let onset = cause(TroubleTime::From(500));
        assert_eq!([499, 700].map(|at| onset.since_onset(at)), [None, Some(200)]);
        assert!(onset.rule("p0.", 3_000).is_some_and(|rule| rule.contains("after_ms = 3500")));
    }
}

//! How long to wait before the next attempt. The random number is an argument. Ignores what a provider
//! asked for: [`crate::policy::decide`] combines the two.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ports::channel::FieldError;

/// The largest number of retries that a policy may name.
pub const MAX_RETRIES: u32 = 100;
/// The longest single wait that a policy may name: as long as the longest TTL.
pub const MAX_DELAY_MS: u64 = 28 * 86_400_000;
const MAX_FACTOR: f64 = 100.0;

/// How often and how patiently to retry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// Retries after the first attempt.
    pub retries: u32,
    pub base_ms: u64,
    /// Multiplier of the exponential kind.
    pub factor: f64,
    /// Where waits stop growing. Does not apply to the `schedule` kind.
    pub cap_ms: u64,
    pub kind: BackoffKind,
    pub jitter: Jitter,
    /// The most that `additive` jitter adds.
    #[serde(skip_serializing_if = "is_usual_ms")]
    pub jitter_ms: u64,
    /// The largest share of the wait that `proportional` jitter adds.
    #[serde(skip_serializing_if = "is_usual_share")]
    pub jitter_share: f64,
    /// Delays of the `schedule` kind, in order; the last one repeats.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedule_ms: Vec<u64>,
}

const JITTER_MS: u64 = 1_000;
const JITTER_SHARE: f64 = 0.3;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_usual_ms(ms: &u64) -> bool {
    *ms == JITTER_MS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_usual_share(share: &f64) -> bool {
    *share == JITTER_SHARE
}

/// How the wait `d` before retry number *n* grows, before jitter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackoffKind {
    /// base × factorⁿ⁻¹
    #[default]
    Exponential,
    /// base × n
    Linear,
    /// base
    Fixed,
    /// The *n*th of the list, its last one from there on.
    Schedule,
}

/// How randomness is added, so that deliveries that failed together do not come back together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jitter {
    /// `d`. Capped.
    None,
    /// `d` + 0…`jitter_ms` (1000). The cap applies after the jitter: never above it.
    Additive,
    /// `d` + 0…`jitter_share` (30 %) of it. The cap applies before the jitter: up to 1.3 × cap.
    Proportional,
    /// 0…`d`. The cap applies before the jitter: never above it.
    #[default]
    Full,
    /// `d` + 0…`d`. The cap applies before the jitter: up to 2 × cap.
    Doubling,
    /// `d` + 0…base. The cap applies before the jitter: up to cap + base.
    Equal,
    /// Between base and 3 × the wait before, whatever the kind. The cap applies after the jitter:
    /// never above it.
    Decorrelated,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 5,
            base_ms: 2_000,
            factor: 2.0,
            cap_ms: 120_000,
            kind: BackoffKind::Exponential,
            jitter: Jitter::Full,
            jitter_ms: JITTER_MS,
            jitter_share: JITTER_SHARE,
            schedule_ms: Vec::new(),
        }
    }
}

impl RetryPolicy {
    /// The wait before retry number `retry` (1 for the first). `previous` is the wait before that,
    /// `random` a random number in `0.0..1.0`.
    pub fn delay(&self, retry: u32, previous: Duration, random: f64) -> Duration {
        let random = if random.is_nan() { 0.0 } else { random.clamp(0.0, 1.0) };
        let base = self.base_ms as f64;
        let cap = match self.kind {
            BackoffKind::Schedule => MAX_DELAY_MS as f64,
            _ => self.cap_ms as f64,
        };
        let d = self.grown(retry.max(1)).min(cap);
        let ms = match self.jitter {
            Jitter::None => d,
            Jitter::Additive => (d + self.jitter_ms as f64 * random).min(cap),
            Jitter::Proportional => d + self.jitter_share * d * random,
            Jitter::Full => d * random,
            Jitter::Doubling => d + d * random,
            Jitter::Equal => d + base * random,
            Jitter::Decorrelated => {
                let up_to = (3.0 * previous.as_secs_f64() * 1000.0).max(base);
                (base + (up_to - base) * random).min(cap)
            }
        };
        // A float turned into an integer stops at the integer's ends.
        Duration::from_millis(ms as u64)
    }

    /// The wait before jitter and cap, in milliseconds; may be infinite.
    fn grown(&self, retry: u32) -> f64 {
        let base = self.base_ms as f64;
        match self.kind {
            BackoffKind::Exponential if self.base_ms == 0 => 0.0,
            BackoffKind::Exponential => base * self.factor.max(1.0).powf(f64::from(retry - 1)),
            BackoffKind::Linear => base * f64::from(retry),
            BackoffKind::Fixed => base,
            BackoffKind::Schedule => {
                let last = self.schedule_ms.len().saturating_sub(1);
                let nth = last.min(usize::try_from(retry - 1).unwrap_or(usize::MAX));
                self.schedule_ms.get(nth).map_or(base, |&ms| ms as f64)
            }
        }
    }

    /// What is wrong with the policy, field by field; names are relative to it.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut wrong = Vec::new();
        let mut check = |right: bool, field: &str, found: String, allowed: String| {
            if !right {
                wrong.push(FieldError::new(field, found, allowed));
            }
        };
        let (retries, factor) = (self.retries, self.factor);
        let (base, cap) = (self.base_ms, self.cap_ms);
        let is_schedule = self.kind == BackoffKind::Schedule;
        check(retries <= MAX_RETRIES, "retries", retries.to_string(), format!("0…{MAX_RETRIES}"));
        check(
            (1.0..=MAX_FACTOR).contains(&factor),
            "factor",
            factor.to_string(),
            format!("1…{MAX_FACTOR}"),
        );
        check(
            (1..=MAX_DELAY_MS).contains(&cap),
            "cap_ms",
            cap.to_string(),
            format!("1…{MAX_DELAY_MS}"),
        );
        check(
            is_schedule || (1..=cap).contains(&base),
            "base_ms",
            base.to_string(),
            format!("1…{cap} (cap_ms)"),
        );
        check(
            self.jitter_ms <= MAX_DELAY_MS,
            "jitter_ms",
            self.jitter_ms.to_string(),
            format!("0…{MAX_DELAY_MS}"),
        );
        check(
            (0.0..=10.0).contains(&self.jitter_share),
            "jitter_share",
            self.jitter_share.to_string(),
            "0…10".to_owned(),
        );
        let entries = self.schedule_ms.len();
        check(
            !is_schedule || (1..=MAX_RETRIES as usize).contains(&entries),
            "schedule_ms",
            format!("{entries} entries"),
            format!("1…{MAX_RETRIES} entries where kind is schedule"),
        );
        check(
            is_schedule || entries == 0,
            "schedule_ms",
            format!("{entries} entries"),
            "none unless kind is schedule".to_owned(),
        );
        check(
            !is_schedule || self.jitter != Jitter::Decorrelated,
            "jitter",
            "decorrelated".to_owned(),
            "any other where kind is schedule: decorrelated waits follow no list".to_owned(),
        );
        for (i, &ms) in self.schedule_ms.iter().enumerate() {
            let allowed = format!("0…{MAX_DELAY_MS}");
            check(ms <= MAX_DELAY_MS, &format!("schedule_ms[{i}]"), ms.to_string(), allowed);
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(kind: BackoffKind, jitter: Jitter) -> RetryPolicy {
        RetryPolicy { kind, jitter, ..RetryPolicy::default() }
    }

    fn delays(policy: &RetryPolicy, random: f64) -> Vec<u64> {
        let delay = |n| policy.delay(n, Duration::from_secs(4), random).as_millis() as u64;
        (1..=8).map(delay).collect()
    }

    #[test]
    fn kinds_grow_as_they_say() {
        let none = |kind| delays(&policy(kind, Jitter::None), 0.5);
        assert_eq!(
            none(BackoffKind::Exponential),
            [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 120_000, 120_000]
        );
        assert_eq!(
            none(BackoffKind::Linear),
            [2_000, 4_000, 6_000, 8_000, 10_000, 12_000, 14_000, 16_000]
        );
        assert_eq!(none(BackoffKind::Fixed), [2_000; 8]);
        let listed = RetryPolicy {
            schedule_ms: vec![5_000, 300_000, 1_800_000],
            ..policy(BackoffKind::Schedule, Jitter::None)
        };
        let last = 1_800_000;
        assert_eq!(delays(&listed, 0.5), [5_000, 300_000, last, last, last, last, last, last]);
    }

    #[test]
    fn each_jitter_reaches_its_own_ends() {
        let first_and_seventh = |jitter, random| {
            let delays = delays(&policy(BackoffKind::Exponential, jitter), random);
            (delays[0], delays[6])
        };
        for (jitter, low, high) in [
            (Jitter::None, (2_000, 120_000), (2_000, 120_000)),
            (Jitter::Additive, (2_000, 120_000), (3_000, 120_000)),
            (Jitter::Proportional, (2_000, 120_000), (2_600, 156_000)),
            (Jitter::Full, (0, 0), (2_000, 120_000)),
            (Jitter::Doubling, (2_000, 120_000), (4_000, 240_000)),
            (Jitter::Equal, (2_000, 120_000), (4_000, 122_000)),
            (Jitter::Decorrelated, (2_000, 2_000), (12_000, 12_000)),
        ] {
            assert_eq!(first_and_seventh(jitter, 0.0), low, "{jitter:?} at its lowest");
            assert_eq!(first_and_seventh(jitter, 1.0), high, "{jitter:?} at its highest");
        }
    }

    #[test]
    fn the_amounts_of_jitter_can_be_set() {
        let additive =
            RetryPolicy { jitter_ms: 50, ..policy(BackoffKind::Fixed, Jitter::Additive) };
        assert_eq!(additive.delay(1, Duration::ZERO, 1.0), Duration::from_millis(2_050));
        let share =
            RetryPolicy { jitter_share: 0.5, ..policy(BackoffKind::Fixed, Jitter::Proportional) };
        assert_eq!(share.delay(1, Duration::ZERO, 1.0), Duration::from_millis(3_000));
        let text = serde_json::to_string(&RetryPolicy::default()).unwrap();
        assert!(!text.contains("jitter_"), "what is usual is not written: {text}");
    }

    #[test]
    fn a_bad_policy_is_told_what_is_wrong_with_it() {
        assert_eq!(RetryPolicy::default().validate(), Ok(()));
        let bad = RetryPolicy {
            retries: 101,
            base_ms: 9_000,
            factor: f64::NAN,
            cap_ms: 5_000,
            kind: BackoffKind::Exponential,
            jitter: Jitter::Full,
            schedule_ms: vec![u64::MAX],
            ..RetryPolicy::default()
        };
        let fields: Vec<_> = bad.validate().unwrap_err().into_iter().map(|e| e.field).collect();
        assert_eq!(fields, ["retries", "factor", "base_ms", "schedule_ms", "schedule_ms[0]"]);
        let empty = policy(BackoffKind::Schedule, Jitter::Decorrelated);
        let errors = empty.validate().unwrap_err();
        assert_eq!(errors[0].field, "schedule_ms");
        assert_eq!(errors[0].found, "0 entries");
        assert_eq!(errors[1].field, "jitter");
    }
}

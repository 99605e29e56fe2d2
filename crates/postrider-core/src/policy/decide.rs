//! Turns an outcome into a decision. The one place that does. Never reads a clock, and knows no
//! provider.
//!
//! A call that was made and answered counts as an attempt, also where the answer was "not now"
//! (429, or 503 with `Retry-After`): a policy's attempts are a limit on calls. Three things do not
//! count: waiting (for a lane's limit, a breaker, a credential), calls that the provider says it never
//! processed, and failures of a provider that is known to fail as a whole.

use std::time::Duration;

use crate::model::class::{OnAmbiguous, OnExpiry, WhenOpen};
use crate::model::decision::Decision;
use crate::model::delivery::DeadReason;
use crate::model::outcome::Outcome;
use crate::model::time::Timestamp;
use crate::policy::backoff::RetryPolicy;
use crate::policy::ttl;

/// How long a delivery waits for a credential or a person before it is looked at again.
pub const PARK: Duration = Duration::from_secs(300);
/// A repeat that a person may see twice waits at least this long.
pub const REPEAT_PAUSE: Duration = Duration::from_secs(60);
/// How often a request that was not processed is repeated at once.
pub const MAX_REPLAYS: u32 = 3;
/// After that it waits at least this long: an uncounted retry must not spin.
pub const REPLAY_PAUSE: Duration = Duration::from_secs(1);
/// How long a delivery waits at most for something of our own that ran out.
pub const LOCAL_PAUSE: Duration = Duration::from_secs(1);
/// A provider's wait is stretched by up to this share.
const RETRY_AFTER_SPREAD: f64 = 0.25;
/// A subscription younger than this may be called gone by a service that does not know it yet.
pub const YOUNG_ADDRESS: Duration = Duration::from_secs(60);
const YOUNG_ADDRESS_PAUSE: Duration = Duration::from_secs(2);
const YOUNG_ADDRESS_RETRIES: u32 = 3;
/// A delivery that was in flight at so many crashes is taken for their cause.
pub const CRASHES_MAX: u32 = 3;
/// A delivery that was in flight at so many crashes may be their cause: it is leased while no other such one is.
pub const SUSPECT_CRASHES: u32 = CRASHES_MAX - 1;

/// The rules for one delivery.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryRules<'a> {
    pub retry: &'a RetryPolicy,
    pub on_ambiguous: OnAmbiguous,
    /// A person sees a repeat because no provider drops it: a mail, a text message.
    pub shows_repeats: bool,
    pub on_expiry: OnExpiry,
    /// One attempt and no retry: its TTL is 0.
    pub is_one_shot: bool,
    pub expires_at: Timestamp,
    pub times: AttemptTimes,
}

/// Numbers of attempts that an operator may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptTimes {
    /// How long work waits for a person before it is tried again.
    pub park: Duration,
    /// A delivery that was in flight at so many crashes in a row is not tried again.
    pub crashes_max: u32,
}

impl Default for AttemptTimes {
    fn default() -> Self {
        Self { park: PARK, crashes_max: CRASHES_MAX }
    }
}

/// How far a delivery has come, with the attempt that just ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttemptProgress {
    /// Attempts that count, this one included, even if there was no time left to make it.
    pub attempts: u32,
    /// The wait before this attempt.
    pub last_delay: Duration,
    /// Whether this attempt was already made with a new token.
    pub resigned: bool,
    /// Free replays already made within this attempt.
    pub replays: u32,
    /// How long the address has been registered, where that is known.
    pub address_age: Option<Duration>,
    /// The provider fails as a whole: the failure is not counted against this delivery.
    pub excused: bool,
    /// The provider calls so many addresses gone at once that it is not believed.
    pub doubted: bool,
    /// The answer is a refusal that is retried at most this often.
    pub retries_max: Option<u32>,
}

/// What happened to the delivery under earlier leases.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeaseHistory {
    /// How often the server crashed while the delivery was in flight.
    pub crashes: u32,
    /// An attempt was durably noted as begun, and its end is unknown.
    pub started: bool,
}

/// The decision about a leased delivery that is not to be attempted; `None` if it is. `progress` counts
/// the attempt that would be made.
pub fn before_attempt(
    past: LeaseHistory,
    progress: &AttemptProgress,
    rules: &DeliveryRules<'_>,
    now: Timestamp,
    random: f64,
) -> Option<Decision> {
    if past.started {
        // It may have arrived: doubt comes before expiry.
        return Some(decide(&Outcome::Ambiguous, progress, rules, now, random));
    }
    if ttl::is_over(rules.expires_at, now) {
        return Some(decide(&Outcome::Expired, progress, rules, now, random));
    }
    (past.crashes >= rules.times.crashes_max).then_some(Decision::DeadLetter(DeadReason::Poison))
}

/// The decision about a due delivery whose provider's or credential's breaker is open. `again_after` is
/// when to look again at one that cannot leave.
pub fn when_shut(when_open: WhenOpen, has_alternative: bool, again_after: Duration) -> Decision {
    match when_open {
        WhenOpen::Reject => Decision::DeadLetter(DeadReason::Refused),
        WhenOpen::FallBack if has_alternative => Decision::FallBack,
        WhenOpen::Wait | WhenOpen::FallBack => Decision::Park { after: again_after },
    }
}

/// The decision that follows from an outcome. `random` is a random number in `0.0..1.0`.
pub fn decide(
    outcome: &Outcome,
    progress: &AttemptProgress,
    rules: &DeliveryRules<'_>,
    now: Timestamp,
    random: f64,
) -> Decision {
    let by_formula = || rules.retry.delay(progress.attempts, progress.last_delay, random);
    // A policy without retries gets none, whoever is at fault.
    let excused = progress.excused && rules.retry.retries > 0;
    let retry = |after: Duration, at_least: Duration| match excused {
        true => excuse(rules, now, after, at_least),
        false => again_later(progress, rules, now, after.max(at_least)),
    };
    match *outcome {
        Outcome::Accepted => Decision::Done,
        Outcome::RetryBackoff { at_least } => retry(by_formula(), at_least),
        Outcome::RetryAfter { after, .. } => retry(spread(rules, now, after, random), after),
        Outcome::Gone if progress.doubted => park(rules, now),
        Outcome::Gone => gone(progress, rules, now),
        Outcome::DropMessage => Decision::DeadLetter(DeadReason::Permanent),
        Outcome::Config => park(rules, now),
        Outcome::ResignOnce if progress.resigned => park(rules, now),
        Outcome::ResignOnce => at_once(rules, now, true),
        Outcome::Reconnect | Outcome::SwitchAccount if progress.replays < MAX_REPLAYS => {
            at_once(rules, now, false)
        }
        Outcome::Reconnect | Outcome::SwitchAccount => {
            uncounted(rules, now, by_formula().max(REPLAY_PAUSE))
        }
        Outcome::Ambiguous => match rules.on_ambiguous {
            OnAmbiguous::Resend if rules.shows_repeats => {
                repeat_once(progress, rules, now, by_formula())
            }
            OnAmbiguous::Resend => retry(by_formula(), Duration::ZERO),
            OnAmbiguous::Park => Decision::DeadLetter(DeadReason::Ambiguous),
            OnAmbiguous::Drop => Decision::Drop,
        },
        Outcome::Hold { after, .. } => uncounted(rules, now, after),
        // Nobody was called, so there is no attempt to retry.
        Outcome::Local => Decision::Park { after: LOCAL_PAUSE.mul_f64(0.25 + 0.75 * random) },
        Outcome::Expired if progress.attempts <= 1 => Decision::Expire,
        Outcome::Expired => too_late(rules),
    }
}

/// Those who were told to come back at the same time do not come all at once, and never too late because of it.
fn spread(rules: &DeliveryRules<'_>, now: Timestamp, after: Duration, random: f64) -> Duration {
    let left = rules.expires_at.since(now + after);
    after + after.mul_f64(RETRY_AFTER_SPREAD).min(left / 2).mul_f64(random)
}

/// Where a person would see a repeat, at most one is risked, and not soon; then a person decides.
fn repeat_once(
    progress: &AttemptProgress,
    rules: &DeliveryRules<'_>,
    now: Timestamp,
    by_formula: Duration,
) -> Decision {
    if progress.attempts > 1 {
        return Decision::DeadLetter(DeadReason::Ambiguous);
    }
    again_later(progress, rules, now, by_formula.max(REPEAT_PAUSE))
}

/// A counted retry, if the policy has one left and there is time for it.
fn again_later(
    progress: &AttemptProgress,
    rules: &DeliveryRules<'_>,
    now: Timestamp,
    after: Duration,
) -> Decision {
    if rules.is_one_shot {
        too_late(rules)
    } else if let Some(reason) = spent(progress, rules) {
        Decision::DeadLetter(reason)
    } else if comes_too_late(rules, now, after) {
        too_late(rules)
    } else {
        Decision::Retry { after, counted: true }
    }
}

/// Why there is no further retry, if there is none. A refusal with bounded retries is the reason itself,
/// whichever bound is reached first.
fn spent(progress: &AttemptProgress, rules: &DeliveryRules<'_>) -> Option<DeadReason> {
    let class_s = progress.attempts > rules.retry.retries;
    match progress.retries_max {
        Some(most) => (class_s || progress.attempts > most).then_some(DeadReason::Permanent),
        None => class_s.then_some(DeadReason::RetriesExhausted),
    }
}

/// An uncounted retry during an outage. The breaker says when; the formula must not push it beyond the
/// deadline.
fn excuse(
    rules: &DeliveryRules<'_>,
    now: Timestamp,
    after: Duration,
    at_least: Duration,
) -> Decision {
    let half_of_the_rest = rules.expires_at.since(now) / 2;
    let after = after.min(half_of_the_rest).max(at_least).max(REPLAY_PAUSE);
    uncounted(rules, now, after)
}

fn uncounted(rules: &DeliveryRules<'_>, now: Timestamp, after: Duration) -> Decision {
    if rules.is_one_shot || comes_too_late(rules, now, after) {
        too_late(rules)
    } else {
        Decision::Retry { after, counted: false }
    }
}

/// Allowed even for a single attempt: the provider has not taken this one.
fn at_once(rules: &DeliveryRules<'_>, now: Timestamp, resign: bool) -> Decision {
    if comes_too_late(rules, now, Duration::ZERO) {
        too_late(rules)
    } else {
        Decision::Again { resign }
    }
}

fn park(rules: &DeliveryRules<'_>, now: Timestamp) -> Decision {
    let after = rules.times.park;
    if rules.is_one_shot || comes_too_late(rules, now, after) {
        too_late(rules)
    } else {
        Decision::Park { after }
    }
}

/// Doubt about a young address never erases it: if the policy or the clock forbids to ask again,
/// the message is lost and the address stays.
fn gone(progress: &AttemptProgress, rules: &DeliveryRules<'_>, now: Timestamp) -> Decision {
    let is_young = progress.address_age.is_some_and(|age| age < YOUNG_ADDRESS);
    if is_young && progress.attempts <= YOUNG_ADDRESS_RETRIES {
        again_later(progress, rules, now, YOUNG_ADDRESS_PAUSE)
    } else {
        Decision::MarkGone
    }
}

fn comes_too_late(rules: &DeliveryRules<'_>, now: Timestamp, after: Duration) -> bool {
    ttl::is_over(rules.expires_at, now + after)
}

fn too_late(rules: &DeliveryRules<'_>) -> Decision {
    match rules.on_expiry {
        OnExpiry::DeadLetter => Decision::DeadLetter(DeadReason::Ttl),
        OnExpiry::Expire => Decision::Expire,
    }
}

//! Strikes: answers that are held against an address, and what follows when they add up. One strike
//! proves nothing, because a service with a bad day answers the same. The tables
//! ([`crate::policy::classify`]) say which answers strike; [`crate::policy::gone_guard`] keeps masses of
//! addresses from being erased. Stores nothing and reads no clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::delivery::names;
use crate::model::outcome::Outcome;
use crate::model::time::Timestamp;

names! {
    /// What a strike is for. New kinds go to the end: stores keep the numbers.
    StrikeKind {
        Endpoint = "endpoint",
        Mailbox = "mailbox",
        Number = "number",
        Unreachable = "unreachable",
        Blocked = "blocked",
        Device = "device",
        Key = "key",
        Host = "host",
        Failing = "failing",
    }
}

/// How long a strike is remembered after the last of its kind.
pub const KEPT: Duration = Duration::from_secs(30 * DAY_S);
/// A strike that counts by its duration is written again no sooner: its beginning matters.
const RENEWED_AFTER: Duration = Duration::from_secs(3600);
const DAY_S: u64 = 86_400;
const DAY_MS: i64 = 86_400_000;

impl StrikeKind {
    /// Whether every answer counts, even if the delivery is tried again. Otherwise a delivery strikes
    /// once, when it is given up.
    fn counts_each_answer(self) -> bool {
        matches!(self, Self::Host | Self::Failing)
    }
}

/// The strikes of one kind since the last success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strike {
    pub kind: StrikeKind,
    pub count: u32,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// The address is suspect because of it.
    pub suspect: bool,
}

impl Strike {
    /// One more strike of the kind, after the known ones.
    pub fn after(known: &[Self], kind: StrikeKind, now: Timestamp) -> Self {
        match known.iter().find(|strike| strike.kind == kind) {
            Some(strike) => Self {
                count: strike.count.saturating_add(1),
                last_at: now.max(strike.last_at),
                ..*strike
            },
            None => Self { kind, count: 1, first_at: now, last_at: now, suspect: false },
        }
    }
}

/// How an address is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressStanding {
    Keep,
    /// It is shown to its owner and still used.
    Suspect,
    Gone,
}

/// When strikes of one kind have a consequence, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrikeRule {
    /// This many strikes; 0 for never.
    pub count_min: u32,
    /// At least this long from the first to the last.
    pub over: Duration,
    /// They must not all have come on one day (UTC).
    pub different_days: bool,
    pub then: AddressStanding,
}

impl StrikeRule {
    const fn new(count_min: u32, over_s: u64, then: AddressStanding) -> Self {
        Self { count_min, over: Duration::from_secs(over_s), different_days: false, then }
    }

    fn judges(&self, strike: &Strike) -> AddressStanding {
        let day = |at: Timestamp| at.0.div_euclid(DAY_MS);
        let is_over = self.count_min > 0
            && strike.count >= self.count_min
            && strike.last_at.since(strike.first_at) >= self.over
            && (!self.different_days || day(strike.first_at) != day(strike.last_at));
        if is_over { self.then } else { AddressStanding::Keep }
    }
}

/// One rule for each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrikeRules {
    pub endpoint: StrikeRule,
    pub mailbox: StrikeRule,
    pub number: StrikeRule,
    pub unreachable: StrikeRule,
    pub blocked: StrikeRule,
    pub device: StrikeRule,
    pub key: StrikeRule,
    pub host: StrikeRule,
    pub failing: StrikeRule,
}

impl Default for StrikeRules {
    fn default() -> Self {
        use AddressStanding::{Gone, Suspect};
        Self {
            endpoint: StrikeRule::new(3, DAY_S, Gone),
            mailbox: StrikeRule { different_days: true, ..StrikeRule::new(2, 0, Gone) },
            number: StrikeRule::new(2, 0, Gone),
            unreachable: StrikeRule::new(3, 0, Suspect),
            blocked: StrikeRule::new(3, 0, Suspect),
            device: StrikeRule::new(3, 0, Suspect),
            key: StrikeRule::new(1, 0, Suspect),
            host: StrikeRule::new(2, DAY_S, Gone),
            failing: StrikeRule::new(2, 5 * DAY_S, Suspect),
        }
    }
}

impl StrikeRules {
    pub fn of(&self, kind: StrikeKind) -> &StrikeRule {
        match kind {
            StrikeKind::Endpoint => &self.endpoint,
            StrikeKind::Mailbox => &self.mailbox,
            StrikeKind::Number => &self.number,
            StrikeKind::Unreachable => &self.unreachable,
            StrikeKind::Blocked => &self.blocked,
            StrikeKind::Device => &self.device,
            StrikeKind::Key => &self.key,
            StrikeKind::Host => &self.host,
            StrikeKind::Failing => &self.failing,
        }
    }

    /// How the address is judged once this strike counts, too.
    pub fn weigh(&self, known: &[Strike], kind: StrikeKind, now: Timestamp) -> AddressStanding {
        self.of(kind).judges(&Strike::after(known, kind, now))
    }
}

/// The outcome of an answer that strikes an address of that standing. A receiver that has failed for
/// days gets one attempt of each message and no retries, until one succeeds.
pub fn outcome(said: Outcome, kind: StrikeKind, standing: AddressStanding) -> Outcome {
    let is_refusal = matches!(
        said,
        Outcome::DropMessage | Outcome::RetryBackoff { .. } | Outcome::RetryAfter { .. }
    );
    match standing {
        AddressStanding::Gone if is_refusal => Outcome::Gone,
        AddressStanding::Suspect if is_refusal && kind == StrikeKind::Failing => {
            Outcome::DropMessage
        }
        _ => said,
    }
}

/// A strike to be written down with a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewStrike {
    pub kind: StrikeKind,
    /// The address is suspect from now on.
    pub suspect: bool,
}

impl NewStrike {
    /// The strike to write down for an answer, if any. `given_up` says that the delivery is not tried
    /// again.
    pub fn for_answer(
        known: &[Strike],
        kind: StrikeKind,
        standing: AddressStanding,
        given_up: bool,
        now: Timestamp,
    ) -> Option<Self> {
        let before = known.iter().find(|strike| strike.kind == kind);
        let suspect = standing == AddressStanding::Suspect;
        let is_news = before.is_none_or(|strike| {
            now.since(strike.last_at) >= RENEWED_AFTER || (suspect && !strike.suspect)
        });
        let noted = if kind.counts_each_answer() { is_news } else { given_up };
        noted.then_some(Self { kind, suspect })
    }

    /// Whether the address was not suspect before.
    pub fn makes_suspect(self, known: &[Strike]) -> bool {
        self.suspect && !known.iter().any(|strike| strike.suspect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    /// What is known after strikes at these hours.
    fn known(kind: StrikeKind, hours: &[u32]) -> Vec<Strike> {
        hours
            .iter()
            .fold(Vec::new(), |known, hour| vec![Strike::after(&known, kind, NOW + HOUR * *hour)])
    }

    #[track_caller]
    fn becomes(kind: StrikeKind, earlier: &[u32], hour: u32, expected: AddressStanding) {
        let now = NOW + HOUR * hour;
        let found = StrikeRules::default().weigh(&known(kind, earlier), kind, now);
        assert_eq!(found, expected, "{kind} at {earlier:?} and {hour} h");
    }

    #[test]
    fn an_endpoint_called_invalid_is_gone_after_three_strikes_over_a_day() {
        use AddressStanding::*;
        becomes(StrikeKind::Endpoint, &[], 0, Keep);
        becomes(StrikeKind::Endpoint, &[0], 30, Keep);
        becomes(StrikeKind::Endpoint, &[0, 1, 2, 3], 23, Keep);
        becomes(StrikeKind::Endpoint, &[0, 1], 24, Gone);
    }

    #[test]
    fn a_mailbox_refused_without_a_reason_is_gone_after_two_on_different_days() {
        use AddressStanding::*;
        // NOW is 08:00 UTC.
        becomes(StrikeKind::Mailbox, &[], 0, Keep);
        becomes(StrikeKind::Mailbox, &[0, 1, 2], 15, Keep);
        becomes(StrikeKind::Mailbox, &[15], 16, Gone);
    }

    #[test]
    fn an_unknown_number_is_gone_at_the_second_strike_and_an_unreachable_one_suspect_at_the_third()
    {
        use AddressStanding::*;
        becomes(StrikeKind::Number, &[], 0, Keep);
        becomes(StrikeKind::Number, &[0], 0, Gone);
        becomes(StrikeKind::Unreachable, &[0], 5, Keep);
        becomes(StrikeKind::Unreachable, &[0, 5], 9, Suspect);
        becomes(StrikeKind::Blocked, &[0, 5], 9, Suspect);
    }

    #[test]
    fn a_host_without_a_name_is_gone_after_a_day_of_it() {
        becomes(StrikeKind::Host, &[0, 1, 2, 9], 23, AddressStanding::Keep);
        becomes(StrikeKind::Host, &[0], 24, AddressStanding::Gone);
    }

    #[test]
    fn a_receiver_that_only_failed_for_five_days_is_suspect_and_gets_no_retries() {
        becomes(StrikeKind::Failing, &[0, 50, 100], 119, AddressStanding::Keep);
        becomes(StrikeKind::Failing, &[0, 50, 100], 120, AddressStanding::Suspect);
        let retry = Outcome::RetryBackoff { at_least: Duration::ZERO };
        let said = |standing| outcome(retry.clone(), StrikeKind::Failing, standing);
        assert_eq!(said(AddressStanding::Suspect), Outcome::DropMessage);
        assert_eq!(said(AddressStanding::Keep), retry);
    }

    #[test]
    fn a_rule_of_zero_strikes_never_judges() {
        let rules = StrikeRules {
            number: StrikeRule { count_min: 0, ..StrikeRules::default().number },
            ..StrikeRules::default()
        };
        let known = known(StrikeKind::Number, &[0, 1, 2]);
        assert_eq!(rules.weigh(&known, StrikeKind::Number, NOW + HOUR * 9), AddressStanding::Keep);
    }

    #[test]
    fn strikes_of_one_kind_say_nothing_about_another() {
        let known = known(StrikeKind::Unreachable, &[0, 1, 2]);
        let rules = StrikeRules::default();
        assert_eq!(rules.weigh(&known, StrikeKind::Number, NOW + HOUR * 3), AddressStanding::Keep);
    }

    #[test]
    fn a_delivery_strikes_once_when_it_is_given_up() {
        let noted =
            |kind, given_up| NewStrike::for_answer(&[], kind, AddressStanding::Keep, given_up, NOW);
        assert_eq!(noted(StrikeKind::Unreachable, false), None);
        assert!(noted(StrikeKind::Unreachable, true).is_some());
        assert!(noted(StrikeKind::Host, false).is_some(), "its beginning is what matters");
    }

    #[test]
    fn a_blame_that_counts_by_its_length_is_written_once_an_hour_and_when_it_makes_suspect() {
        let known = known(StrikeKind::Failing, &[0]);
        let noted = |standing, minutes: u64| {
            let now = NOW + Duration::from_secs(60 * minutes);
            NewStrike::for_answer(&known, StrikeKind::Failing, standing, true, now)
        };
        assert_eq!(noted(AddressStanding::Keep, 59), None);
        assert!(noted(AddressStanding::Keep, 60).is_some());
        let suspect = noted(AddressStanding::Suspect, 1).unwrap();
        assert!(suspect.makes_suspect(&known));
        assert!(!suspect.makes_suspect(&[Strike { suspect: true, ..known[0] }]));
    }

    #[test]
    fn what_was_taken_or_may_have_been_taken_never_becomes_gone_by_strikes() {
        for said in [Outcome::Accepted, Outcome::Ambiguous, Outcome::Expired, Outcome::Config] {
            assert_eq!(outcome(said.clone(), StrikeKind::Number, AddressStanding::Gone), said);
        }
        let gone = outcome(Outcome::DropMessage, StrikeKind::Number, AddressStanding::Gone);
        assert_eq!(gone, Outcome::Gone);
    }
}

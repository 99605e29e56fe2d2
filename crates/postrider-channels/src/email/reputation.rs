//! The reputation of one sending domain at one receiving domain. If too many recent mails are refused for policy (spam,
//! DMARC, SPF, a missing PTR), further mails of this pair wait, because each refusal costs more reputation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::policy::window::SlidingWindow;
use postrider_core::{Outcome, Report, Scope, Timestamp};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReputationPolicy {
    /// More than this share of the mails ...
    pub share: f64,
    /// ... out of at least this many ...
    pub mails_min: u32,
    /// ... within this time ...
    pub window_s: u32,
    /// ... and the mails of the pair wait for so long.
    pub hold_s: u32,
}

impl Default for ReputationPolicy {
    fn default() -> Self {
        Self { share: 0.2, mails_min: 20, window_s: 3_600, hold_s: 900 }
    }
}

/// Whether a reply refuses the sender, not the mailbox or the mail's form. `text` may begin with the enhanced code.
pub(super) fn refuses(status: u16, text: &str) -> bool {
    const WORDS: [&str; 6] = ["spam", "policy", "dmarc", "spf", "ptr record", "reputation"];
    let text = text.to_ascii_lowercase();
    match status {
        550..=554 if text.starts_with("5.7.") => true,
        554 => WORDS.iter().any(|word| text.contains(word)),
        _ => false,
    }
}

/// The reputation of one pair since its first refusal.
#[derive(Debug, Clone)]
struct Reputation {
    policy: ReputationPolicy,
    /// "Failed" are the mails that were refused for policy.
    mails: SlidingWindow,
    held_until: Option<Timestamp>,
}

impl Reputation {
    fn new(policy: ReputationPolicy) -> Self {
        let mails = SlidingWindow::new(Duration::from_secs(policy.window_s.into()));
        Self { policy, mails, held_until: None }
    }

    /// Until when the mails of the pair wait.
    fn held(&self, now: Timestamp) -> Option<Timestamp> {
        self.held_until.filter(|until| *until > now)
    }

    /// Counts a mail. If the pair has to wait from now on, returns until when.
    fn report(&mut self, refused: bool, now: Timestamp) -> Option<Timestamp> {
        self.mails.count(refused, now);
        let too_many = self.mails.tally(now).exceeds(self.policy.share, self.policy.mails_min);
        if !refused || !too_many || self.held(now).is_some() {
            return None;
        }
        self.mails.clear();
        self.held_until = Some(now + Duration::from_secs(self.policy.hold_s.into()));
        self.held_until
    }

    /// Whether it no longer matters.
    fn is_forgettable(&mut self, now: Timestamp) -> bool {
        self.held(now).is_none() && self.mails.tally(now).failed == 0
    }
}

/// The most pairs that are stored.
const PAIRS_MAX: usize = 10_000;

type DomainPair = (String, String);

/// The reputation of all pairs with a refusal. Accepted mail costs nothing.
#[derive(Default)]
pub(super) struct ReputationTable {
    policy: ReputationPolicy,
    /// Whether any pair is stored.
    any: AtomicBool,
    pairs: Mutex<HashMap<DomainPair, Reputation>>,
}

impl ReputationTable {
    pub(super) fn new(policy: ReputationPolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    fn pairs(&self) -> MutexGuard<'_, HashMap<DomainPair, Reputation>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The report of an attempt that is not made because its pair is held.
    pub(super) fn held(&self, from: &str, to: &str, now: Timestamp) -> Option<Box<Report>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let pair = pair(from, to);
        let until = self.pairs().get(&pair).and_then(|known| known.held(now))?;
        let outcome = Outcome::Hold { after: until.since(now), scope: Scope::Target };
        let detail = format!(
            "{} refused too many of the latest mails from {} for policy; check SPF, DKIM, DMARC and PTR",
            pair.1, pair.0
        );
        Some(Box::new(Report::new(outcome).code("reputation").detail(detail)))
    }

    /// Records whether a mail was refused for the sender's reputation.
    pub(super) fn report(&self, from: &str, to: &str, refused: bool, now: Timestamp) {
        if !refused && !self.any.load(Ordering::Acquire) {
            return;
        }
        let pair = pair(from, to);
        let mut pairs = self.pairs();
        if refused && !pairs.contains_key(&pair) {
            if pairs.len() >= PAIRS_MAX {
                pairs.retain(|_, known| !known.is_forgettable(now));
            }
            if pairs.len() >= PAIRS_MAX {
                // Forgetting all pairs costs a few refusals; the table must not grow further.
                pairs.clear();
            }
            pairs.insert(pair.clone(), Reputation::new(self.policy));
            self.any.store(true, Ordering::Release);
        }
        let Some(known) = pairs.get_mut(&pair) else { return };
        if let Some(until) = known.report(refused, now) {
            let (sender, receiver) = (&*pair.0, &*pair.1);
            tracing::warn!(sender, receiver, %until, "too many mails were refused for policy: the rest wait");
        }
    }
}

fn pair(from: &str, to: &str) -> DomainPair {
    let domain = |address: &str| {
        address.rsplit_once('@').map_or(address, |(_, domain)| domain).to_ascii_lowercase()
    };
    (domain(from), domain(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn refusals_for_policy_are_told_from_other_refusals() {
        for (status, text) in [
            (550, "5.7.1 blocked"),
            (550, "5.7.26 unauthenticated mail is prohibited"),
            (550, "5.7.25 no PTR"),
            (550, "5.7.23 SPF"),
            (554, "rejected due to Spam"),
            (554, "DMARC policy of the sender"),
        ] {
            assert!(refuses(status, text), "{status} {text}");
        }
        for (status, text) in
            [(550, "5.1.1 no such user"), (550, "spam"), (554, "no"), (451, "4.7.1 later")]
        {
            assert!(!refuses(status, text), "{status} {text}");
        }
    }

    #[test]
    fn a_pair_rests_when_more_than_a_fifth_of_twenty_are_refused() {
        let mut pair = Reputation::new(ReputationPolicy::default());
        for nth in 0..19 {
            assert_eq!(pair.report(nth % 4 == 0, NOW), None, "too few to judge by");
        }
        let until = NOW + Duration::from_secs(900);
        assert_eq!(pair.report(true, NOW), Some(until));
        assert_eq!(pair.held(NOW), Some(until));
        assert_eq!(pair.held(until), None);
        assert_eq!(pair.report(true, until), None, "it starts anew");
    }

    #[test]
    fn a_fifth_is_not_more_than_a_fifth() {
        let mut pair = Reputation::new(ReputationPolicy::default());
        for nth in 1..=200 {
            assert_eq!(pair.report(nth % 5 == 0, NOW), None);
        }
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut pair = Reputation::new(ReputationPolicy::default());
        for _ in 0..10 {
            assert_eq!(pair.report(true, NOW), None);
        }
        let later = NOW + Duration::from_secs(7200);
        assert!(pair.is_forgettable(later));
        (0..15).for_each(|nth| assert_eq!(pair.report(nth < 2, later), None));
    }
}

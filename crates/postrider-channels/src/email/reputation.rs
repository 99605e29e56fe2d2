//! What one receiving domain thinks of one sending domain. Mails that are refused for policy (spam, DMARC,
//! SPF, a missing PTR) cost reputation, and every further one costs more: where too many of the latest are
//! refused so, the pair rests. Says nothing about other pairs, reads no clock.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::policy::window::SlidingWindow;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReputationPolicy {
    /// More than this share of the mails ...
    pub share: f64,
    /// ... out of at least this many ...
    pub mails_min: u32,
    /// ... within this time ...
    pub window_s: u32,
    /// ... and the pair rests for so long.
    pub hold_s: u32,
}

impl Default for ReputationPolicy {
    fn default() -> Self {
        Self { share: 0.2, mails_min: 20, window_s: 3_600, hold_s: 900 }
    }
}

/// Whether a reply refuses the sender's reputation, not the mailbox or the mail's form. `text` may begin
/// with the enhanced code.
pub(super) fn refuses(status: u16, text: &str) -> bool {
    const WORDS: [&str; 6] = ["spam", "policy", "dmarc", "spf", "ptr record", "reputation"];
    let text = text.to_ascii_lowercase();
    match status {
        550..=554 if text.starts_with("5.7.") => true,
        554 => WORDS.iter().any(|word| text.contains(word)),
        _ => false,
    }
}

/// The standing of one pair, from its first refusal on.
#[derive(Debug, Clone)]
pub(super) struct Reputation {
    policy: ReputationPolicy,
    /// "Failed" are those that were refused for it.
    mails: SlidingWindow,
    held_until: Option<Timestamp>,
}

impl Reputation {
    pub(super) fn new(policy: ReputationPolicy) -> Self {
        let mails = SlidingWindow::new(Duration::from_secs(policy.window_s.into()));
        Self { policy, mails, held_until: None }
    }

    /// Until when the pair rests.
    pub(super) fn held(&self, now: Timestamp) -> Option<Timestamp> {
        self.held_until.filter(|until| *until > now)
    }

    /// The end of a mail. Answers until when the pair rests, if it does from now on.
    pub(super) fn report(&mut self, refused: bool, now: Timestamp) -> Option<Timestamp> {
        self.mails.count(refused, now);
        let too_many = self.mails.tally(now).exceeds(self.policy.share, self.policy.mails_min);
        if !refused || !too_many || self.held(now).is_some() {
            return None;
        }
        self.mails.clear();
        self.held_until = Some(now + Duration::from_secs(self.policy.hold_s.into()));
        self.held_until
    }

    /// Nothing is known that matters any more.
    pub(super) fn is_forgettable(&mut self, now: Timestamp) -> bool {
        self.held(now).is_none() && self.mails.tally(now).failed == 0
    }
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

//! How the addresses of one tenant at one origin fare: the latest vote of each, over the last minute. A
//! hot address has one slot of many, so that it has little say; memory is bounded. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;

/// Slots of the ring; an address always votes in the same one.
const SLOTS: usize = 256;
/// How long a vote counts.
const VALID_FOR: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Default)]
pub struct Votes(Vec<Vote>);

#[derive(Debug, Clone, Copy)]
struct Vote {
    slot: u8,
    good: bool,
    at: Timestamp,
}

/// The votes that count at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VoteCount {
    pub voters: usize,
    pub bad: usize,
}

impl VoteCount {
    fn of<'a>(votes: impl Iterator<Item = &'a Vote>) -> Self {
        let mut count = Self::default();
        for vote in votes {
            count.voters += 1;
            count.bad += usize::from(!vote.good);
        }
        count
    }

    /// From 0 to 1; 0 without voters.
    pub fn bad_share(self) -> f64 {
        self.bad as f64 / self.voters.max(1) as f64
    }
}

impl Votes {
    /// The slot of an address.
    pub(super) fn slot(target: u64) -> u8 {
        (target % SLOTS as u64) as u8
    }

    /// `target` is a number that stands for the address.
    pub fn cast(&mut self, target: u64, good: bool, now: Timestamp) {
        let vote = Vote { slot: Self::slot(target), good, at: now };
        match self.0.binary_search_by_key(&vote.slot, |vote| vote.slot) {
            Ok(nth) => self.0[nth] = vote,
            Err(nth) => self.0.insert(nth, vote),
        }
    }

    pub fn count(&self, now: Timestamp) -> VoteCount {
        self.count_without(None, now)
    }

    /// The votes of all addresses but those in the slot of this one.
    pub fn count_others(&self, target: u64, now: Timestamp) -> VoteCount {
        self.count_without(Some(Self::slot(target)), now)
    }

    fn count_without(&self, slot: Option<u8>, now: Timestamp) -> VoteCount {
        let others = |vote: &&Vote| Some(vote.slot) != slot && vote.counts(now);
        VoteCount::of(self.0.iter().filter(others))
    }

    /// The votes since then.
    pub fn count_since(&self, since: Timestamp) -> VoteCount {
        VoteCount::of(self.0.iter().filter(|vote| vote.at >= since))
    }

    /// The votes of the others since then.
    pub fn count_others_since(&self, target: u64, since: Timestamp, now: Timestamp) -> VoteCount {
        let slot = Self::slot(target);
        let others = |vote: &&Vote| vote.slot != slot && vote.at >= since && vote.counts(now);
        VoteCount::of(self.0.iter().filter(others))
    }

    /// Takes back the vote in the slot of this address.
    pub fn withdraw(&mut self, target: u64) {
        self.0.retain(|vote| vote.slot != Self::slot(target));
    }

    /// What failed before does not count any more.
    pub fn forget_bad(&mut self) {
        self.0.retain(|vote| vote.good);
    }
}

impl Vote {
    fn counts(&self, now: Timestamp) -> bool {
        now.since(self.at) < VALID_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn an_address_has_one_vote_the_latest() {
        let mut votes = Votes::default();
        (0..1_000).for_each(|_| votes.cast(7, false, NOW));
        votes.cast(8, true, NOW);
        assert_eq!(votes.count(NOW), VoteCount { voters: 2, bad: 1 });
        votes.cast(7, true, NOW);
        assert_eq!(votes.count(NOW), VoteCount { voters: 2, bad: 0 });
    }

    #[test]
    fn a_vote_counts_for_a_minute() {
        let mut votes = Votes::default();
        votes.cast(7, false, NOW);
        assert_eq!(votes.count(NOW + Duration::from_millis(59_999)).voters, 1);
        assert_eq!(votes.count(NOW + Duration::from_secs(60)).voters, 0);
    }

    #[test]
    fn others_are_counted_without_the_address_itself() {
        let mut votes = Votes::default();
        votes.cast(1, false, NOW);
        votes.cast(2, true, NOW);
        assert_eq!(votes.count_others(1, NOW), VoteCount { voters: 1, bad: 0 });
    }

    #[test]
    fn of_others_only_the_votes_since_then_may_be_asked_for() {
        let mut votes = Votes::default();
        votes.cast(1, true, NOW);
        votes.cast(2, false, NOW + Duration::from_secs(1));
        let later = NOW + Duration::from_secs(2);
        assert_eq!(votes.count_others_since(3, NOW, later), VoteCount { voters: 2, bad: 1 });
        let since = NOW + Duration::from_secs(1);
        assert_eq!(votes.count_others_since(3, since, later), VoteCount { voters: 1, bad: 1 });
    }

    #[test]
    fn memory_is_bounded_however_many_addresses_vote() {
        let mut votes = Votes::default();
        (0..100_000).for_each(|target| votes.cast(target, target % 2 == 0, NOW));
        assert_eq!(votes.0.len(), SLOTS);
    }
}

//! Which addresses answered well lately where nothing failed, so that the first failures are seen beside them.
//! Small, because every tenant at every origin has one. Reads no clock.

use crate::model::time::Timestamp;
use crate::policy::votes::Votes;

/// So many good votes are enough to outweigh the first bad ones.
const VOTERS: usize = 8;

#[derive(Debug, Clone, Copy, Default)]
pub struct RecentVoters {
    slots: [u8; VOTERS],
    at: [Timestamp; VOTERS],
    /// Where the next address is put.
    next: usize,
}

impl RecentVoters {
    /// An address answered well. `target` is a number that stands for it.
    pub fn note(&mut self, target: u64, now: Timestamp) {
        let slot = Votes::slot(target);
        let known = |nth: &usize| self.slots[*nth] == slot && self.at[*nth] != Timestamp::default();
        let nth = (0..VOTERS).find(known).unwrap_or_else(|| {
            let nth = self.next;
            self.next = (nth + 1) % VOTERS;
            nth
        });
        (self.slots[nth], self.at[nth]) = (slot, now);
    }

    /// The votes of these addresses.
    pub fn votes(&self) -> Votes {
        let mut votes = Votes::default();
        let known = self.slots.iter().zip(self.at).filter(|(_, at)| *at != Timestamp::default());
        known.for_each(|(slot, at)| votes.cast((*slot).into(), true, at));
        votes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::votes::VoteCount;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn the_last_addresses_that_answered_well_vote_each_once() {
        let mut recent = RecentVoters::default();
        (0..1_000).for_each(|_| recent.note(0, NOW));
        assert_eq!(recent.votes().count(NOW), VoteCount { voters: 1, bad: 0 });
        (0..100).for_each(|target| recent.note(target, NOW));
        assert_eq!(recent.votes().count(NOW).voters, VOTERS);
    }

    #[test]
    fn an_answer_counts_no_longer_than_any_vote() {
        let mut recent = RecentVoters::default();
        recent.note(7, NOW);
        assert_eq!(recent.votes().count(NOW + Duration::from_secs(60)).voters, 0);
    }
}

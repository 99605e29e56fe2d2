//! Which addresses answered well lately where nothing failed, so that the first failures are seen beside them.
//! Small, because every tenant at every origin has one. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::served_addresses::ServedAddresses;
use crate::policy::votes::Votes;

/// An answer is remembered for one to two of these, as if it had come at the beginning of its time.
const REMEMBERED: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, Default)]
pub struct RecentVoters {
    before: ServedAddresses,
    lately: ServedAddresses,
    turned_at: Timestamp,
}

impl RecentVoters {
    /// An address answered well. `target` is a number that stands for it.
    pub fn note(&mut self, target: u64, now: Timestamp) {
        if now < self.turned_at || now.since(self.turned_at) >= REMEMBERED {
            let is_long_ago = now < self.turned_at || now.since(self.turned_at) >= 2 * REMEMBERED;
            let lately = std::mem::take(&mut self.lately);
            self.before = if is_long_ago { ServedAddresses::default() } else { lately };
            self.turned_at = now;
        }
        self.lately.add(target);
    }

    /// The votes of these addresses.
    pub fn votes(&self) -> Votes {
        let mut votes = Votes::default();
        let before = Timestamp(self.turned_at.0 - REMEMBERED.as_millis() as i64);
        for (addresses, at) in [(&self.before, before), (&self.lately, self.turned_at)] {
            addresses.slots().for_each(|slot| votes.cast(slot, true, at));
        }
        votes
    }

    /// The addresses themselves.
    pub(super) fn served(&self) -> ServedAddresses {
        self.before.with(&self.lately)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::votes::VoteCount;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn the_addresses_that_answered_well_lately_vote_each_once() {
        let mut recent = RecentVoters::default();
        (0..1_000).for_each(|_| recent.note(0, NOW));
        assert_eq!(recent.votes().count(NOW), VoteCount { voters: 1, bad: 0 });
        (0..100).for_each(|target| recent.note(target, NOW + Duration::from_secs(20)));
        assert_eq!(recent.votes().count(NOW + Duration::from_secs(25)).voters, 100);
    }

    #[test]
    fn an_answer_counts_no_longer_than_any_vote() {
        let mut recent = RecentVoters::default();
        recent.note(1, NOW);
        let later = NOW + Duration::from_secs(40);
        recent.note(2, later);
        assert_eq!(recent.votes().count(later).voters, 2);
        assert_eq!(recent.votes().count(NOW + Duration::from_secs(75)).voters, 1);
        recent.note(3, NOW + Duration::from_secs(3_600));
        assert_eq!(recent.votes().count(NOW + Duration::from_secs(3_600)).voters, 1);
    }
}

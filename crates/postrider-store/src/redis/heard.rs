//! Which shards may have notes that their holder does not know. Asking all of them each time would cost more than the
//! work itself.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::sharded::{SHARDS, ShardId};

/// A shard of which nothing was heard is asked so often.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// What was heard of the notes of each shard.
pub(super) struct HeardShards(Mutex<HeardState>);

struct HeardState {
    /// How often something was heard of a shard, and how often when it was found empty last, and when that was.
    shards: Vec<(u64, u64, Option<Instant>)>,
    /// Shards of which other nodes are to be told.
    to_tell: BTreeSet<ShardId>,
}

impl Default for HeardShards {
    fn default() -> Self {
        let shards = vec![(0, 0, None); usize::from(SHARDS)];
        Self(Mutex::new(HeardState { shards, to_tell: BTreeSet::new() }))
    }
}

impl HeardShards {
    fn state(&self) -> MutexGuard<'_, HeardState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These shards have new notes.
    pub(super) fn hear(&self, shards: impl IntoIterator<Item = ShardId>) {
        let mut state = self.state();
        for shard in shards {
            if let Some(known) = state.shards.get_mut(usize::from(shard)) {
                known.0 += 1;
            }
        }
    }

    /// The same, by this node: others are to be told.
    pub(super) fn note(&self, shards: impl IntoIterator<Item = ShardId>) {
        let shards: Vec<_> = shards.into_iter().collect();
        self.hear(shards.iter().copied());
        self.state().to_tell.extend(shards);
    }

    pub(super) fn take_to_tell(&self) -> BTreeSet<ShardId> {
        std::mem::take(&mut self.state().to_tell)
    }

    /// What was heard of a shard, if it is worth asking.
    pub(super) fn worth_asking(&self, shard: ShardId) -> Option<u64> {
        let state = self.state();
        let (heard, known, asked) = state.shards.get(usize::from(shard)).copied()?;
        let is_old = asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
        (is_old || heard != known).then_some(heard)
    }

    /// A shard had no notes when so much was heard of it.
    pub(super) fn found_empty(&self, shard: ShardId, heard: u64) {
        if let Some(known) = self.state().shards.get_mut(usize::from(shard)) {
            (known.1, known.2) = (heard, Some(Instant::now()));
        }
    }

    /// Notes may be there again that were read before: another worker holds the shard now.
    pub(super) fn forget(&self, shard: ShardId) {
        if let Some(known) = self.state().shards.get_mut(usize::from(shard)) {
            known.2 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_asked_when_something_was_heard_or_it_is_new() {
        let heard = HeardShards::default();
        let asked = heard.worth_asking(3).unwrap();
        heard.found_empty(3, asked);
        assert_eq!(heard.worth_asking(3), None);
        heard.hear([3]);
        assert!(heard.worth_asking(3).is_some() && heard.take_to_tell().is_empty());
        heard.found_empty(3, heard.worth_asking(3).unwrap());
        assert_eq!(heard.worth_asking(3), None);
        heard.forget(3);
        assert!(heard.worth_asking(3).is_some());
        heard.note([5, 5]);
        assert_eq!(heard.take_to_tell().len(), 1);
    }
}

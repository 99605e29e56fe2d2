//! The peers that the pool knows. Forgets those without connections and requests, a few at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

use super::peer::Peer;

/// From this many peers on, unused ones are looked for.
const SWEPT_FROM: usize = 1024;
/// Peers that are looked at when one is added: more than one, so that unused ones become fewer.
const LOOKED_AT: usize = 2;

#[derive(Default)]
pub(super) struct Peers(RwLock<KnownPeers>);

#[derive(Default)]
struct KnownPeers {
    /// By the beginning of the URL as it was written, so that the path of a request parses and allocates nothing.
    by_prefix: HashMap<Arc<str>, Arc<Peer>>,
    /// The order in which they are looked at.
    round: VecDeque<Arc<str>>,
}

impl Peers {
    pub(super) fn get(&self, prefix: &str) -> Option<Arc<Peer>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_prefix.get(prefix).cloned()
    }

    pub(super) fn insert(&self, prefix: &str, new: impl FnOnce() -> Peer) -> Arc<Peer> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = known.by_prefix.get(prefix) {
            return peer.clone();
        }
        if known.by_prefix.len() >= SWEPT_FROM {
            (0..LOOKED_AT).for_each(|_| known.sweep_next());
        }
        let (key, peer) = (Arc::<str>::from(prefix), Arc::new(new()));
        known.round.push_back(key.clone());
        known.by_prefix.insert(key, peer.clone());
        peer
    }

    pub(super) fn for_each(&self, look: impl FnMut(&Arc<Peer>)) {
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_prefix.values().for_each(look);
    }
}

impl KnownPeers {
    /// Forgets the next peer if it is unused.
    fn sweep_next(&mut self) {
        let Some(key) = self.round.pop_front() else { return };
        let is_used = self
            .by_prefix
            .get(&key)
            .is_some_and(|peer| Arc::strong_count(peer) > 1 || peer.load() != (0, 0));
        if is_used {
            self.round.push_back(key);
        } else {
            self.by_prefix.remove(&key);
        }
    }
}

//! The unused connections of all origins, by their last use. Finds the one that is to make room.
//!
//! The order is kept lazily, so that a request that ends on a listed connection takes no lock: an entry may be older
//! than the last use of its connection, and is moved when it comes up. Every move is paid for by a request.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::conn::ConnectionStatus;
use super::peer::Peer;

/// Entries that one search looks at.
const LOOKED_AT_MAX: usize = 512;

#[derive(Default)]
pub(super) struct IdleConnections {
    /// By the last use that is known here, and the connection's id.
    entries: Mutex<BTreeMap<(u64, u64), IdleEntry>>,
}

struct IdleEntry {
    status: Arc<ConnectionStatus>,
    peer: Weak<Peer>,
}

impl IdleConnections {
    /// Lists a connection without a request in flight, if it is not listed.
    pub(super) fn list(&self, status: &Arc<ConnectionStatus>, peer: &Arc<Peer>) {
        if !status.listed.load(Ordering::SeqCst) && !status.listed.swap(true, Ordering::SeqCst) {
            self.insert(IdleEntry { status: status.clone(), peer: Arc::downgrade(peer) });
        }
    }

    /// Forgets a connection that has ended.
    pub(super) fn remove(&self, status: &ConnectionStatus) {
        let mut entries = self.lock();
        entries.remove(&status.listed_as());
    }

    /// Closes the connection that was unused for the longest time. False if all are in use.
    pub(super) fn close_oldest(&self) -> bool {
        let mut reserved = Vec::new();
        let mut closed = false;
        for _ in 0..LOOKED_AT_MAX {
            let Some(((known_use, _), entry)) = self.lock().pop_first() else { break };
            let Some(peer) = entry.peer.upgrade() else { continue };
            let status = &entry.status;
            // A request that ends from here on lists it again. `in_flight` is read afterwards, so none is missed.
            status.listed.store(false, Ordering::SeqCst);
            if status.in_flight.load(Ordering::SeqCst) > 0 {
                continue;
            }
            if status.is_reserved() {
                reserved.push((status.clone(), peer));
            } else if status.last_use() > known_use {
                self.list(status, &peer);
            } else if peer.close_if_idle(status) {
                closed = true;
                break;
            }
        }
        for (status, peer) in reserved {
            self.list(&status, &peer);
        }
        closed
    }

    fn insert(&self, entry: IdleEntry) {
        let mut entries = self.lock();
        if !entry.status.draining.load(Ordering::SeqCst) {
            entries.insert(entry.status.list_now(), entry);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u64, u64), IdleEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

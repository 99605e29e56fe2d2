//! What the writer does between transactions, a little at a time.

use std::time::{Duration, Instant};

use postrider_core::Timestamp;
use postrider_core::ports::store::{StoreError, StoreResult};

use super::free_pages::FreePages;
use super::shared::REPAIR;
use super::writer::Writer;

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(10);

struct Chore {
    /// Does one step. True if it did something, and there may be more.
    step: fn(&mut Writer) -> StoreResult<bool>,
    report: fn(&Writer, StoreError, Timestamp),
}

const CHORES: [Chore; 9] = [
    // Who asked for it is told of a failure.
    Chore { step: |writer| Ok(writer.prune_some()), report: |_, _, _| {} },
    Chore {
        step: Writer::give_back_pages,
        report: |_, error, _| {
            tracing::debug!(%error, "free pages cannot be given back; will try again");
        },
    },
    Chore {
        step: Writer::move_some_keys,
        report: |_, error, _| {
            tracing::warn!(%error, "idempotency keys could not be moved; will try again");
        },
    },
    Chore {
        step: Writer::pack_some,
        report: |_, error, _| {
            tracing::warn!(%error, "finished deliveries could not be packed; will try again");
        },
    },
    Chore {
        step: Writer::list_some_expiries,
        report: |_, error, _| {
            tracing::warn!(%error, "the expiries of pending deliveries could not be listed; will try again");
        },
    },
    Chore {
        step: Writer::list_some_waiting,
        report: |writer, error, now| {
            let what =
                format!("the list of waiting deliveries cannot be written ({error}); {REPAIR}");
            writer.shared.problems.report("index_damaged", now, what);
        },
    },
    Chore {
        step: Writer::delete_some_ended,
        report: |_, error, _| {
            tracing::warn!(%error, "ended deliveries could not be taken out of the list; will try again");
        },
    },
    Chore {
        step: Writer::write_order_block,
        report: |_, error, _| {
            tracing::warn!(%error, "the order of the ledger could not be written; will try again");
        },
    },
    Chore {
        step: Writer::add_up_counts,
        report: |_, error, _| {
            tracing::warn!(%error, "counts could not be added up; will try again");
        },
    },
];

/// No further step begins after this time, so that commits wait for one long step at most.
const BUDGET: Duration = Duration::from_micros(500);

/// Whose turn it is.
#[derive(Default)]
pub(crate) struct ChoreTurns {
    next: usize,
    /// Per chore, after a failure: not before this time.
    pauses: [i64; CHORES.len()],
}

impl Writer {
    /// True if there may be more to do.
    pub(crate) fn housekeep(&mut self) -> bool {
        let begin = Instant::now();
        self.checkpointer.checkpoint_if_needed(&self.conn);
        if begin.elapsed() >= BUDGET {
            // Commits waited long enough.
            return true;
        }
        // What chores write is not always part of a transaction that looks.
        if self.check_owner().is_err() {
            return false;
        }
        self.reserve.check_free(|| FreePages::bytes(&self.conn));
        if self.reserve.is_due() {
            self.checkpoint();
            self.restore_reserve();
        }
        if !self.reserve.is_whole() {
            // Deleting makes room.
            let shrinks = self.give_back_pages().unwrap_or_else(|error| {
                tracing::debug!(%error, "free pages cannot be given back on a full disk");
                false
            });
            return self.prune_some() || shrinks;
        }
        self.do_chores(begin)
    }

    /// One step of each in turn, as far as there is time. One that fails pauses alone.
    fn do_chores(&mut self, begin: Instant) -> bool {
        let (now, mut more) = (self.shared.now(), false);
        for _ in 0..CHORES.len() {
            let turn = self.chores.next;
            self.chores.next = (turn + 1) % CHORES.len();
            if now.0 < self.chores.pauses[turn] {
                continue;
            }
            let chore = &CHORES[turn];
            let done = (chore.step)(self);
            match done {
                Ok(some) => more |= some,
                Err(error) => {
                    (chore.report)(self, error, now);
                    self.chores.pauses[turn] = (now + PAUSE).0;
                }
            }
            if begin.elapsed() >= BUDGET {
                return true;
            }
        }
        more
    }

    fn move_some_keys(&mut self) -> StoreResult<bool> {
        let now = self.shared.now();
        if !self.dedup.has_work(now) {
            return Ok(false);
        }
        self.dedup.work(&self.conn, now)
    }
}

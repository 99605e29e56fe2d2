//! What is done when a write fails that must not: the reserve is given up for it, and what is
//! damaged is set aside. New work has no part in this; it is refused instead.

use std::slice;
use std::time::Duration;

use postrider_core::ports::store::{Settled, StoreError, StoreResult};

use super::board::{Landing, Unread};
use super::draft::Draft;
use super::queue::DAMAGED_REST;
use super::settle::Verdict;
use super::writer::Writer;

/// How long the fold of the journal may keep everyone waiting for a reader.
const FOLD_PATIENCE: Duration = Duration::from_millis(50);
const USUAL_PATIENCE: Duration = Duration::from_secs(10);

impl Writer {
    /// As `transact`, and on a full disk once more with the room that was kept back.
    pub(super) fn transact_surely<T>(
        &mut self,
        mut body: impl FnMut(&mut Self, &mut Draft) -> StoreResult<T>,
    ) -> StoreResult<T> {
        match self.transact(&mut body) {
            Err(StoreError::Full(_)) => {
                if self.reserve.give_back() {
                    tracing::error!(
                        "the disk is full: the reserve is used to finish what was accepted, \
                         and new work is refused until there is room again"
                    );
                }
                self.fold();
                self.transact(body)
            }
            done => done,
        }
    }

    /// Moves what the journal holds into the database and gives the journal's room back, as far as
    /// that is possible at this moment.
    pub(super) fn fold(&self) {
        let folded = self
            .conn
            .busy_timeout(FOLD_PATIENCE)
            .and_then(|()| self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
        if let Err(error) = folded {
            tracing::warn!(%error, "the journal could not be folded in; will try again");
        }
        if let Err(error) = self.conn.busy_timeout(USUAL_PATIENCE) {
            tracing::warn!(%error, "the store's patience could not be set");
        }
    }

    /// New work is taken if the reserve can be made whole.
    pub(super) fn restore_reserve(&mut self) {
        let first = !self.reserve.was_tried();
        match self.reserve.make_whole() {
            Ok(()) if first => {}
            Ok(()) => tracing::info!("there is room on the disk again: new work is taken"),
            Err(error) if first => tracing::warn!(
                %error,
                "the reserve on the disk cannot be made: new work is refused until there is room"
            ),
            Err(error) => tracing::debug!(%error, "the disk is still full"),
        }
    }

    /// Writes decisions down although the disk is full or some of what they are about is damaged.
    pub(super) fn settle_surely(&mut self, verdicts: &[Verdict]) -> StoreResult<Vec<Settled>> {
        match self.transact_surely(|writer, draft| writer.settle(verdicts, draft)) {
            Err(StoreError::Corrupt(_)) => self.settle_each(verdicts),
            done => done,
        }
    }

    /// One by one, so that the damaged one is found and the others are not held up by it.
    fn settle_each(&mut self, verdicts: &[Verdict]) -> StoreResult<Vec<Settled>> {
        let mut answers = Vec::with_capacity(verdicts.len());
        for verdict in verdicts {
            let one = slice::from_ref(verdict);
            match self.transact_surely(|writer, draft| writer.settle(one, draft)) {
                Ok(done) => answers.extend(done),
                Err(StoreError::Corrupt(what)) => {
                    self.set_aside(verdict, &what);
                    answers.push(Settled::Fenced);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(answers)
    }

    fn set_aside(&mut self, verdict: &Verdict, what: &str) {
        let seq = verdict.seq();
        tracing::error!(seq, what, "a delivery is damaged; its settlement cannot be written");
        let buried = self.bury_unreadable(seq);
        let now = self.shared.now();
        let mut board = self.shared.board();
        match buried {
            Ok(()) => board.settled(seq, Landing::Final, now.0),
            Err(error) => {
                tracing::error!(seq, %error, "it cannot be moved; it is left alone");
                let unread = Unread { seq, token: verdict.settlement.token };
                board.unread(unread, Some((now + DAMAGED_REST).0));
            }
        }
    }
}

//! The queue as its holder sees it: the index in memory leases, the writer settles.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::model::id::order_key;
use postrider_core::ports::store::*;
use postrider_core::{Decision, DeliveryId, LaneId, LaneKey, Timestamp};
use rusqlite::Connection;

use super::index::{AfterSettle, LeaseBatch, UnreadLease};
use super::requests::WriterRequest;
use super::shared::StoreShared;
use super::sql::refill::{read_ahead, read_deliveries};
use super::sql::settle::SettleRow;
use super::writer::Writer;
use super::writer_client::WriterClient;
use crate::holder::{HolderNonce, HolderQueue};
use crate::work_signal::WorkSignal;

pub(crate) struct EmbeddedQueue {
    pub(crate) shared: Arc<StoreShared>,
    pub(crate) writer: WriterClient,
}

/// So few rows are read on the caller's thread: waking another thread would take longer than the read.
const READ_HERE_MAX: usize = 2;

#[async_trait]
impl HolderQueue for EmbeddedQueue {
    fn signal(&self) -> &WorkSignal {
        &self.shared.work
    }

    async fn take_over(&self, holder: HolderNonce, crashed: bool) -> StoreResult<()> {
        self.writer.run_task(move |writer| writer.hand_over(holder, crashed)).await
    }

    async fn ready_lanes(&self, holder: HolderNonce, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        self.shared.check_alive()?;
        self.shared.in_flight.catch_up();
        loop {
            let now = self.shared.now().0;
            let (ready, to_refill) = {
                let mut index = self.shared.index();
                if index.holder != holder {
                    return Ok(Vec::new());
                }
                let ready = index.ready(now, limit);
                let needs_refill = |lane: &&ReadyLane| index.lanes.needs_refill(lane.id.0, now);
                let lanes = ready.iter().filter(needs_refill).map(|lane| lane.id.0);
                let to_refill: Vec<_> = lanes.collect();
                (ready, to_refill)
            };
            if to_refill.is_empty() {
                return Ok(ready);
            }
            // Everything beyond the horizon of a lane may have been cancelled meanwhile.
            self.refill(to_refill).await?;
        }
    }

    async fn lease(
        &self,
        holder: HolderNonce,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        self.shared.check_alive()?;
        let mut misses = 0;
        loop {
            let now = self.shared.now();
            // What is not among the rows that are read in one go is read alone.
            let read_from = if misses > 1 { u64::MAX } else { self.shared.ahead.end() };
            let batch = {
                let mut index = self.shared.index();
                if index.holder != holder {
                    return Ok(Vec::new());
                }
                index.lease(lane.0, max, (now.0, (now + duration).0), read_from)
            };
            if batch.needs_refill && batch.leases.is_empty() {
                self.refill(vec![lane.0]).await?;
                continue;
            }
            if let (Some(seq), true) = (batch.unread, batch.leases.is_empty()) {
                if misses == 0 {
                    self.read_ahead(seq).await?;
                }
                misses += 1;
                continue;
            }
            if batch.runs_low {
                self.refill_soon(lane.0);
            }
            let leased = self.read_missing(batch, now).await?;
            self.note(&leased, now);
            return Ok(leased);
        }
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Vec<StoreResult<SettleResult>> {
        if self.are_untouched(&settlements) {
            return self.release(&settlements).into_iter().map(Ok).collect();
        }
        let rows = settlements.into_iter().map(SettleRow::prepare);
        self.writer.write(rows, WriterRequest::Settle).await
    }

    async fn lease_expired(
        &self,
        holder: HolderNonce,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        self.shared.check_alive()?;
        let (now, over_by) = (self.shared.now(), self.shared.earliest());
        let may_have_expired = {
            let mut index = self.shared.index();
            if index.holder != holder {
                return Ok(Vec::new());
            }
            index.end_leases(now.0);
            index.expiry.check(now.0, over_by.0)
        };
        if max == 0 || !may_have_expired {
            return Ok(Vec::new());
        }
        let lease = move |writer: &mut Writer| writer.lease_expired(holder, max, duration);
        let batch = self.writer.run_task(lease).await;
        let batch = match batch {
            Err(StoreError::Closed) => return Err(StoreError::Closed),
            // Expiry must not stop deliveries.
            Err(error) => {
                self.shared.expiry_failed(&error);
                return Ok(Vec::new());
            }
            Ok(batch) => batch,
        };
        let leased = self.read_missing(batch, now).await?;
        self.note(&leased, now);
        let index = self.shared.index();
        let lane = |l: LeasedDelivery| Some((index.lane_of(order_key(l.delivery.0))?, l));
        Ok(leased.into_iter().filter_map(lane).collect())
    }

    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        let started = self.writer.write(attempts.into_iter().map(Ok), WriterRequest::Start).await;
        started.into_iter().collect()
    }

    async fn wait_for_work(&self, at_most: Duration) {
        self.shared.in_flight.catch_up();
        let next_work = |now: Timestamp| {
            let lag = now.0 - self.shared.earliest().0;
            self.shared.index().next_work(now.0, lag.max(0))
        };
        self.shared.work.wait(at_most, next_work).await;
    }

    fn suspend(&self, holder: HolderNonce, lane: LaneId, until: Timestamp) {
        let mut index = self.shared.index();
        if index.holder == holder {
            index.lanes.suspend(lane.0, until.0);
        }
    }

    fn resume(&self, holder: HolderNonce, lane: Option<LaneId>) {
        let due = {
            let mut index = self.shared.index();
            index.holder == holder && index.resume(lane.map(|lane| lane.0), self.shared.now().0)
        };
        if due {
            self.shared.work.notify();
        }
    }
}

impl EmbeddedQueue {
    /// Notes leases in the log of deliveries in flight, before anything is sent.
    fn note(&self, leased: &[LeasedDelivery], now: Timestamp) {
        let seqs = leased.iter().map(|leased| order_key(leased.delivery.0));
        let all = || self.shared.index().all_leased(now.0);
        self.shared.in_flight.leased(now.0, seqs, all);
    }

    /// Whether all of them give back leases of which nothing is on disk.
    fn are_untouched(&self, settlements: &[Settlement]) -> bool {
        let untouched = |s: &Settlement| s.decision == Decision::Release && s.attempts.is_empty();
        if !settlements.iter().all(untouched) {
            return false;
        }
        let index = self.shared.index();
        settlements.iter().all(|s| {
            let mark = index.mark(order_key(s.delivery.0));
            !mark.started && !mark.cancelled
        })
    }

    /// Leases are in memory only, so giving one back writes nothing.
    fn release(&self, settlements: &[Settlement]) -> Vec<SettleResult> {
        let now = self.shared.now().0;
        let answers: Vec<_> = {
            let mut index = self.shared.index();
            let release = |s: &Settlement| {
                let seq = order_key(s.delivery.0);
                let released = index.release(seq, s.token, now);
                if released { SettleResult::Done } else { index.answer_to_repeat(seq, s.token) }
            };
            settlements.iter().map(release).collect()
        };
        let given = settlements.iter().zip(&answers).filter(|(_, a)| **a == SettleResult::Done);
        self.shared.in_flight.ended(given.map(|(s, _)| order_key(s.delivery.0)));
        self.shared.work.notify();
        answers
    }

    /// A lane that cannot be read is left alone for a while.
    async fn refill(&self, lanes: Vec<u32>) -> StoreResult<()> {
        let refill = |writer: &mut Writer| {
            lanes.into_iter().for_each(|lane| writer.refill_or_pause(lane));
            Ok(())
        };
        self.writer.run_task(refill).await
    }

    fn refill_soon(&self, lane: u32) {
        let task = move |writer: &mut Writer| writer.refill_or_pause(lane);
        if !self.writer.run_soon(task) {
            self.shared.index().lanes.refill_failed(lane);
        }
    }

    /// Reads on in the order of the file, so that the next leases of all lanes find their deliveries in memory.
    async fn read_ahead(&self, seq: u64) -> StoreResult<()> {
        let read = move |conn: &Connection, shared: &StoreShared| {
            read_ahead(conn, shared, seq);
            Ok(())
        };
        self.shared.read(read).await
    }

    /// Reads the deliveries that are not in memory. Mostly there are none.
    async fn read_missing(
        &self,
        batch: LeaseBatch,
        now: Timestamp,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        let unread: Vec<_> =
            batch.leases.iter().filter_map(|(_, l)| l.as_ref().err()).copied().collect();
        if unread.is_empty() {
            return Ok(batch.leases.into_iter().filter_map(|(_, leased)| leased.ok()).collect());
        }
        let wanted = unread.clone();
        let read = move |conn: &Connection, shared: &StoreShared| {
            Ok(read_deliveries(conn, shared, &wanted))
        };
        let read = match unread.len() <= READ_HERE_MAX {
            true => self.shared.read_here(read),
            false => self.shared.read(read).await,
        };
        let mut read = match read {
            Ok(read) => read.into_iter(),
            Err(error) => {
                let mut index = self.shared.index();
                unread.iter().for_each(|unread| index.give_back_unread(*unread, None));
                return Err(error);
            }
        };
        let mut leased = Vec::with_capacity(batch.leases.len());
        let mut damaged = Vec::new();
        {
            let mut index = self.shared.index();
            for (seq, item) in batch.leases {
                let unread = match item {
                    Ok(item) => {
                        leased.push(item);
                        continue;
                    }
                    Err(unread) => unread,
                };
                match read.next() {
                    Some(Ok(Some((delivery, flags)))) => {
                        leased.extend(index.complete_lease(unread, delivery, flags));
                    }
                    Some(Ok(None)) => index.settled(seq, AfterSettle::Final, now.0),
                    Some(Err(error)) => damaged.push((unread, error)),
                    None => index.give_back_unread(unread, None),
                }
            }
        }
        for (unread, error) in damaged {
            self.set_aside(unread, &error).await;
        }
        Ok(leased)
    }

    /// A delivery that cannot be read must not stop the rest of its lane. A damaged one goes to the dead
    /// letters.
    async fn set_aside(&self, unread: UnreadLease, error: &StoreError) {
        tracing::error!(seq = unread.seq, %error, "a delivery cannot be read; it is set aside");
        let damaged = matches!(error, StoreError::Corrupt { .. });
        let bury = move |writer: &mut Writer| writer.bury_unreadable(unread.seq);
        let buried = damaged && self.writer.run_task(bury).await.is_ok();
        self.shared.end_unread(unread, error, buried);
    }
}

//! The one thread that writes. It takes every request that waits, writes them all in one transaction, and
//! answers each caller once that is durable. Adds no delay: a lone caller waits for nobody.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use postrider_core::TenantId;
use postrider_core::ports::store::{StoreError, StoreResult};
use rusqlite::Connection;
use tokio::sync::mpsc;

use super::checkpoint::Checkpointer;
use super::chores::ChoreTurns;
use super::free_pages::FreePages;
use super::index::counts::TenantTotals;
use super::index::effects::TransactionEffects;
use super::receive::receive_within;
use super::request_queue::RequestQueue;
use super::requests::{SharedWrite, WriterRequest};
use super::reserve::{self, DiskReserve};
use super::shared::StoreShared;
use super::sql::counts::CountJournal;
use super::sql::dedup::DedupStore;
use super::sql::discard::DiscardPlan;
use super::sql::ended::EndedEntries;
use super::sql::lanes::LaneNumbers;
use super::sql::pack::PackingPosition;
use super::sql::statement::{is_local, is_sync_failure, run, value};
use super::sql::waiting::ListingPosition;

/// Requests that are taken before a transaction.
const TAKEN_AT_ONCE: usize = 1_024;
/// Tasks before chores have their turn.
const TASKS_AT_ONCE: usize = 16;
/// Entries that are changed in memory before others may use it again.
const APPLIED_AT_ONCE: usize = 128;
/// How long the last checkpoint waits for readers. What it leaves, the next start finds in the journal.
const CHECKPOINT_AT_END: Duration = Duration::from_millis(500);

pub(crate) struct Writer {
    pub(crate) conn: Connection,
    pub(crate) shared: Arc<StoreShared>,
    pub(crate) dedup: DedupStore,
    pub(crate) lanes: LaneNumbers,
    pub(crate) tenants: HashMap<TenantId, u32>,
    /// The number of this run, which the database has while nobody else took it over.
    pub(crate) run: u64,
    pub(crate) prune_from: u64,
    /// Blocks of the ledger's order before this sequence were looked at in this round.
    pub(crate) order_pruned: u64,
    pub(crate) discards: DiscardPlan,
    /// A page of the list of tags cannot be read; it is not used any more in this run.
    pub(crate) tags_unreadable: bool,
    /// When the index of recipients may be looked at again for damage.
    pub(crate) look_at_index: i64,
    /// When to list expiries again.
    pub(crate) list_expiries_at: i64,
    pub(crate) packing: PackingPosition,
    pub(crate) listing: ListingPosition,
    pub(crate) ended: EndedEntries,
    pub(crate) counts: CountJournal,
    pub(crate) chores: ChoreTurns,
    pub(crate) reserve: DiskReserve,
    pub(crate) free_pages: FreePages,
    /// Settlements write neither history nor payload, because the page beside theirs is damaged.
    pub(crate) numbers_only: bool,
    /// Settlements leave the list of waiting deliveries as it is, because a page of it is damaged.
    pub(crate) leaves_list: bool,
    /// What the current transaction changes in memory.
    pub(crate) effects: TransactionEffects,
    pub(crate) checkpointer: Checkpointer,
    queue: RequestQueue,
    closing: bool,
}

impl Writer {
    pub(crate) fn new(
        conn: Connection,
        shared: Arc<StoreShared>,
        (lanes, dedup, counts): (LaneNumbers, DedupStore, CountJournal),
        checkpointer: Checkpointer,
        reserve: DiskReserve,
        run: u64,
    ) -> Self {
        let tenants = {
            let index = shared.index();
            let number = |i: usize| u32::try_from(i).unwrap_or(u32::MAX);
            let tenants = index.tenants.iter().enumerate();
            tenants.map(|(i, tenant)| (tenant.name.clone(), number(i))).collect()
        };
        Self {
            conn,
            shared,
            dedup,
            lanes,
            tenants,
            run,
            prune_from: 0,
            order_pruned: 0,
            discards: DiscardPlan::default(),
            tags_unreadable: false,
            look_at_index: 0,
            list_expiries_at: 0,
            packing: PackingPosition::default(),
            listing: ListingPosition::default(),
            ended: EndedEntries::default(),
            counts,
            chores: ChoreTurns::default(),
            reserve,
            free_pages: FreePages::default(),
            numbers_only: false,
            leaves_list: false,
            effects: TransactionEffects::default(),
            checkpointer,
            queue: RequestQueue::default(),
            closing: false,
        }
    }

    /// Works until it is told to close, or until nobody can send a request any more.
    pub(crate) fn run(mut self, mut requests: mpsc::Receiver<WriterRequest>) {
        let mut busy = false;
        while !self.closing && !self.shared.failure.is_failed() {
            let first = match requests.try_recv() {
                Ok(request) => Some(request),
                Err(_) if !self.queue.is_empty() => None,
                Err(mpsc::error::TryRecvError::Disconnected) => break,
                Err(mpsc::error::TryRecvError::Empty) if busy => None,
                Err(mpsc::error::TryRecvError::Empty) => match self.wait(&mut requests) {
                    Poll::Ready(Some(request)) => Some(request),
                    Poll::Ready(None) => break,
                    Poll::Pending => None,
                },
            };
            if first.is_some() || !self.queue.is_empty() {
                self.serve(first, &mut requests);
            }
            busy = self.housekeep();
        }
        requests.close();
        if self.shared.failure.is_failed() {
            // Whoever waits for an answer learns that the store is closed.
            return;
        }
        loop {
            let request = requests.try_recv().ok();
            if request.is_none() && self.queue.is_empty() {
                break;
            }
            self.serve(request, &mut requests);
        }
        self.shut_down();
    }

    fn shut_down(&mut self) {
        self.shared.in_flight.end();
        self.shared.close_readers();
        if let Err(error) = self.list_all_waiting().and_then(|()| self.delete_all_ended()) {
            tracing::warn!(%error, "the next start lists the waiting deliveries");
        }
        let saved = self.transact_surely(|writer| {
            writer.save_last_id()?;
            writer.save_time()?;
            writer.save_expiry_blocks()
        });
        if let Err(error) = saved {
            tracing::warn!(%error, "the last id could not be saved at close");
        }
        self.checkpoint_within(CHECKPOINT_AT_END);
    }

    /// Waits for a request. While the reserve is missing, the wait ends so that it can be restored.
    fn wait(&self, requests: &mut mpsc::Receiver<WriterRequest>) -> Poll<Option<WriterRequest>> {
        if self.reserve.is_whole() {
            return Poll::Ready(requests.blocking_recv());
        }
        receive_within(requests, reserve::RETRY)
    }

    /// One transaction, and some tasks behind it. Each has a transaction of its own, so that other work is done between
    /// them. What is left waits for the next call.
    fn serve(
        &mut self,
        first: Option<WriterRequest>,
        requests: &mut mpsc::Receiver<WriterRequest>,
    ) {
        self.take_requests(first, requests);
        let group = self.queue.next_group();
        self.commit(group);
        for _ in 0..TASKS_AT_ONCE {
            let Some(task) = self.queue.next_task() else { return };
            task(self);
            self.take_requests(None, requests);
            let group = self.queue.next_group();
            self.commit(group);
        }
    }

    fn take_requests(
        &mut self,
        first: Option<WriterRequest>,
        requests: &mut mpsc::Receiver<WriterRequest>,
    ) {
        let mut taken = 0;
        let mut next = first.or_else(|| requests.try_recv().ok());
        while let Some(request) = next.take() {
            match request {
                WriterRequest::Close => self.closing = true,
                request => self.queue.push(request),
            }
            taken += 1;
            if taken < TAKEN_AT_ONCE {
                next = requests.try_recv().ok();
            }
        }
    }

    /// Writes all requests in one transaction. If that fails, they get smaller ones, so that one bad request
    /// fails alone.
    fn commit(&mut self, mut group: Vec<WriterRequest>) {
        let refusal = match self.reserve.is_whole() {
            true => self.checkpointer.refusal(),
            false => Some(DiskReserve::refusal()),
        };
        if let Some(refusal) = refusal {
            group.retain_mut(|request| !refuse_new_work(request, &refusal));
        }
        self.commit_group(&mut group);
    }

    /// Deletes some of what is old, if somebody asked for it. True if it did.
    pub(crate) fn prune_some(&mut self) -> bool {
        let Some(request) = self.queue.next_prune() else { return false };
        self.commit_group(&mut [request]);
        true
    }

    fn commit_group(&mut self, group: &mut [WriterRequest]) {
        if group.is_empty() {
            return;
        }
        let all = self.transact(|writer| writes(group).try_for_each(|write| write.write(writer)));
        match all {
            Ok(()) => writes(group).for_each(|write| write.reply(Ok(()))),
            // By halves, so that a bad request costs the others a few transactions, not one each.
            Err(error) if is_local(&error) && group.len() > 1 => {
                let (first, second) = group.split_at_mut(group.len() / 2);
                self.commit_group(first);
                self.commit_group(second);
            }
            Err(error) if is_local(&error) || matches!(error, StoreError::Full { .. }) => {
                if matches!(error, StoreError::Full { .. }) {
                    // A checkpoint may give the journal's room back to the disk.
                    self.checkpoint();
                }
                for write in writes(group) {
                    write.write_alone(self);
                    write.reply(Ok(()));
                }
            }
            Err(error) => writes(group).for_each(|write| write.reply(Err(error.clone()))),
        }
    }

    /// Runs `body` in a transaction. Its effects are applied to memory only after the commit.
    pub(crate) fn transact<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let result = self.in_transaction(body);
        let effects = std::mem::take(&mut self.effects);
        match result {
            Ok((value, totals)) => {
                self.apply(effects, totals);
                Ok(value)
            }
            Err(error) => {
                if !self.conn.is_autocommit()
                    && let Err(error) = self.conn.execute_batch("ROLLBACK")
                {
                    let cause = format!("a transaction could not be rolled back: {error}");
                    self.shared.failure.fail(cause);
                }
                self.undo(effects);
                Err(error)
            }
        }
    }

    fn in_transaction<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> StoreResult<T>,
    ) -> StoreResult<(T, Vec<(u32, TenantTotals)>)> {
        run(&self.conn, "BEGIN IMMEDIATE", [])?;
        let value = body(self)?;
        self.release_bodies()?;
        self.write_ended()?;
        self.dedup.append(&self.conn, &self.effects.dedup)?;
        let totals = self.write_counts()?;
        if self.conn.is_autocommit() {
            // What was written since then is on disk, and memory does not know it.
            let what = "a transaction was taken back while it was being written".to_owned();
            self.shared.failure.fail(what.clone());
            return Err(StoreError::Io { what, cause: None });
        }
        run(&self.conn, "COMMIT", []).inspect_err(|error| {
            if is_sync_failure(error) {
                self.shared.failure.fail_sync(error);
            }
        })?;
        Ok((value, totals))
    }

    /// Nothing is written once another server has opened the database, whatever became of the lock.
    pub(crate) fn check_owner(&self) -> StoreResult<()> {
        let select = "SELECT value FROM meta WHERE key = 'epoch'";
        let owner: Option<i64> = value(&self.conn, select, [])?;
        if owner == Some(self.run as i64) {
            return Ok(());
        }
        let what = "another server has opened the database, although this one uses it".to_owned();
        self.shared.failure.fail(what.clone());
        Err(StoreError::Locked { what })
    }

    /// A shared body counts as pending while one of its deliveries is, and is kept while one may need it.
    fn release_bodies(&mut self) -> StoreResult<()> {
        let update = "UPDATE message SET holds = holds - ?2, pending = pending - ?3, \
                      content = CASE WHEN holds <= ?2 THEN NULL ELSE content END WHERE seq = ?1 \
                      RETURNING pending";
        for (message, by) in std::mem::take(&mut self.effects.released) {
            let row = [message as i64, by.holds, by.pending];
            let Some(left) = value::<i64>(&self.conn, update, row)? else { continue };
            let (now, before) = (left > 0, left + by.pending > 0);
            self.effects.counts_of(by.tenant).bytes +=
                by.bytes as i64 * (i64::from(now) - i64::from(before));
        }
        Ok(())
    }

    /// Applies to memory what is now on disk.
    fn apply(&mut self, effects: TransactionEffects, totals: Vec<(u32, TenantTotals)>) {
        let now = self.shared.now();
        if !totals.is_empty() {
            self.counts.note(self.counts.next(), totals.iter().map(|(tenant, _)| *tenant));
        }
        let wakes = !effects.arrivals.is_empty()
            || !effects.replayed.is_empty()
            || effects.settling.iter().any(|(_, after)| after.is_some());
        {
            let mut index = self.shared.index();
            for (lane, key, tenant) in effects.new_lanes {
                index.name_lane(lane, Some((key, tenant)));
            }
            for name in effects.new_tenants {
                index.tenants.push(name, TenantTotals::default());
            }
            for (tenant, totals) in totals {
                index.tenants.set(tenant as usize, totals);
            }
        }
        self.ended.committed(&effects.ended);
        self.listing.arrived(effects.arrivals.len() + effects.replayed.len());
        if !effects.arrivals.is_empty() {
            let entries = effects.arrivals.iter().map(|delivery| (delivery.seq, delivery.lane));
            self.shared.order_tail().add(entries);
        }
        let mut arrivals = effects.arrivals.into_iter().peekable();
        while arrivals.peek().is_some() {
            let mut index = self.shared.index();
            for delivery in arrivals.by_ref().take(APPLIED_AT_ONCE) {
                index.expiry.add(delivery.seq, delivery.expires.0);
                // What waits behind many others is read when its turn comes.
                if index.add(delivery.lane, (delivery.progress.due.0, delivery.seq), now.0) {
                    index.cache.put(delivery, now.0);
                }
            }
        }
        for some in effects.settling.chunks(APPLIED_AT_ONCE) {
            let mut index = self.shared.index();
            for &(seq, after) in some {
                match after {
                    Some(after) => index.settled_by_holder(seq, after, now.0),
                    None => index.undo_settling(seq),
                }
            }
        }
        {
            let mut index = self.shared.index();
            for replayed in effects.replayed {
                index.oldest.returned(replayed.seq);
                index.expiry.add(replayed.seq, replayed.expires);
                index.add(replayed.lane, (replayed.due, replayed.seq), now.0);
            }
            if let Some(listed) = effects.listed_before {
                index.expiry.saved = listed;
            }
            for (_, _, seq) in effects.withdrawn {
                index.expiry.remove(seq);
            }
            for (seq, mark) in &effects.marks {
                index.set_mark(*seq, *mark);
            }
            for (tenant, hash, gone) in &effects.gone {
                index.set_gone(tenant, *hash, *gone);
            }
            for ((tenant, hash), struck) in &effects.struck {
                index.set_struck(tenant, *hash, *struck);
            }
        }
        let settled = effects.settling.iter().filter(|(_, after)| after.is_some());
        self.shared.in_flight.ended(settled.map(|(seq, _)| *seq));
        self.dedup.committed(effects.dedup, now);
        if wakes {
            self.shared.work.notify();
        }
    }

    /// The transaction was rolled back: puts back what was taken out of memory for it.
    fn undo(&mut self, effects: TransactionEffects) {
        for (lane, used) in effects.lanes_used.iter().rev() {
            self.lanes.restore(*lane, *used);
        }
        for (_, key, _) in &effects.new_lanes {
            self.lanes.remove(key);
        }
        for name in &effects.new_tenants {
            self.tenants.remove(name);
        }
        if let Some(position) = effects.pruned_before {
            self.prune_from = position;
        }
        let now = self.shared.now();
        let mut index = self.shared.index();
        for (seq, _) in effects.settling {
            index.undo_settling(seq);
        }
        for (lane, due, seq) in effects.withdrawn {
            index.add(lane, (due, seq), now.0);
        }
    }
}

/// Answers a request that brings new work. False if it brings none.
fn refuse_new_work(request: &mut WriterRequest, refusal: &StoreError) -> bool {
    let write = request.as_shared_write().filter(|write| write.is_new_work());
    write.map(|write| write.reply(Err(refusal.clone()))).is_some()
}

fn writes(group: &mut [WriterRequest]) -> impl Iterator<Item = &mut dyn SharedWrite> {
    group.iter_mut().filter_map(WriterRequest::as_shared_write)
}

#[cfg(test)]
mod tests;

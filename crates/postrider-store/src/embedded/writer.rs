//! The one thread that writes. It takes whatever is waiting, makes one transaction of it, and
//! answers everyone once that is durable. No artificial delay: a lone caller waits for no one.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Poll;

use postrider_core::ports::store::{Admission, Settled, StoreError, StoreResult};
use postrider_core::{DeliveryId, LaneKey, TenantId};
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::{mpsc, oneshot};

use super::accept::NewRows;
use super::checkpoint::Pressure;
use super::dedup::Dedup;
use super::draft::Draft;
use super::error::sql;
use super::receive::receive_within;
use super::reserve::{self, Reserve};
use super::rows::to_json;
use super::settle::Verdict;
use super::shared::Shared;
use super::tally::Numbers;

pub(super) type Answer<T> = oneshot::Sender<StoreResult<T>>;
/// Answers, and what was asked: whoever asked also clears it away, so that the writer need not.
pub(super) type Spent<Asked, Told> = (Vec<Told>, Vec<Asked>);
type Errand = Box<dyn FnOnce(&mut Writer) + Send>;

/// What the writer is asked to do.
pub(super) enum Order {
    Accept(Vec<NewRows>, Answer<Spent<NewRows, Admission>>),
    Settle(Vec<Verdict>, Answer<Spent<Verdict, Settled>>),
    Start(Vec<(DeliveryId, u64)>, Answer<Vec<bool>>),
    /// Anything rarer; makes transactions of its own.
    Errand(Errand),
    Close,
}

/// Answers those who bring new work; the others are left.
fn refuse_new(group: Vec<Hot>) -> Vec<Hot> {
    let (new, old): (Vec<_>, _) = group.into_iter().partition(|hot| matches!(hot, Hot::Accept(..)));
    new.into_iter().for_each(|hot| hot.answer(Err(Reserve::refusal())));
    old
}

/// Rows that one transaction takes at most, so that the first of them does not wait for ever.
const GROUP_ROWS: usize = 8_192;

pub(super) struct Writer {
    pub(super) conn: Connection,
    pub(super) shared: Arc<Shared>,
    pub(super) dedup: Dedup,
    pub(super) lanes: HashMap<Arc<LaneKey>, u32>,
    pub(super) tenants: HashMap<TenantId, u32>,
    pub(super) prune_from: u64,
    /// When it is next looked what waits for long.
    pub(super) sweep_at: i64,
    pub(super) reserve: Reserve,
    pressure: Pressure,
    closing: bool,
}

enum Hot {
    Accept(Vec<NewRows>, Answer<Spent<NewRows, Admission>>),
    Settle(Vec<Verdict>, Answer<Spent<Verdict, Settled>>),
    Start(Vec<(DeliveryId, u64)>, Answer<Vec<bool>>),
}

enum Done {
    Started(Vec<bool>),
    Admissions(Vec<Admission>),
    Settled(Vec<Settled>),
}

impl Hot {
    fn rows(&self) -> usize {
        match self {
            Self::Accept(messages, _) => messages.iter().map(NewRows::rows).sum(),
            Self::Settle(verdicts, _) => verdicts.len(),
            Self::Start(attempts, _) => attempts.len(),
        }
    }

    fn run(&self, writer: &mut Writer, draft: &mut Draft) -> StoreResult<Done> {
        Ok(match self {
            Self::Accept(messages, _) => Done::Admissions(
                messages.iter().map(|new| writer.accept(new, draft)).collect::<Result<_, _>>()?,
            ),
            Self::Settle(verdicts, _) => Done::Settled(writer.settle(verdicts, draft)?),
            Self::Start(attempts, _) => Done::Started(writer.start(attempts, draft)?),
        })
    }

    fn answer(self, done: StoreResult<Done>) {
        // Whoever asked may have gone away; what was written stays written.
        match (self, done) {
            (Self::Accept(asked, answer), Ok(Done::Admissions(done))) => {
                drop(answer.send(Ok((done, asked))));
            }
            (Self::Settle(asked, answer), Ok(Done::Settled(done))) => {
                drop(answer.send(Ok((done, asked))));
            }
            (Self::Start(_, answer), Ok(Done::Started(done))) => drop(answer.send(Ok(done))),
            (Self::Start(_, answer), Err(error)) => drop(answer.send(Err(error))),
            (Self::Accept(_, answer), Err(error)) => drop(answer.send(Err(error))),
            (Self::Settle(_, answer), Err(error)) => drop(answer.send(Err(error))),
            (_, Ok(_)) => {}
        }
    }
}

impl Writer {
    pub(super) fn new(
        conn: Connection,
        shared: Arc<Shared>,
        dedup: Dedup,
        pressure: Pressure,
        reserve: Reserve,
    ) -> Self {
        let (lanes, tenants) = {
            let board = shared.board();
            let number = |i: usize| u32::try_from(i).unwrap_or(u32::MAX);
            let lanes = board.names.iter().enumerate().map(|(i, (k, _))| (k.clone(), number(i)));
            let tenants = board.tenants.iter().enumerate();
            let tenants = tenants.map(|(i, tenant)| (tenant.name.clone(), number(i)));
            (lanes.collect(), tenants.collect())
        };
        Self {
            conn,
            shared,
            dedup,
            lanes,
            tenants,
            prune_from: 0,
            sweep_at: 0,
            reserve,
            pressure,
            closing: false,
        }
    }

    /// Works until it is told to close or everyone who could ask is gone.
    pub(super) fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut busy = false;
        while !self.closing {
            let first = match orders.try_recv() {
                Ok(order) => Some(order),
                Err(mpsc::error::TryRecvError::Disconnected) => break,
                Err(mpsc::error::TryRecvError::Empty) if busy => None,
                Err(mpsc::error::TryRecvError::Empty) => match self.wait(&mut orders) {
                    Poll::Ready(Some(order)) => Some(order),
                    Poll::Ready(None) => break,
                    Poll::Pending => None,
                },
            };
            if let Some(first) = first {
                self.serve(first, &mut orders);
            }
            busy = self.housekeep();
        }
        orders.close();
        while let Ok(order) = orders.try_recv() {
            self.serve(order, &mut orders);
        }
        self.shared.flight.end();
        self.shared.close_readers();
        let noted = self.transact_surely(|writer, _| {
            writer.remember_ids()?;
            writer.note_young()
        });
        if let Err(error) = noted {
            tracing::warn!(%error, "the last id could not be noted at close");
        }
        if let Err(error) = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            tracing::warn!(%error, "the journal could not be folded in at close; it will be at the next start");
        }
    }

    /// Waits for an order; while there is something to repair, not for ever.
    fn wait(&self, orders: &mut mpsc::Receiver<Order>) -> Poll<Option<Order>> {
        if self.reserve.is_whole() {
            return Poll::Ready(orders.blocking_recv());
        }
        receive_within(orders, reserve::RETRY)
    }

    fn serve(&mut self, first: Order, orders: &mut mpsc::Receiver<Order>) {
        let mut group = Vec::new();
        let mut rows = 0;
        let mut next = Some(first);
        while let Some(order) = next.take() {
            let hot = match order {
                Order::Accept(messages, answer) => Hot::Accept(messages, answer),
                Order::Settle(verdicts, answer) => Hot::Settle(verdicts, answer),
                Order::Start(attempts, answer) => Hot::Start(attempts, answer),
                Order::Errand(errand) => {
                    self.commit(std::mem::take(&mut group));
                    errand(self);
                    return;
                }
                Order::Close => {
                    self.closing = true;
                    break;
                }
            };
            rows += hot.rows();
            group.push(hot);
            if rows < GROUP_ROWS {
                next = orders.try_recv().ok();
            }
        }
        self.commit(group);
    }

    /// One transaction for all; if that fails, one for each, so that one bad order fails alone.
    fn commit(&mut self, mut group: Vec<Hot>) {
        if !self.reserve.is_whole() {
            group = refuse_new(group);
        }
        if group.is_empty() {
            return;
        }
        let all = self.transact(|writer, draft| {
            group.iter().map(|hot| hot.run(writer, draft)).collect::<StoreResult<Vec<_>>>()
        });
        match all {
            Ok(done) => group.into_iter().zip(done).for_each(|(hot, done)| hot.answer(Ok(done))),
            Err(error) => {
                if matches!(error, StoreError::Full(_)) {
                    // What the journal holds may be given back to the disk.
                    self.fold();
                }
                for hot in group {
                    let done = self.alone(&hot);
                    hot.answer(done);
                }
            }
        }
    }

    fn alone(&mut self, hot: &Hot) -> StoreResult<Done> {
        match hot {
            Hot::Accept(..) if !self.reserve.is_whole() => Err(Reserve::refusal()),
            Hot::Accept(..) => self.transact(|writer, draft| hot.run(writer, draft)),
            Hot::Settle(verdicts, _) => self.settle_surely(verdicts).map(Done::Settled),
            Hot::Start(..) => self.transact_surely(|writer, draft| hot.run(writer, draft)),
        }
    }

    /// Runs `body` in a transaction. What it drafts becomes true in memory only after the commit.
    pub(super) fn transact<T>(
        &mut self,
        body: impl FnOnce(&mut Self, &mut Draft) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let mut draft = Draft::default();
        let result = self.in_transaction(&mut draft, body);
        match result {
            Ok((value, numbers)) => {
                self.apply(draft, numbers);
                Ok(value)
            }
            Err(error) => {
                if !self.conn.is_autocommit()
                    && let Err(error) = self.conn.execute_batch("ROLLBACK")
                {
                    tracing::error!(%error, "a transaction could not be rolled back");
                }
                self.undo(draft);
                Err(error)
            }
        }
    }

    fn in_transaction<T>(
        &mut self,
        draft: &mut Draft,
        body: impl FnOnce(&mut Self, &mut Draft) -> StoreResult<T>,
    ) -> StoreResult<(T, Vec<(u32, Numbers)>)> {
        self.statement("BEGIN IMMEDIATE")?;
        let value = body(self, draft)?;
        self.release_bodies(draft)?;
        let numbers = self.write_numbers(draft)?;
        self.statement("COMMIT")?;
        Ok((value, numbers))
    }

    fn statement(&self, text: &str) -> StoreResult<()> {
        self.conn.prepare_cached(text).and_then(|mut s| s.execute([])).map_err(sql).map(drop)
    }

    /// A body counts as long as a delivery of its message is pending, and is kept as long as one
    /// may need it.
    fn release_bodies(&self, draft: &mut Draft) -> StoreResult<()> {
        if draft.released.is_empty() {
            return Ok(());
        }
        let mut statement = self
            .conn
            .prepare_cached(
                "UPDATE message SET holds = holds - ?2, pending = pending - ?3, \
                 content = CASE WHEN holds <= ?2 THEN NULL ELSE content END WHERE seq = ?1 \
                 RETURNING pending",
            )
            .map_err(sql)?;
        for (message, by) in std::mem::take(&mut draft.released) {
            let row = [message as i64, by.holds, by.pending];
            let left: Option<i64> =
                statement.query_row(row, |row| row.get(0)).optional().map_err(sql)?;
            let Some(left) = left else { continue };
            let (now, before) = (left > 0, left + by.pending > 0);
            draft.count(by.tenant).bytes += by.bytes as i64 * (i64::from(now) - i64::from(before));
        }
        Ok(())
    }

    fn write_numbers(&self, draft: &Draft) -> StoreResult<Vec<(u32, Numbers)>> {
        let sums: Vec<_> = {
            let board = self.shared.board();
            let known = |tenant: u32| board.tenants.get(tenant);
            let sum = |(&tenant, delta): (&u32, _)| {
                let old = known(tenant).map_or_else(Numbers::default, |t| t.numbers.clone());
                (tenant, old.plus(delta))
            };
            draft.deltas.iter().map(sum).collect()
        };
        let mut statement =
            self.conn.prepare_cached("UPDATE tenant SET counts = ?2 WHERE id = ?1").map_err(sql)?;
        for (tenant, numbers) in &sums {
            statement.execute((tenant, to_json(numbers)?)).map_err(sql)?;
        }
        Ok(sums)
    }

    /// Makes true in memory what is now true on disk.
    fn apply(&mut self, draft: Draft, numbers: Vec<(u32, Numbers)>) {
        let now = self.shared.now();
        let wakes = !draft.arrivals.is_empty()
            || !draft.replayed.is_empty()
            || draft.settling.iter().any(|(_, landing)| landing.is_some());
        {
            let mut board = self.shared.board();
            board.names.extend(draft.new_lanes);
            for name in draft.new_tenants {
                board.tenants.push(name, Numbers::default());
            }
            for (tenant, numbers) in numbers {
                board.tenants.set(tenant as usize, numbers);
            }
            for job in draft.arrivals {
                board.expiry.came(job.seq, job.expires.0);
                board.arrive(job.lane, (job.progress.due.0, job.seq), now.0);
                board.cache.put(job, now.0);
            }
            for replayed in draft.replayed {
                board.oldest.returned(replayed.seq);
                board.expiry.came(replayed.seq, replayed.expires);
                board.arrive(replayed.lane, (replayed.due, replayed.seq), now.0);
            }
            for (_, _, seq) in draft.withdrawn {
                board.expiry.left(seq);
            }
            for &(seq, landing) in &draft.settling {
                match landing {
                    Some(landing) => board.settled(seq, landing, now.0),
                    None => board.undo_settling(seq),
                }
            }
            for (seq, mark) in &draft.marks {
                board.set_mark(*seq, *mark);
            }
            for (tenant, hash) in &draft.gone {
                board.mark_gone(tenant, *hash);
            }
            for (tenant, hash) in &draft.back {
                board.clear_gone(tenant, *hash);
            }
            for ((tenant, hash), struck) in &draft.struck {
                match struck {
                    true => board.mark_struck(tenant, *hash),
                    false => board.clear_struck(tenant, *hash),
                }
            }
        }
        let settled = draft.settling.iter().filter(|(_, landing)| landing.is_some());
        self.shared.flight.ended(settled.map(|(seq, _)| *seq));
        self.dedup.committed(draft.dedup, now);
        self.pressure.add(draft.rows);
        if wakes {
            self.shared.wake.notify();
        }
    }

    /// Nothing happened: puts back what was taken out for the transaction.
    fn undo(&mut self, draft: Draft) {
        for (key, _) in &draft.new_lanes {
            self.lanes.remove(key);
        }
        for name in &draft.new_tenants {
            self.tenants.remove(name);
        }
        let now = self.shared.now();
        let mut board = self.shared.board();
        for (seq, _) in draft.settling {
            board.undo_settling(seq);
        }
        for (lane, due, seq) in draft.withdrawn {
            board.arrive(lane, (due, seq), now.0);
        }
    }

    /// Between transactions: a little of what must be done some time. True if there is more.
    fn housekeep(&mut self) -> bool {
        self.pressure.relieve(&self.conn);
        if self.reserve.is_due() {
            self.fold();
            self.restore_reserve();
        }
        if !self.reserve.is_whole() {
            return false;
        }
        let sorting = self.dedup.work(&self.conn, self.shared.now()).unwrap_or_else(|error| {
            tracing::warn!(%error, "idempotency keys could not be sorted away; will try again");
            false
        });
        let sweeping = self.sweep_some().unwrap_or_else(|error| {
            tracing::warn!(%error, "what waits for long could not be listed; will try again");
            false
        });
        sorting || sweeping
    }
}

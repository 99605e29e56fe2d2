//! The queue: accept and settle through the writer, lease from memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::model::decision::Decision;
use postrider_core::model::delivery::DeadReason;
use postrider_core::model::id::order_key;
use postrider_core::ports::store::{
    Admission, DedupKey, Leased, Load, NewMessage, Queue, ReadyLane, Settled, Settlement,
    StoreError, StoreResult,
};
use postrider_core::{DeliveryId, LaneId, LaneKey, State, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::EmbeddedStore;
use super::accept::NewRows;
use super::board::{Landing, Picked, Unread, end_of};
use super::draft::Released;
use super::error::sql;
use super::job::{Blame, Job};
use super::lanes::Key;
use super::reserve::Reserve;
use super::rows::JobReader;
use super::settle::Verdict;
use super::shared::Shared;
use super::strikes::strikes_of;
use super::writer::{Order, Writer};
use crate::wake::Work;

/// So few rows are read sooner than another thread wakes up: with little in each of many lanes, that
/// would be most of what a delivery costs.
const READ_HERE_MAX: usize = 2;
/// A delivery that cannot be read is left alone for so long if it cannot be buried either.
pub(super) const DAMAGED_REST: Duration = Duration::from_secs(3600);

#[async_trait]
impl Queue for EmbeddedStore {
    async fn accept(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<Admission>> {
        let rows = messages.into_iter().map(NewRows::prepare).collect::<Result<_, _>>()?;
        let (answers, _) = self.order(|answer| Order::Accept(rows, answer)).await?;
        Ok(answers)
    }

    fn takes_work(&self) -> StoreResult<()> {
        if self.is_accepting() { Ok(()) } else { Err(Reserve::refusal()) }
    }

    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        self.shared.flight.catch_up();
        loop {
            let now = self.shared.now().0;
            let (ready, dry) = {
                let mut board = self.shared.board();
                let ready = board.ready(now, limit);
                let dry = |lane: &&ReadyLane| board.lanes.is_dry(lane.id.0, now);
                let dry: Vec<_> = ready.iter().filter(dry).map(|lane| lane.id.0).collect();
                (ready, dry)
            };
            if dry.is_empty() {
                return Ok(ready);
            }
            // What a lane had beyond its horizon may have been cancelled meanwhile.
            self.refill(dry).await?;
        }
    }

    async fn lease(
        &self,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<Leased>> {
        loop {
            let now = self.shared.now();
            let picked = self.shared.board().lease(lane.0, max, now.0, end_of(now, duration));
            if picked.dry && picked.leased.is_empty() {
                self.refill(vec![lane.0]).await?;
                continue;
            }
            if picked.low {
                self.refill_soon(lane.0);
            }
            let leased = self.complete(picked, now).await?;
            self.note(&leased, now);
            return Ok(leased);
        }
    }

    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>> {
        self.errand(move |writer| keys.iter().map(|key| writer.repeat(key)).collect()).await
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> StoreResult<Vec<Settled>> {
        if self.are_untouched(&settlements) {
            return Ok(self.release(&settlements));
        }
        let verdicts = settlements.into_iter().map(Verdict::prepare).collect::<Result<_, _>>()?;
        let (answers, _) = self.order(|answer| Order::Settle(verdicts, answer)).await?;
        Ok(answers)
    }

    async fn lease_expired(
        &self,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, Leased)>> {
        let now = self.shared.now();
        let may_be_some = {
            let mut board = self.shared.board();
            board.expire(now.0);
            board.expiry.look(now.0)
        };
        if max == 0 || !may_be_some {
            return Ok(Vec::new());
        }
        let picked = self.errand(move |writer| writer.pick_expired(max, duration)).await?;
        let leased = self.complete(picked, now).await?;
        self.note(&leased, now);
        let board = self.shared.board();
        let lane = |l: Leased| Some((board.lane_of(order_key(l.delivery.0))?, l));
        Ok(leased.into_iter().filter_map(lane).collect())
    }

    fn load(&self, tenant: Option<&TenantId>) -> Load {
        self.shared.board().tenants.load(tenant)
    }

    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        self.order(|answer| Order::Start(attempts, answer)).await
    }

    async fn wait_for_work(&self, at_most: Duration) {
        self.shared.flight.catch_up();
        let look = |now: Timestamp| match self.shared.board().next_work(now.0) {
            Ok(()) => Work::Now,
            Err(next) => Work::At(next.map(Timestamp)),
        };
        self.shared.wake.wait(at_most, look).await;
    }

    fn suspend(&self, lane: LaneId, until: Timestamp) {
        self.shared.board().lanes.suspend(lane.0, until.0);
    }

    fn resume(&self, lane: Option<LaneId>) {
        let due = self.shared.board().resume(lane.map(|lane| lane.0), self.shared.now().0);
        if due {
            self.shared.wake.notify();
        }
    }
}

impl EmbeddedStore {
    /// Before anyone sends anything.
    fn note(&self, leased: &[Leased], now: Timestamp) {
        let seqs = leased.iter().map(|leased| order_key(leased.delivery.0));
        let all = || self.shared.board().all_leased(now.0);
        self.shared.flight.leased(now.0, seqs, all);
    }

    /// Whether all of them are leases given back of which nothing is on disk.
    fn are_untouched(&self, settlements: &[Settlement]) -> bool {
        let untouched = |s: &Settlement| s.decision == Decision::Release && s.attempts.is_empty();
        if !settlements.iter().all(untouched) {
            return false;
        }
        let board = self.shared.board();
        settlements.iter().all(|s| {
            let mark = board.mark(order_key(s.delivery.0));
            !mark.started && !mark.cancelled
        })
    }

    /// Leases are in memory only, so giving one back writes nothing.
    fn release(&self, settlements: &[Settlement]) -> Vec<Settled> {
        let now = self.shared.now().0;
        let answers: Vec<_> = {
            let mut board = self.shared.board();
            let release = |s: &Settlement| {
                let seq = order_key(s.delivery.0);
                if board.release(seq, s.token, now) { Settled::Done } else { Settled::Fenced }
            };
            settlements.iter().map(release).collect()
        };
        let given = settlements.iter().zip(&answers).filter(|(_, a)| **a == Settled::Done);
        self.shared.flight.ended(given.map(|(s, _)| order_key(s.delivery.0)));
        self.shared.wake.notify();
        answers
    }

    async fn refill(&self, lanes: Vec<u32>) -> StoreResult<()> {
        self.errand(move |writer| lanes.into_iter().try_for_each(|lane| writer.refill(lane))).await
    }

    fn refill_soon(&self, lane: u32) {
        let errand = move |writer: &mut Writer| {
            if let Err(error) = writer.refill(lane) {
                tracing::warn!(%error, "a lane could not be read ahead");
            }
        };
        if self.orders.try_send(Order::Errand(Box::new(errand))).is_err() {
            self.shared.board().lanes.refill_failed(lane);
        }
    }

    /// Reads what was not at hand; most of the time everything is.
    async fn complete(&self, picked: Picked, now: Timestamp) -> StoreResult<Vec<Leased>> {
        let unread: Vec<_> =
            picked.leased.iter().filter_map(|(_, l)| l.as_ref().err()).copied().collect();
        if unread.is_empty() {
            return Ok(picked.leased.into_iter().filter_map(|(_, leased)| leased.ok()).collect());
        }
        let wanted = unread.clone();
        let read = move |conn: &Connection, shared: &Shared| Ok(read_jobs(conn, shared, &wanted));
        let read = match unread.len() <= READ_HERE_MAX {
            true => self.shared.read_here(read),
            false => self.shared.read(read).await,
        };
        let mut read = match read {
            Ok(read) => read.into_iter(),
            Err(error) => {
                let mut board = self.shared.board();
                unread.iter().for_each(|unread| board.unread(*unread, None));
                return Err(error);
            }
        };
        let mut leased = Vec::with_capacity(picked.leased.len());
        let mut damaged = Vec::new();
        {
            let mut board = self.shared.board();
            for (seq, item) in picked.leased {
                let unread = match item {
                    Ok(item) => {
                        leased.push(item);
                        continue;
                    }
                    Err(unread) => unread,
                };
                match read.next() {
                    Some(Ok(Some((job, blame)))) => leased.extend(board.read(unread, job, blame)),
                    Some(Ok(None)) => board.settled(seq, Landing::Final, now.0),
                    Some(Err(StoreError::Corrupt(what))) => damaged.push((unread, what)),
                    Some(Err(_)) | None => board.unread(unread, None),
                }
            }
        }
        for (unread, what) in damaged {
            self.bury_damaged(unread, &what, now).await;
        }
        Ok(leased)
    }

    /// One damaged delivery must not stop the rest of its lane.
    async fn bury_damaged(&self, unread: Unread, what: &str, now: Timestamp) {
        tracing::error!(
            seq = unread.seq,
            what,
            "a delivery is damaged; it goes to the dead letters"
        );
        let buried = self.errand(move |writer| writer.bury_unreadable(unread.seq)).await;
        let mut board = self.shared.board();
        match buried {
            Ok(()) => board.settled(unread.seq, Landing::Final, now.0),
            Err(error) => {
                tracing::error!(seq = unread.seq, %error, "it cannot be moved; it is left alone");
                board.unread(unread, Some((now + DAMAGED_REST).0));
            }
        }
    }
}

type ReadJob = StoreResult<Option<(Arc<Job>, Blame)>>;

fn read_jobs(conn: &Connection, shared: &Shared, wanted: &[Unread]) -> Vec<ReadJob> {
    let (any_gone, any_struck) = {
        let board = shared.board();
        (board.any_gone(), board.any_struck())
    };
    let mut reader = JobReader::new(conn);
    let mut read = |seq| {
        let Some(job) = reader.read(seq)? else { return Ok(None) };
        let tenant = &job.message.tenant;
        let struck = any_struck && shared.board().is_struck(tenant, job.hash);
        let strikes = if struck { strikes_of(conn, tenant, job.hash)? } else { Vec::new() };
        let blame = Blame { gone: any_gone && is_gone(conn, &job)?, strikes };
        Ok(Some((Arc::new(job), blame)))
    };
    wanted.iter().map(|unread| read(unread.seq)).collect()
}

fn is_gone(conn: &Connection, job: &Job) -> StoreResult<bool> {
    conn.prepare_cached("SELECT 1 FROM gone WHERE tenant = ?1 AND hash = ?2")
        .and_then(|mut select| select.exists(params![job.message.tenant.as_str(), job.hash.0]))
        .map_err(sql)
}

impl Writer {
    /// Reads the next stretch of a lane. On the writer's thread, so that nothing changes meanwhile.
    pub(super) fn refill(&mut self, lane: u32) -> StoreResult<()> {
        loop {
            let Some((from, limit)) = self.shared.board().lanes.refill_from(lane) else {
                self.shared.board().lanes.refill_failed(lane);
                return Ok(());
            };
            let keys = self.waiting(lane, from, limit).inspect_err(|_| {
                self.shared.board().lanes.refill_failed(lane);
            })?;
            let horizon = keys.last().filter(|_| keys.len() >= limit).map(|key| (key.0, key.1 + 1));
            let mut guard = self.shared.board();
            let board = &mut *guard;
            let free: Vec<_> = keys.into_iter().filter(|key| !board.is_tracked(key.1)).collect();
            if board.lanes.refill(lane, from, free.into_iter(), horizon) {
                return Ok(());
            }
        }
    }

    fn waiting(&self, lane: u32, from: Key, limit: usize) -> StoreResult<Vec<Key>> {
        let read = |query: &str, limit: usize| -> rusqlite::Result<Vec<Key>> {
            let mut select = self.conn.prepare_cached(query)?;
            let row = params![lane, from.0, from.1 as i64, limit as i64];
            let keys =
                select.query_map(row, |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
            keys.collect()
        };
        let mut keys = read(
            "SELECT due, seq FROM delivery INDEXED BY pending \
             WHERE lane = ?1 AND due = ?2 AND seq >= ?3 ORDER BY seq LIMIT ?4",
            limit,
        )
        .map_err(sql)?;
        let rest = read(
            "SELECT due, seq FROM delivery INDEXED BY pending \
             WHERE lane = ?1 AND due > ?2 AND ?3 IS NOT NULL ORDER BY due, seq LIMIT ?4",
            limit - keys.len(),
        );
        keys.extend(rest.map_err(sql)?);
        Ok(keys)
    }

    /// To the dead letters by number alone: nothing else of it can be relied upon.
    pub(super) fn bury_unreadable(&mut self, seq: u64) -> StoreResult<()> {
        self.transact_surely(|writer, draft| {
            let now = writer.shared.now();
            let found = writer
                .conn
                .query_row(
                    "SELECT d.state, l.tenant, coalesce(length(CAST(d.target AS BLOB)), 0) \
                     + coalesce(length(CAST(d.body AS BLOB)), 0), d.message, \
                     coalesce((SELECT length(CAST(m.content AS BLOB)) FROM message m \
                     WHERE m.seq = d.message AND m.deliveries > 1), 0) \
                     FROM delivery d JOIN lane l ON l.id = d.lane \
                     WHERE d.seq = ?1 AND d.due IS NOT NULL",
                    [seq as i64],
                    |row| {
                        let state: u8 = row.get(0)?;
                        let tenant: String = row.get(1)?;
                        let (bytes, message, shared): (i64, i64, i64) =
                            (row.get(2)?, row.get(3)?, row.get(4)?);
                        Ok((state, tenant, bytes, message as u64, shared.unsigned_abs() as usize))
                    },
                )
                .optional()
                .map_err(sql)?;
            let Some((state, tenant, bytes, message, shared)) = found else { return Ok(()) };
            writer
                .conn
                .execute(
                    "UPDATE delivery SET state = ?2, reason = ?3, due = NULL, changed = ?4 \
                     WHERE seq = ?1",
                    params![seq as i64, State::Failed.code(), DeadReason::Poison.code(), now.0],
                )
                .map_err(sql)?;
            writer
                .conn
                .execute("INSERT OR IGNORE INTO dead_letter (seq) VALUES (?1)", [seq as i64])
                .map_err(sql)?;
            let tenant = postrider_core::TenantId(tenant.into());
            if let Some(&tenant) = writer.tenants.get(&tenant) {
                let count = draft.count(tenant);
                count.add(State::from_code(state).unwrap_or(State::Queued), -1);
                count.add(State::Failed, 1);
                count.add_dead(DeadReason::Poison, 1);
                count.bytes -= bytes;
                if shared > 0 {
                    let body = Released { tenant, bytes: shared, holds: 0, pending: 1 };
                    draft.release(message, body);
                }
            }
            Ok(())
        })
    }
}

//! When pending deliveries expire. Most never come near it, so they are not indexed for it: of what
//! was accepted lately, only numbers are kept, by time. What is still pending after a minute, or when
//! the first of its time may expire, is listed on disk by its expiry, once. An entry that is no longer
//! true is dropped when its time comes.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::ports::store::StoreResult;
use rusqlite::{Connection, OptionalExtension, params};

use super::board::{Picked, end_of};
use super::error::sql;
use super::rows::{parse, to_json};
use super::writer::Writer;

/// Sequences of one block: those of about four seconds.
const BLOCK_BITS: u32 = 15 + 12;
/// Whatever waits for so long is listed.
const LONG_MS: i64 = 60_000;
/// Rows that one step looks at.
const STEP: usize = 2_000;
/// Steps before a look is answered.
const STEPS: usize = 8;
/// Between two looks at the same.
const PAUSE_MS: i64 = 1_000;
/// How far the disk may lag behind in what it knows to be listed: so much is looked at again after a
/// crash.
const UNSAVED: u64 = 300_000 << 15;

#[derive(Default)]
pub(super) struct Expiry {
    /// Whatever is pending before this sequence is listed on disk.
    swept: u64,
    saved: u64,
    /// From here on `young` knows what is pending.
    known_from: u64,
    young: BTreeMap<u64, Young>,
    /// Nothing listed expires before; none if absent.
    listed: Option<i64>,
    /// When somebody last asked.
    looked: Option<i64>,
}

/// What is pending of one block.
struct Young {
    pending: u64,
    /// None of them expires before.
    first: i64,
}

impl Expiry {
    pub(super) fn came(&mut self, seq: u64, expires: i64) {
        if seq < self.swept {
            self.listed = Some(self.listed.map_or(expires, |first| first.min(expires)));
        } else if seq >= self.known_from {
            let young = self.young.entry(seq >> BLOCK_BITS);
            let young = young.or_insert(Young { pending: 0, first: i64::MAX });
            young.pending += 1;
            young.first = young.first.min(expires);
        }
    }

    pub(super) fn left(&mut self, seq: u64) {
        if seq < self.swept.max(self.known_from) {
            return;
        }
        let block = seq >> BLOCK_BITS;
        let Some(young) = self.young.get_mut(&block) else { return };
        young.pending = young.pending.saturating_sub(1);
        if young.pending == 0 {
            self.young.remove(&block);
        }
    }

    /// It was in flight and waits again.
    pub(super) fn back(&mut self, seq: u64, expires: Timestamp) {
        if seq < self.swept {
            self.listed = Some(self.listed.map_or(expires.0, |first| first.min(expires.0)));
        }
    }

    /// Whether anything may have expired. Whoever asks wants to be woken for the next.
    pub(super) fn look(&mut self, now: i64) -> bool {
        self.looked = Some(now);
        self.first().is_some_and(|first| first <= now)
    }

    pub(super) fn next_look(&self) -> Option<i64> {
        Some(self.first()?.max(self.looked?.saturating_add(PAUSE_MS)))
    }

    fn first(&self) -> Option<i64> {
        if self.swept < self.known_from {
            return Some(i64::MIN);
        }
        let young = self.young.values().map(|young| young.first).min();
        [self.listed, young].into_iter().flatten().min()
    }

    /// The sequences that are to be listed now.
    fn ripe(&self, now: i64, last_id: u64) -> Option<(u64, u64)> {
        if self.swept < self.known_from {
            return Some((self.swept, self.known_from));
        }
        let old = |block: u64| ((((block + 1) << BLOCK_BITS) >> 15) as i64) + LONG_MS <= now;
        let is_ripe = |(block, young): &(&u64, &Young)| young.first <= now || old(**block);
        let (last, _) = self.young.iter().rfind(is_ripe)?;
        let from = self.swept.max(self.young.first_key_value()?.0 << BLOCK_BITS);
        Some((from, ((last + 1) << BLOCK_BITS).min(last_id + 1)))
    }

    /// Everything pending before `to` is listed now, these being the new ones.
    fn listed(&mut self, to: u64, new: &[(i64, u64)]) {
        self.swept = self.swept.max(to);
        self.young = self.young.split_off(&(self.swept >> BLOCK_BITS));
        for (expires, seq) in new {
            self.listed = Some(self.listed.map_or(*expires, |first| first.min(*expires)));
            let block = seq >> BLOCK_BITS;
            if let Some(young) = self.young.get_mut(&block) {
                young.pending = young.pending.saturating_sub(1);
                if young.pending == 0 {
                    self.young.remove(&block);
                }
            }
        }
    }

    /// Nothing before the first block with something pending has to be listed.
    fn advance(&mut self, last_id: u64) {
        if self.swept >= self.known_from {
            let to = self.young.first_key_value().map_or(last_id + 1, |(b, _)| b << BLOCK_BITS);
            self.swept = self.swept.max(to);
        }
    }
}

/// What a clean end left. Otherwise what was accepted last is looked at again.
pub(super) fn load(conn: &Connection, last_id: u64) -> StoreResult<Expiry> {
    let young: Option<String> = conn
        .query_row("DELETE FROM meta WHERE key = 'young' RETURNING value", [], |row| row.get(0))
        .optional()
        .map_err(sql)?;
    let young: Option<Vec<(u64, u64, i64)>> =
        young.map(|young| parse(&young, "what was accepted last")).transpose()?;
    let swept: Option<i64> = conn
        .query_row("SELECT value FROM meta WHERE key = 'swept'", [], |row| row.get(0))
        .optional()
        .map_err(sql)?;
    let listed = conn.query_row("SELECT min(expires) FROM expiry", [], |row| row.get(0));
    let swept = swept.unwrap_or(0) as u64;
    Ok(Expiry {
        swept,
        saved: swept,
        known_from: if young.is_some() { swept } else { last_id + 1 },
        young: young
            .unwrap_or_default()
            .into_iter()
            .map(|(block, pending, first)| (block, Young { pending, first }))
            .collect(),
        listed: listed.map_err(sql)?,
        looked: None,
    })
}

impl Writer {
    /// Between other work: lists a little of what waits for long. True if there is more.
    pub(super) fn sweep_some(&mut self) -> StoreResult<bool> {
        let now = self.shared.now();
        if now.0 < self.sweep_at {
            return Ok(false);
        }
        if self.sweep(now)? {
            return Ok(true);
        }
        self.sweep_at = now.0 + PAUSE_MS;
        let last_id = self.shared.ids().last();
        let unsaved = {
            let mut board = self.shared.board();
            board.expiry.advance(last_id);
            board.expiry.swept - board.expiry.saved
        };
        if unsaved > UNSAVED {
            self.transact_surely(|writer, _| writer.note_swept())?;
        }
        Ok(false)
    }

    /// Lists some of what is to be listed now. False if there was none.
    fn sweep(&mut self, now: Timestamp) -> StoreResult<bool> {
        let last_id = self.shared.ids().last();
        let Some((from, to)) = self.shared.board().expiry.ripe(now.0, last_id) else {
            return Ok(false);
        };
        let (pending, to) = self.pending_between(from, to)?;
        if !pending.is_empty() {
            self.transact_surely(|writer, draft| {
                draft.rows += pending.len() as u64;
                let insert = "INSERT OR IGNORE INTO expiry (expires, seq) VALUES (?1, ?2)";
                let mut insert = writer.conn.prepare_cached(insert).map_err(sql)?;
                for (expires, seq) in &pending {
                    insert.execute(params![expires, *seq as i64]).map_err(sql)?;
                }
                writer.save_swept(to)
            })?;
        }
        self.shared.board().expiry.listed(to, &pending);
        Ok(true)
    }

    /// What is pending, by expiry and sequence, and how far it was looked.
    fn pending_between(&self, from: u64, to: u64) -> StoreResult<(Vec<(i64, u64)>, u64)> {
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT seq, due, expires FROM delivery WHERE seq >= ?1 AND seq < ?2 \
                 ORDER BY seq LIMIT ?3",
            )
            .map_err(sql)?;
        let mut rows = select.query(params![from as i64, to as i64, STEP as i64]).map_err(sql)?;
        let (mut pending, mut looked_at, mut last) = (Vec::new(), 0, 0);
        while let Some(row) = rows.next().map_err(sql)? {
            looked_at += 1;
            last = row.get::<_, i64>(0).map_err(sql)? as u64;
            if row.get::<_, Option<i64>>(1).map_err(sql)?.is_some() {
                pending.push((row.get(2).map_err(sql)?, last));
            }
        }
        Ok((pending, if looked_at == STEP { last + 1 } else { to }))
    }

    fn save_swept(&self, swept: u64) -> StoreResult<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO meta (key, value) VALUES ('swept', ?1) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )
            .and_then(|mut insert| insert.execute([swept as i64]))
            .map_err(sql)?;
        self.shared.board().expiry.saved = swept;
        Ok(())
    }

    fn note_swept(&self) -> StoreResult<()> {
        let swept = self.shared.board().expiry.swept;
        self.save_swept(swept)
    }

    /// At a clean end: the next start need not look at what was accepted last.
    pub(super) fn note_young(&self) -> StoreResult<()> {
        let young: Option<Vec<_>> = {
            let expiry = &self.shared.board().expiry;
            let known = expiry.swept >= expiry.known_from;
            let entry = |(block, young): (&u64, &Young)| (*block, young.pending, young.first);
            known.then(|| expiry.young.iter().map(entry).collect())
        };
        if let Some(young) = young {
            self.conn
                .execute(
                    "INSERT OR REPLACE INTO meta (key, value) VALUES ('young', ?1)",
                    [to_json(&young)?],
                )
                .map_err(sql)?;
        }
        self.note_swept()
    }

    /// A delivery that is pending again; the younger ones are listed in their time.
    pub(super) fn list_if_swept(&self, seq: u64, expires: i64) -> StoreResult<()> {
        if seq >= self.shared.board().expiry.swept {
            return Ok(());
        }
        let insert = "INSERT OR IGNORE INTO expiry (expires, seq) VALUES (?1, ?2)";
        let done = self.conn.prepare_cached(insert);
        done.and_then(|mut insert| insert.execute(params![expires, seq as i64]))
            .map(drop)
            .map_err(sql)
    }

    /// Leases what expired and waits.
    pub(super) fn pick_expired(&mut self, max: usize, duration: Duration) -> StoreResult<Picked> {
        let now = self.shared.now();
        for _ in 0..STEPS {
            if !self.sweep(now)? {
                break;
            }
        }
        self.shared.board().expire(now.0);
        let limit = 2 * max + 64;
        let listed = self.expired(now, limit)?;
        let (mut waiting, mut stale, mut looked_at) = (Vec::new(), Vec::new(), 0);
        for &(expires, seq) in &listed {
            if waiting.len() == max {
                break;
            }
            looked_at += 1;
            if self.shared.board().leased_until(seq).is_some() {
                continue;
            }
            match self.place_of(expires, seq)? {
                Some(place) => waiting.push(place),
                None => stale.push((expires, seq)),
            }
        }
        self.unlist(&stale)?;
        let next = match listed.get(looked_at) {
            Some((expires, _)) => Some(*expires),
            None => self.first_listed(now, looked_at > stale.len())?,
        };
        let mut board = self.shared.board();
        board.expiry.listed = next;
        let mut picked = Picked::default();
        for (lane, due, seq) in waiting {
            let item = board.lease_this(lane, (due, seq), end_of(now, duration));
            picked.leased.extend(item.map(|item| (seq, item)));
        }
        Ok(picked)
    }

    fn expired(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<(i64, u64)>> {
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT expires, seq FROM expiry WHERE expires <= ?1 \
                 ORDER BY expires, seq LIMIT ?2",
            )
            .map_err(sql)?;
        let entry = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64));
        let rows = select.query_map(params![now.0, limit as i64], entry).map_err(sql)?;
        rows.collect::<Result<_, _>>().map_err(sql)
    }

    /// Lane, due time and sequence, if it is pending and still expires then: a replay sets another time.
    fn place_of(&self, expires: i64, seq: u64) -> StoreResult<Option<(u32, i64, u64)>> {
        self.conn
            .prepare_cached(
                "SELECT lane, due FROM delivery \
                 WHERE seq = ?1 AND due IS NOT NULL AND expires = ?2",
            )
            .and_then(|mut select| {
                let place = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, seq));
                select.query_row(params![seq as i64, expires], place).optional()
            })
            .map_err(sql)
    }

    fn unlist(&mut self, stale: &[(i64, u64)]) -> StoreResult<()> {
        if stale.is_empty() {
            return Ok(());
        }
        self.transact_surely(|writer, draft| {
            draft.rows += stale.len() as u64;
            let delete = "DELETE FROM expiry WHERE expires = ?1 AND seq = ?2";
            let mut delete = writer.conn.prepare_cached(delete).map_err(sql)?;
            for (expires, seq) in stale {
                delete.execute(params![expires, *seq as i64]).map_err(sql)?;
            }
            Ok(())
        })
    }

    /// When the next of those listed expires; what expired and is held is looked at again soon.
    fn first_listed(&self, now: Timestamp, some_held: bool) -> StoreResult<Option<i64>> {
        let next: Option<i64> = self
            .conn
            .prepare_cached("SELECT min(expires) FROM expiry WHERE expires > ?1")
            .and_then(|mut select| select.query_row([now.0], |row| row.get(0)))
            .map_err(sql)?;
        let again = some_held.then_some(now.0 + PAUSE_MS);
        Ok([next, again].into_iter().flatten().min())
    }
}

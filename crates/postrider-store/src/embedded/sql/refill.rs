//! Reads deliveries from disk that are not in memory: the next entries of a lane, and what a lease needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::ports::store::StoreError;

use super::prelude::*;
use super::rows::DeliveryReader;
use super::scan::next_readable;
use super::statement::is_local;
use super::strikes::strikes_of;
use crate::embedded::index::UnreadLease;
use crate::embedded::index::delivery::{AddressFlags, StoredDelivery};
use crate::embedded::index::lanes::DueKey;
use crate::embedded::shared::{REPAIR, StoreShared};
use crate::progress::AddressEnd;

/// Rows that are read ahead in one go.
const AHEAD_ROWS: usize = 1_024;
/// Deliveries that are put into memory before others may use it again.
const AHEAD_AT_ONCE: usize = 128;
/// With less room, nothing is read ahead.
const AHEAD_BYTES_MIN: usize = 32 << 10;
/// Reading ahead is worth it if one in so many rows is leased soon.
const USED_PART: usize = 8;
/// Deliveries that are read alone after reading ahead was of little use.
const AHEAD_PAUSE: u32 = 1_024;
/// A lane that cannot be read is left alone for so long.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);

const SAME_DUE: &str = "SELECT due, seq FROM waiting \
                        WHERE lane = ?1 AND due = ?2 AND seq >= ?3 ORDER BY seq LIMIT ?4";
const LATER_DUE: &str = "SELECT due, seq FROM waiting \
                         WHERE lane = ?1 AND due > ?2 AND ?3 IS NOT NULL ORDER BY due, seq LIMIT ?4";

impl Writer {
    /// Reads the next entries of a lane into the index. If they cannot be read, the lane waits, and the others
    /// go on.
    pub(crate) fn refill_or_pause(&mut self, lane: u32) {
        let Err(error) = self.refill(lane) else { return };
        let now = self.shared.now();
        let name = {
            let mut index = self.shared.index();
            index.lanes.pause_refill(lane, (now + UNREADABLE_PAUSE).0);
            index.lane_key(lane).map(|key| key.to_string()).unwrap_or_default()
        };
        let what = format!(
            "the waiting deliveries of the lane {name} cannot be read ({error}); it is tried again \
             every minute, all other lanes go on; a restart rebuilds the index, else {REPAIR}"
        );
        self.shared.problems.report_about("lane_unreadable", lane.into(), now, what);
    }

    /// On the writer's thread, so that nothing changes meanwhile.
    fn refill(&mut self, lane: u32) -> StoreResult<()> {
        loop {
            let Some((from, limit)) = self.shared.index().lanes.refill_from(lane) else {
                self.shared.index().lanes.refill_failed(lane);
                return Ok(());
            };
            let WaitingKeys { mut keys, mut horizon } = self.waiting(lane, from, limit)?;
            let mut guard = self.shared.index();
            let index = &mut *guard;
            // Also what is not listed on disk yet.
            let known = keys.len();
            let is_next = |key: &DueKey| horizon.is_none_or(|horizon| *key < horizon);
            keys.extend(index.recent.of_lane(lane, from).filter(is_next));
            if keys.len() > known {
                keys.sort_unstable();
                if keys.len() > limit {
                    horizon = keys.get(limit).copied();
                    keys.truncate(limit);
                }
            }
            // Leased, or ended out of turn.
            let is_free = |key: &DueKey| {
                !index.is_tracked(key.1) && !self.ended.contains(&(lane, key.0, key.1))
            };
            let free: Vec<_> = keys.into_iter().filter(is_free).collect();
            if index.lanes.refill(lane, from, free.into_iter(), horizon) {
                return Ok(());
            }
        }
    }

    /// The next entries of a lane, up to a page that cannot be read or, if that comes first, from behind it.
    fn waiting(&self, lane: u32, from: DueKey, limit: usize) -> StoreResult<WaitingKeys> {
        let (keys, error) = self.waiting_until_error(lane, from, limit);
        let last = keys.last().map(|key| (key.0, key.1 + 1));
        let Some(error) = error else {
            return Ok(WaitingKeys { horizon: last.filter(|_| keys.len() >= limit), keys });
        };
        if !is_local(&error) || last.is_some() {
            let horizon = last.ok_or(error)?;
            return Ok(WaitingKeys { keys, horizon: Some(horizon) });
        }
        let start = u64::try_from(from.0).unwrap_or(0);
        let is_readable = |due: u64| self.waiting_until_error(lane, (due as i64, 0), 1).1.is_none();
        let behind = next_readable(start, i64::MAX as u64, is_readable) as i64;
        let (keys, _) = self.waiting_until_error(lane, (behind, 0), 1);
        if keys.is_empty() {
            return Err(error);
        }
        let what = format!(
            "a part of the waiting deliveries of a lane cannot be found ({error}); they are left out \
             until a restart, which rebuilds the index"
        );
        let now = self.shared.now();
        self.shared.problems.report_about("lane_incomplete", lane.into(), now, what);
        Ok(WaitingKeys { keys, horizon: Some((behind, 1)) })
    }

    fn waiting_until_error(
        &self,
        lane: u32,
        from: DueKey,
        limit: usize,
    ) -> (Vec<DueKey>, Option<StoreError>) {
        let read = |keys: &mut Vec<DueKey>, query: &str| -> StoreResult<()> {
            let row = params![lane, from.0, from.1 as i64, (limit - keys.len()) as i64];
            let entry = |row: &Row<'_>| {
                keys.push((get(row, 0)?, unsigned(row, 1)?));
                Ok(())
            };
            all_rows(&self.conn, query, row, entry).map(drop)
        };
        let mut keys = Vec::new();
        let done = read(&mut keys, SAME_DUE).and_then(|()| read(&mut keys, LATER_DUE));
        (keys, done.err())
    }
}

/// Entries of a lane, and where the next read starts; absent if these are all.
struct WaitingKeys {
    keys: Vec<DueKey>,
    horizon: Option<DueKey>,
}

pub(crate) type DeliveryResult = StoreResult<Option<(Arc<StoredDelivery>, AddressFlags)>>;

/// In one read transaction, because each beginning costs as much as reading a row.
pub(crate) fn read_deliveries(
    conn: &Connection,
    shared: &StoreShared,
    wanted: &[UnreadLease],
) -> Vec<DeliveryResult> {
    let _transaction = conn.unchecked_transaction();
    let (has_gone, has_struck) = {
        let index = shared.index();
        (index.has_gone(), index.has_struck())
    };
    shared.ahead.read_alone(wanted.len());
    let mut reader = DeliveryReader::new(conn);
    let mut read = |seq| {
        let Some(delivery) = reader.read(seq)? else { return Ok(None) };
        let tenant = &delivery.message.tenant;
        let struck = has_struck && shared.index().may_be_struck(tenant, delivery.hash);
        let strikes = if struck { strikes_of(conn, tenant, delivery.hash)? } else { Vec::new() };
        let end = if has_gone { address_end(conn, &delivery)? } else { None };
        let flags = AddressFlags { end, strikes };
        Ok(Some((Arc::new(delivery), flags)))
    };
    wanted.iter().map(|unread| read(unread.seq)).collect()
}

/// Lanes mostly take turns, so deliveries are leased about in the order in which they were accepted, whatever their
/// lane: reads on where the last such read ended, as far as memory has room. Leases wait for it, and take no more than
/// was read: results are then written in the order of the file, too, and change few pages.
pub(crate) fn read_ahead(conn: &Connection, shared: &StoreShared, wanted: u64) {
    let _transaction = conn.unchecked_transaction();
    let from = shared.ahead.start(wanted);
    let now = shared.now().0;
    let bytes = {
        let cache = &mut shared.index().cache;
        let bytes = cache.ahead_bytes();
        if bytes < AHEAD_BYTES_MIN || !cache.make_room_ahead(bytes, from, now) {
            return shared.ahead.pause();
        }
        bytes
    };
    let read = DeliveryReader::new(conn).read_from(from, AHEAD_ROWS, bytes);
    let (end, rows, mut used) = (read.end, read.rows, 0);
    let mut read = read.found.into_iter().peekable();
    while read.peek().is_some() {
        let mut index = shared.index();
        let some = read.by_ref().take(AHEAD_AT_ONCE);
        used += some.filter_map(|read| index.read_ahead(read, now).then_some(())).count();
    }
    shared.ahead.ended(end, rows, used);
}

/// Where to read ahead, and whether that is worth it at present.
#[derive(Debug, Default)]
pub(crate) struct ReadingAhead {
    /// The end of the last read; 0 to begin anew.
    end: AtomicU64,
    /// Deliveries that are read alone until it is tried again.
    pause: AtomicU32,
}

impl ReadingAhead {
    /// Deliveries from this sequence on are to be read ahead: all before it were, or are read alone.
    pub(crate) fn end(&self) -> u64 {
        match self.pause.load(Ordering::Relaxed) {
            0 => self.end.load(Ordering::Relaxed),
            _ => u64::MAX,
        }
    }

    fn start(&self, wanted: u64) -> u64 {
        match self.end.load(Ordering::Relaxed) {
            0 => wanted,
            end => end,
        }
    }

    /// So many rows were read, and so many of them will be leased soon. Begins elsewhere and pauses if little was of
    /// use.
    fn ended(&self, end: u64, rows: usize, used: usize) {
        let is_useful = used * USED_PART >= rows && used > 0;
        self.end.store(if is_useful { end } else { 0 }, Ordering::Relaxed);
        if !is_useful {
            self.pause();
        }
    }

    pub(crate) fn pause(&self) {
        self.pause.store(AHEAD_PAUSE, Ordering::Relaxed);
    }

    /// So many deliveries were read alone.
    fn read_alone(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let less = |left: u32| Some(left.saturating_sub(count));
        let _ = self.pause.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

fn address_end(conn: &Connection, delivery: &StoredDelivery) -> StoreResult<Option<AddressEnd>> {
    let select = "SELECT deleted_before FROM gone WHERE tenant = ?1 AND hash = ?2";
    let row = params![delivery.message.tenant.as_str(), delivery.hash.0];
    let mark = value::<Option<i64>>(conn, select, row)?;
    Ok(mark.map(|key| AddressEnd::of_mark(key.map(|key| key as u64))))
}

//! Reads deliveries from disk that are not in memory: the next entries of a lane, and what a lease needs.

use std::sync::Arc;
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

/// A lane that cannot be read is left alone for so long.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);

const SAME_DUE: &str = "SELECT due, seq FROM delivery INDEXED BY pending \
                        WHERE lane = ?1 AND due = ?2 AND seq >= ?3 ORDER BY seq LIMIT ?4";
const LATER_DUE: &str = "SELECT due, seq FROM delivery INDEXED BY pending \
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
            let WaitingKeys { keys, horizon } = self.waiting(lane, from, limit)?;
            let mut guard = self.shared.index();
            let index = &mut *guard;
            let free: Vec<_> = keys.into_iter().filter(|key| !index.is_tracked(key.1)).collect();
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
    let mut reader = DeliveryReader::new(conn);
    let mut read = |seq| {
        let Some(delivery) = reader.read(seq)? else { return Ok(None) };
        let tenant = &delivery.message.tenant;
        let struck = has_struck && shared.index().may_be_struck(tenant, delivery.hash);
        let strikes = if struck { strikes_of(conn, tenant, delivery.hash)? } else { Vec::new() };
        let flags = AddressFlags { gone: has_gone && is_gone(conn, &delivery)?, strikes };
        Ok(Some((Arc::new(delivery), flags)))
    };
    wanted.iter().map(|unread| read(unread.seq)).collect()
}

fn is_gone(conn: &Connection, delivery: &StoredDelivery) -> StoreResult<bool> {
    let select = "SELECT 1 FROM gone WHERE tenant = ?1 AND hash = ?2";
    let row = params![delivery.message.tenant.as_str(), delivery.hash.0];
    Ok(value::<i64>(conn, select, row)?.is_some())
}

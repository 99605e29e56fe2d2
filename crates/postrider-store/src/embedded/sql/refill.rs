//! Reads deliveries from disk that are not in memory: the next entries of a lane, and what a lease needs.

use std::sync::Arc;

use super::prelude::*;
use super::rows::DeliveryReader;
use super::strikes::strikes_of;
use crate::embedded::index::UnreadLease;
use crate::embedded::index::delivery::{AddressFlags, StoredDelivery};
use crate::embedded::index::lanes::DueKey;
use crate::embedded::shared::StoreShared;

impl Writer {
    /// Reads the next entries of a lane into the index. On the writer's thread, so that nothing changes
    /// meanwhile.
    pub(crate) fn refill(&mut self, lane: u32) -> StoreResult<()> {
        loop {
            let Some((from, limit)) = self.shared.index().lanes.refill_from(lane) else {
                self.shared.index().lanes.refill_failed(lane);
                return Ok(());
            };
            let keys = self.waiting(lane, from, limit).inspect_err(|_| {
                self.shared.index().lanes.refill_failed(lane);
            })?;
            let horizon = keys.last().filter(|_| keys.len() >= limit).map(|key| (key.0, key.1 + 1));
            let mut guard = self.shared.index();
            let index = &mut *guard;
            let free: Vec<_> = keys.into_iter().filter(|key| !index.is_tracked(key.1)).collect();
            if index.lanes.refill(lane, from, free.into_iter(), horizon) {
                return Ok(());
            }
        }
    }

    fn waiting(&self, lane: u32, from: DueKey, limit: usize) -> StoreResult<Vec<DueKey>> {
        let read = |query: &str, limit: usize| -> StoreResult<Vec<DueKey>> {
            let row = params![lane, from.0, from.1 as i64, limit as i64];
            all_rows(&self.conn, query, row, |row| Ok((get(row, 0)?, unsigned(row, 1)?)))
        };
        let mut keys = read(
            "SELECT due, seq FROM delivery INDEXED BY pending \
             WHERE lane = ?1 AND due = ?2 AND seq >= ?3 ORDER BY seq LIMIT ?4",
            limit,
        )?;
        let rest = read(
            "SELECT due, seq FROM delivery INDEXED BY pending \
             WHERE lane = ?1 AND due > ?2 AND ?3 IS NOT NULL ORDER BY due, seq LIMIT ?4",
            limit - keys.len(),
        )?;
        keys.extend(rest);
        Ok(keys)
    }
}

pub(crate) type DeliveryResult = StoreResult<Option<(Arc<StoredDelivery>, AddressFlags)>>;

pub(crate) fn read_deliveries(
    conn: &Connection,
    shared: &StoreShared,
    wanted: &[UnreadLease],
) -> Vec<DeliveryResult> {
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

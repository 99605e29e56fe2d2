//! The order of the ledger by tenant. Once some thousand deliveries were accepted, they become a block: for each of
//! its tenants one row with their sequences and lanes. So a list of a tenant or of a lane reads what it shows, and a
//! delivery costs some ten bytes that are written in the order of the file. What is in no block yet is in the
//! [`OrderTail`]. A delivery that falls back to another lane is noted, because blocks are never changed.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::prelude::*;
use super::scan::scan;
use super::statement::is_local;
use super::tags::list_all_tags;
use super::upgrade::LayoutStep;
use crate::embedded::index::MemoryIndex;
use crate::embedded::order_tail::{OrderEntry, OrderTail};

/// Deliveries of a block.
pub(crate) const BLOCK: usize = 8_192;
/// Blocks that one step of pruning looks at.
const BLOCKS_AT_ONCE: i64 = 32;

/// Dead letters have their tenant, lane and reason beside them, which [`fill_dead_letters`] adds to older ones.
/// Campaigns are listed where tags are. The entries have a table with a rowid: a table without one puts whatever is
/// longer than a kilobyte on a page of its own, and four times the content was written.
pub(super) const LEDGER_ORDER: LayoutStep =
    LayoutStep { before: TABLES, rows: &[], convert: Some(list_all_tags), after: "" };

const TABLES: &str = "
CREATE TABLE ledger_block (first INTEGER PRIMARY KEY, behind INTEGER NOT NULL);
CREATE TABLE ledger_block_tenant (
  first INTEGER NOT NULL, tenant INTEGER NOT NULL, entries BLOB NOT NULL,
  PRIMARY KEY (first, tenant));
CREATE TABLE lane_change (seq INTEGER PRIMARY KEY);
ALTER TABLE dead_letter ADD COLUMN tenant INTEGER;
ALTER TABLE dead_letter ADD COLUMN lane INTEGER;
ALTER TABLE dead_letter ADD COLUMN reason INTEGER;
CREATE INDEX dead_letter_tenant ON dead_letter (tenant, seq);
";

/// Entries as they are stored: the difference to the sequence before, and the lane.
fn pack(first: u64, entries: &[OrderEntry]) -> Vec<u8> {
    let (mut bytes, mut before) = (Vec::with_capacity(entries.len() * 8), first);
    for (seq, lane) in entries {
        put_number(&mut bytes, seq.saturating_sub(before));
        put_number(&mut bytes, u64::from(*lane));
        before = *seq;
    }
    bytes
}

/// Seven bits a byte; the last one has no high bit.
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

pub(crate) fn unpack(first: u64, mut bytes: &[u8]) -> StoreResult<Vec<OrderEntry>> {
    let (mut entries, mut seq) = (Vec::with_capacity(bytes.len() / 6), first);
    while !bytes.is_empty() {
        let entry = take_number(&mut bytes).zip(take_number(&mut bytes));
        let (step, lane) = entry.ok_or_else(|| damaged("a block of the ledger's order"))?;
        seq = seq.wrapping_add(step);
        entries.push((seq, lane as u32));
    }
    Ok(entries)
}

fn insert_block(
    conn: &Connection,
    (first, behind): (u64, u64),
    entries: &[OrderEntry],
    tenant_of: impl Fn(u32) -> Option<u32>,
) -> StoreResult<()> {
    let mut tenants: BTreeMap<u32, Vec<OrderEntry>> = BTreeMap::new();
    for entry in entries {
        // A lane without a name has no deliveries any more.
        let Some(tenant) = tenant_of(entry.1) else { continue };
        tenants.entry(tenant).or_default().push(*entry);
    }
    let insert = "INSERT INTO ledger_block (first, behind) VALUES (?1, ?2)";
    run(conn, insert, params![first as i64, behind as i64])?;
    let insert = "INSERT INTO ledger_block_tenant (first, tenant, entries) VALUES (?1, ?2, ?3)";
    let mut insert = conn.prepare_cached(insert).map_err(sql)?;
    for (tenant, entries) in tenants {
        insert.execute(params![first as i64, tenant, pack(first, &entries)]).map_err(sql)?;
    }
    Ok(())
}

impl Writer {
    /// Between other work: makes a block if there is enough for one. True if there may be more.
    pub(crate) fn write_order_block(&mut self) -> StoreResult<bool> {
        let (first, entries) = {
            let tail = self.shared.order_tail();
            let Some(entries) = tail.oldest(BLOCK) else { return Ok(false) };
            (tail.from(), entries)
        };
        let Some((last, _)) = entries.last() else { return Ok(false) };
        let range = (first, last + 1);
        let tenants = self.tenants_of(&entries);
        self.transact_surely(|writer| {
            insert_block(&writer.conn, range, &entries, |lane| tenants.get(&lane).copied())
        })?;
        self.shared.order_tail().forget_oldest(entries.len(), range.1);
        Ok(true)
    }

    /// The tenants of the entries' lanes. Looks at each lane once, because the dispatcher needs the index, too.
    fn tenants_of(&self, entries: &[OrderEntry]) -> HashMap<u32, u32> {
        let lanes: HashSet<u32> = entries.iter().map(|(_, lane)| *lane).collect();
        let index = self.shared.index();
        lanes.into_iter().filter_map(|lane| Some((lane, index.tenant_of(lane)?))).collect()
    }

    /// A delivery goes on in another lane than its block says.
    pub(crate) fn note_lane_change(&mut self, seq: u64) -> StoreResult<()> {
        let insert = "INSERT OR IGNORE INTO lane_change (seq) VALUES (?1)";
        run(&self.conn, insert, [seq as i64]).map(drop)
    }

    /// Deletes blocks whose deliveries are all deleted. True if there are more to look at.
    pub(crate) fn prune_order(&mut self) -> StoreResult<bool> {
        let select = "SELECT first, behind FROM ledger_block WHERE first >= ?1 AND behind <= ?2 \
                      ORDER BY first LIMIT ?3";
        let range = params![self.order_pruned as i64, self.prune_from as i64, BLOCKS_AT_ONCE];
        let blocks =
            all_rows(&self.conn, select, range, |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)))?;
        let Some((last, _)) = blocks.last() else {
            self.order_pruned = 0;
            return Ok(false);
        };
        let next = last + 1;
        self.transact_surely(|writer| {
            for (first, behind) in &blocks {
                let range = [*first as i64, *behind as i64];
                let some = "SELECT 1 FROM delivery WHERE seq >= ?1 AND seq < ?2 LIMIT 1";
                if value::<i64>(&writer.conn, some, range)?.is_some() {
                    continue;
                }
                run(&writer.conn, "DELETE FROM lane_change WHERE seq >= ?1 AND seq < ?2", range)?;
                run(&writer.conn, "DELETE FROM ledger_block_tenant WHERE first = ?1", [range[0]])?;
                run(&writer.conn, "DELETE FROM ledger_block WHERE first = ?1", [range[0]])?;
            }
            Ok(())
        })?;
        self.order_pruned = next;
        Ok(true)
    }

    /// Deliveries come from another store, in any order. The next start makes the blocks anew.
    pub(crate) fn drop_order(&mut self) -> StoreResult<()> {
        if self.shared.order_tail().is_usable() {
            run(&self.conn, "DELETE FROM ledger_block_tenant", [])?;
            run(&self.conn, "DELETE FROM ledger_block", [])?;
            self.shared.order_tail().give_up();
        }
        Ok(())
    }
}

/// At a start: makes blocks of what is in none yet, as far as that can be read, and returns the rest. A damaged
/// list of blocks is not used.
pub(super) fn load(conn: &Connection, index: &MemoryIndex, last_id: u64) -> StoreResult<OrderTail> {
    match complete(conn, index, last_id) {
        Err(error) if is_local(&error) => {
            tracing::error!(%error, "the order of the ledger by tenant cannot be read: lists of one tenant look at all rows");
            let mut tail = OrderTail::default();
            tail.give_up();
            Ok(tail)
        }
        done => done,
    }
}

fn complete(conn: &Connection, index: &MemoryIndex, last_id: u64) -> StoreResult<OrderTail> {
    let last = "SELECT behind FROM ledger_block ORDER BY first DESC LIMIT 1";
    let mut from = value::<i64>(conn, last, [])?.unwrap_or(0) as u64;
    let select =
        "SELECT seq, lane FROM delivery WHERE seq >= ?1 AND seq < ?2 ORDER BY seq LIMIT ?3";
    let (mut entries, mut blocks) = (Vec::new(), 0_u64);
    let mut next = from;
    loop {
        let found = scan(conn, select, (next, last_id + 1), BLOCK - entries.len(), |row| {
            Ok(Some((unsigned(row, 0)?, get::<u32>(row, 1)?)))
        })?;
        entries.extend(found.rows);
        if entries.len() == BLOCK {
            let behind = entries.last().map_or(from, |(seq, _)| seq + 1);
            let transaction = conn.unchecked_transaction().map_err(sql)?;
            insert_block(conn, (from, behind), &entries, |lane| index.tenant_of(lane))?;
            transaction.commit().map_err(sql)?;
            entries.clear();
            from = behind;
            blocks += 1;
            if blocks % 128 == 0 {
                tracing::info!(
                    deliveries = blocks * BLOCK as u64,
                    "the order of the ledger by tenant is made"
                );
            }
        }
        match found.next {
            Some(at) => next = at,
            None => return Ok(OrderTail::starting_at(from, entries)),
        }
    }
}

/// At a start: adds to dead letters of an older version what they are found by. Those that cannot be read stay without.
pub(super) fn fill_dead_letters(conn: &Connection) -> StoreResult<()> {
    let lacking = "SELECT 1 FROM dead_letter WHERE tenant IS NULL LIMIT 1";
    let select = "SELECT x.seq, t.id, d.lane, d.reason FROM dead_letter x JOIN delivery d ON d.seq = x.seq \
                  JOIN lane l ON l.id = d.lane JOIN tenant t ON t.name = l.tenant \
                  WHERE x.seq >= ?1 AND x.seq < ?2 AND x.tenant IS NULL ORDER BY x.seq LIMIT ?3";
    let done = (|| {
        if value::<i64>(conn, lacking, [])?.is_none() {
            return Ok(());
        }
        let mut from = Some(0);
        while let Some(first) = from {
            let found = scan(conn, select, (first, i64::MAX as u64), BLOCK, |row| {
                let reason: Option<u8> = get(row, 3)?;
                Ok(Some((unsigned(row, 0)?, get::<u32>(row, 1)?, get::<u32>(row, 2)?, reason)))
            })?;
            let transaction = conn.unchecked_transaction().map_err(sql)?;
            let update =
                "UPDATE dead_letter SET tenant = ?2, lane = ?3, reason = ?4 WHERE seq = ?1";
            for (seq, tenant, lane, reason) in &found.rows {
                run(&transaction, update, params![*seq as i64, tenant, lane, reason])?;
            }
            transaction.commit().map_err(sql)?;
            from = found.next;
        }
        Ok(())
    })();
    match done {
        Err(error) if is_local(&error) => {
            tracing::error!(%error, "some dead letters cannot be read: they are missing in the lists of their tenants");
            Ok(())
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_written() {
        let entries = [(1 << 62, 0), ((1 << 62) + 1, 300), ((1 << 62) + 70_000, u32::MAX)];
        assert_eq!(unpack(1 << 61, &pack(1 << 61, &entries)).unwrap(), entries);
        assert!(unpack(0, &[0x80]).is_err());
        assert!(unpack(0, &[0xff; 20]).is_err());
    }
}

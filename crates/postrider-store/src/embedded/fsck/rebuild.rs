//! Writes a database anew from what can be read of a damaged one, and makes it consistent.

use std::collections::BTreeMap;
use std::path::Path;

use postrider_core::DeadReason;

use super::salvage::TableCopier;
use super::stale_page::rows_of_page;
use super::{CACHE_KIB, RepairReport};
use crate::embedded::index::counts::{CountChange, TenantTotals};
use crate::embedded::sql::prelude::*;
use crate::embedded::sql::schema::open_writer;
use crate::embedded::sql::tags::list_all_tags;

pub(super) fn rebuild(
    old: &Connection,
    old_file: &Path,
    new_file: &Path,
    stale_pages: &[u32],
    report: &mut RepairReport,
) -> StoreResult<()> {
    let new = open_writer(new_file, CACHE_KIB)?;
    TableCopier { old, new: &new, report }.copy_all()?;
    renumber(&new)?;
    report.orphans = delete_orphans(&new)?;
    report.lost = lost_deliveries(&new)?;
    for page in stale_pages {
        for seq in rows_of_page(old_file, *page) {
            report.in_doubt.extend(mark_in_doubt(&new, seq)?);
        }
    }
    // Tenants have new numbers.
    new.execute_batch("UPDATE dead_letter SET tenant = NULL").map_err(sql)?;
    count(&new)?;
    list_all_tags(&new)?;
    // The next start lists all expiries and all that waits, and the next prune looks at all deliveries.
    let positions =
        "DELETE FROM meta WHERE key IN ('swept', 'young', 'packed', 'pruned', 'listed')";
    new.execute_batch(positions).map_err(sql)?;
    new.execute_batch("PRAGMA journal_mode = DELETE").map_err(sql)?;
    new.close().map_err(|(_, error)| sql(error))
}

/// Tenants are numbered without a gap, and every delivery has a lane, so what is lost gets a stand-in.
fn renumber(new: &Connection) -> StoreResult<()> {
    let script = "
        CREATE TEMP TABLE named AS SELECT name, id FROM tenant UNION ALL
          SELECT DISTINCT tenant, 4294967295 FROM (SELECT tenant FROM lane UNION SELECT tenant FROM message)
          WHERE tenant NOT IN (SELECT name FROM tenant);
        DELETE FROM tenant;
        INSERT INTO tenant (id, name, counts) SELECT row_number() OVER (ORDER BY id, name) - 1, name, '{}'
          FROM named;
        DROP TABLE named;";
    new.execute_batch(script).map_err(sql)?;
    let stand_ins = "INSERT OR IGNORE INTO lane (id, tenant, channel, provider, class) \
                     SELECT DISTINCT d.lane, t.name, 'webhook', 'lost', 'lost' FROM delivery d \
                     JOIN (SELECT name FROM tenant LIMIT 1) t";
    run(new, stand_ins, []).map(drop)
}

/// Deletes deliveries that can never be sent, because their message or their lane is lost.
fn delete_orphans(new: &Connection) -> StoreResult<Vec<DeliveryId>> {
    let delete = "DELETE FROM delivery WHERE NOT EXISTS \
                  (SELECT 1 FROM message m WHERE m.seq = delivery.message) \
                  OR lane IN (SELECT id FROM lane WHERE provider = 'lost' AND class = 'lost') \
                  RETURNING seq, tail";
    let orphans = all_rows(new, delete, [], |row| row_id(row).map(DeliveryId))?;
    let rest = "DELETE FROM dead_letter WHERE seq NOT IN (SELECT seq FROM delivery)";
    run(new, rest, [])?;
    Ok(orphans)
}

/// Messages of which deliveries are missing. Those without any are deleted.
fn lost_deliveries(new: &Connection) -> StoreResult<Vec<(MessageId, u64)>> {
    let select = "SELECT seq, tail, deliveries - (SELECT count(*) FROM delivery d \
                  WHERE d.seq > message.seq AND d.seq <= message.seq + message.deliveries) AS lost, \
                  deliveries FROM message WHERE lost > 0";
    let found = all_rows(new, select, [], |row| {
        let (lost, all) = (unsigned(row, "lost")?, unsigned(row, "deliveries")?);
        Ok((MessageId(row_id(row)?), lost, lost == all))
    })?;
    for (message, _, _) in found.iter().filter(|(_, _, all)| *all) {
        run(new, "DELETE FROM message WHERE seq = ?1", [order_key(message.0) as i64])?;
    }
    Ok(found.into_iter().map(|(message, lost, _)| (message, lost)).collect())
}

fn mark_in_doubt(new: &Connection, seq: u64) -> StoreResult<Option<DeliveryId>> {
    let select = "SELECT seq, tail FROM delivery WHERE seq = ?1 AND due IS NOT NULL";
    let found = first_row(new, select, [seq as i64], |row| row_id(row).map(DeliveryId))?;
    if found.is_some() {
        let mark = "INSERT INTO mark (seq, crashes, started, cancelled) VALUES (?1, 0, 1, 0) \
                    ON CONFLICT (seq) DO UPDATE SET started = 1";
        run(new, mark, [seq as i64])?;
    }
    Ok(found)
}

/// Counts what is there, because the stored counts may be old.
fn count(new: &Connection) -> StoreResult<()> {
    let pending = "UPDATE message SET pending = (SELECT count(*) FROM delivery d WHERE d.seq > message.seq \
                   AND d.seq <= message.seq + message.deliveries AND d.due IS NOT NULL) \
                   WHERE deliveries > 1";
    run(new, pending, [])?;
    let mut changes: BTreeMap<String, CountChange> = BTreeMap::new();
    let mut add = |select: &str, apply: &mut dyn FnMut(&mut CountChange, i64, i64)| {
        all_rows(new, select, [], |row| {
            let tenant = changes.entry(get(row, 0)?).or_default();
            apply(tenant, get(row, 1)?, get(row, 2)?);
            Ok(())
        })
        .map(drop)
    };
    let messages = "SELECT tenant, count(*), 0 FROM message GROUP BY tenant";
    add(messages, &mut |change, n, _| change.messages += n)?;
    let states = "SELECT l.tenant, d.state, count(*) FROM delivery d JOIN lane l ON l.id = d.lane \
                  GROUP BY l.tenant, d.state";
    add(states, &mut |change, state, n| {
        let state = u8::try_from(state).ok().and_then(State::from_code);
        change.add(state.unwrap_or(State::Queued), n);
    })?;
    let dead = "SELECT l.tenant, d.reason, count(*) FROM dead_letter x JOIN delivery d ON d.seq = x.seq \
                JOIN lane l ON l.id = d.lane WHERE d.reason IS NOT NULL GROUP BY l.tenant, d.reason";
    add(dead, &mut |change, reason, n| {
        if let Some(reason) = u8::try_from(reason).ok().and_then(DeadReason::from_code) {
            change.add_dead(reason, n);
        }
    })?;
    let bytes = "SELECT l.tenant, sum(coalesce(length(CAST(d.target AS BLOB)), 0) \
                 + coalesce(length(CAST(d.body AS BLOB)), 0)), 0 FROM delivery d \
                 JOIN lane l ON l.id = d.lane WHERE d.due IS NOT NULL GROUP BY l.tenant";
    add(bytes, &mut |change, n, _| change.bytes += n)?;
    let held = "SELECT l.tenant, count(*), 0 FROM delivery d JOIN lane l ON l.id = d.lane \
                WHERE d.due >= 1 << 47 GROUP BY l.tenant";
    add(held, &mut |change, n, _| change.held += n)?;
    let shared = "SELECT tenant, sum(length(CAST(content AS BLOB))), 0 FROM message \
                  WHERE deliveries > 1 AND pending > 0 AND content IS NOT NULL GROUP BY tenant";
    add(shared, &mut |change, n, _| change.bytes += n)?;
    for (tenant, change) in changes {
        let totals = to_json(&TenantTotals::default().plus(&change))?;
        run(new, "UPDATE tenant SET counts = ?2 WHERE name = ?1", params![tenant, totals])?;
    }
    let none = to_json(&TenantTotals::default())?;
    run(new, "UPDATE tenant SET counts = ?1 WHERE counts = '{}'", params![none]).map(drop)
}

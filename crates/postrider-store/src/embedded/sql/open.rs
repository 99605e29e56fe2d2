//! Opens the database and fills the index in memory. Reads the SQL index of pending deliveries, never their
//! rows.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_core::{ChannelKind, Clock, LaneKey};

use super::prelude::*;
use crate::embedded::StoreOptions;
use crate::embedded::checkpoint::Checkpointer;
use crate::embedded::folder::{DATABASE, DataFolder, IN_FLIGHT};
use crate::embedded::in_flight::InFlightLog;
use crate::embedded::index::MemoryIndex;
use crate::embedded::index::lanes::WindowLimits;
use crate::embedded::reserve::DiskReserve;
use crate::embedded::shared::StoreShared;
use crate::embedded::sql::dedup::DedupStore;
use crate::embedded::sql::schema::open_writer;
use crate::embedded::sql::strikes::{self, tenant_and_hash};
use crate::embedded::sql::{expiry, marks};
use crate::ids::IdGenerator;

/// The writer, which has everything that is shared, and the thread of the checkpoints.
pub(crate) fn open(
    folder: &DataFolder,
    clock: Arc<dyn Clock>,
    options: StoreOptions,
    reserve: DiskReserve,
) -> StoreResult<(Writer, JoinHandle<()>)> {
    let database = folder.file(DATABASE);
    let conn = open_writer(&database, options.page_cache_kib)?;
    if let Some(max) = reserve.journal_max() {
        conn.pragma_update(None, "journal_size_limit", max as i64).map_err(sql)?;
    }
    let limits = WindowLimits {
        lane: options.lane_window.max(1),
        lane_when_full: 64.min(options.lane_window.max(1)),
        total: options.window_total,
    };
    let run = number_of_run(&conn)?;
    let mut index = MemoryIndex::new(limits, options.delivery_cache_bytes, run << 30);
    load_tenants(&conn, &mut index)?;
    load_lanes(&conn, &mut index)?;
    load_gone(&conn, &mut index)?;
    strikes::load(&conn, &mut index)?;
    marks::count_crash(&conn, &InFlightLog::read_left(&folder.file(IN_FLIGHT)))?;
    marks::load(&conn, &mut index)?;
    let last_id = last_id(&conn)?;
    index.oldest.seq = load_pending(&conn, &mut index)?.min(last_id);
    index.expiry = expiry::load(&conn, last_id)?;
    let dedup = DedupStore::load(&conn, options.dedup_bucket_keys, clock.now())?;
    let ids = IdGenerator::above(last_id);
    let in_flight = InFlightLog::begin(&folder.file(IN_FLIGHT), run);
    let shared = Arc::new(StoreShared::new(clock, index, ids, in_flight, database.clone()));
    let (checkpointer, checkpoints) = 
        Checkpointer::start(&database, reserve.journal_max(), shared.clone())?;
    let mut writer = Writer::new(conn, shared, dedup, checkpointer, reserve);
    writer.restore_reserve();
    Ok((writer, checkpoints))
}

/// The number of this run, from which its lease tokens start. It is above those of all earlier runs: it is
/// counted, and at least the time in seconds, in case a restored backup has an old count.
fn number_of_run(conn: &Connection) -> StoreResult<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
    let insert = "INSERT INTO meta (key, value) VALUES ('epoch', ?1) ON CONFLICT (key) \
                  DO UPDATE SET value = max(value + 1, excluded.value) RETURNING value";
    let epoch: Option<i64> = value(conn, insert, [seconds])?;
    epoch.map(|epoch| epoch as u64).ok_or_else(|| damaged("the number of this run"))
}

/// The highest id ever given out, also of rows that were pruned since.
fn last_id(conn: &Connection) -> StoreResult<u64> {
    let select = "SELECT max(n) FROM (SELECT max(seq) AS n FROM message UNION ALL \
                  SELECT max(seq) FROM delivery UNION ALL SELECT max(seq) FROM address UNION ALL \
                  SELECT value FROM meta WHERE key = 'last_id')";
    let last: Option<i64> = value(conn, select, [])?.flatten();
    Ok(last.unwrap_or(0) as u64)
}

fn load_tenants(conn: &Connection, index: &mut MemoryIndex) -> StoreResult<()> {
    let select = "SELECT name, counts FROM tenant ORDER BY id";
    let pair = |row: &Row<'_>| Ok((get::<String>(row, 0)?, get::<String>(row, 1)?));
    for (name, counts) in all_rows(conn, select, [], pair)? {
        index.tenants.push(TenantId(name.into()), parse(&counts, "a tenant's counts")?);
    }
    Ok(())
}

fn load_lanes(conn: &Connection, index: &mut MemoryIndex) -> StoreResult<()> {
    let select = "SELECT l.channel, l.provider, l.class, t.id, l.id FROM lane l \
                  JOIN tenant t ON t.name = l.tenant ORDER BY l.id";
    all_rows(conn, select, [], |row| {
        let text = |column: usize| get::<String>(row, column);
        let tenant: u32 = get(row, 3)?;
        let owner = index.tenants.get(tenant).ok_or_else(|| damaged("a lane's tenant"))?;
        let key = LaneKey {
            tenant: owner.name.clone(),
            channel: ChannelKind::parse(&text(0)?).ok_or_else(|| damaged("a lane's channel"))?,
            provider: text(1)?.into(),
            class: text(2)?.into(),
        };
        if get::<i64>(row, 4)? != index.names.len() as i64 {
            return Err(damaged("the lanes are not numbered without a gap"));
        }
        index.names.push((Arc::new(key), tenant));
        Ok(())
    })
    .map(drop)
}

fn load_gone(conn: &Connection, index: &mut MemoryIndex) -> StoreResult<()> {
    all_rows(conn, "SELECT tenant, hash FROM gone", [], |row| {
        let (tenant, hash) = tenant_and_hash(row)?;
        index.set_gone(&tenant, hash, true);
        Ok(())
    })
    .map(drop)
}

/// Finds where each lane starts and how deep it is, by one pass over the index of pending deliveries.
/// Returns the oldest of them.
fn load_pending(conn: &Connection, index: &mut MemoryIndex) -> StoreResult<u64> {
    let select = "SELECT lane, min(due), count(*), min(seq) FROM delivery INDEXED BY pending \
                  WHERE due IS NOT NULL GROUP BY lane";
    let firsts = all_rows(conn, select, [], |row| {
        index.lanes.load(get(row, 0)?, (get(row, 1)?, 0), unsigned(row, 2)?);
        unsigned(row, 3)
    })?;
    Ok(firsts.into_iter().min().unwrap_or(u64::MAX))
}

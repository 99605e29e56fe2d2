//! Opens the database and fills the index in memory. Reads the SQL index of pending deliveries, never their
//! rows.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_core::ports::store::StoreResult;
use postrider_core::{AddressHash, ChannelKind, Clock, LaneKey, TenantId};
use rusqlite::{Connection, params};

use crate::embedded::StoreOptions;
use crate::embedded::checkpoint::Checkpointer;
use crate::embedded::folder::DataFolder;
use crate::embedded::in_flight::InFlightLog;
use crate::embedded::index::MemoryIndex;
use crate::embedded::index::lanes::WindowLimits;
use crate::embedded::reserve::DiskReserve;
use crate::embedded::shared::StoreShared;
use crate::embedded::sql::dedup::DedupStore;
use crate::embedded::sql::error::{damaged, sql};
use crate::embedded::sql::expiry;
use crate::embedded::sql::marks;
use crate::embedded::sql::rows::parse;
use crate::embedded::sql::schema::open_writer;
use crate::embedded::sql::strikes;
use crate::embedded::writer::Writer;
use crate::ids::IdGenerator;

pub(crate) struct OpenedStore {
    pub(crate) shared: Arc<StoreShared>,
    pub(crate) writer: Writer,
    pub(crate) checkpoints: JoinHandle<()>,
}

pub(crate) fn open(
    folder: &DataFolder,
    clock: Arc<dyn Clock>,
    options: StoreOptions,
    reserve: DiskReserve,
) -> StoreResult<OpenedStore> {
    let database = folder.database();
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
    marks::count_crash(&conn, &InFlightLog::read_left(&folder.in_flight()))?;
    marks::load(&conn, &mut index)?;
    let last_id = last_id(&conn)?;
    index.oldest.seq = load_pending(&conn, &mut index)?.min(last_id);
    index.expiry = expiry::load(&conn, last_id)?;
    let dedup = DedupStore::load(&conn, options.dedup_bucket_keys, clock.now())?;
    let ids = IdGenerator::above(last_id);
    let in_flight = InFlightLog::begin(&folder.in_flight(), run);
    let shared = Arc::new(StoreShared::new(clock, index, ids, in_flight, database.clone()));
    let (checkpointer, checkpoints) = Checkpointer::start(&database, reserve.journal_max())?;
    let mut writer = Writer::new(conn, shared.clone(), dedup, checkpointer, reserve);
    writer.restore_reserve();
    Ok(OpenedStore { shared, writer, checkpoints })
}

/// The number of this run, from which its lease tokens start. It is above those of all earlier runs: it is
/// counted, and at least the time in seconds, in case a restored backup has an old count.
fn number_of_run(conn: &Connection) -> StoreResult<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
    let epoch: i64 = conn
        .query_row(
            "INSERT INTO meta (key, value) VALUES ('epoch', ?1) \
             ON CONFLICT (key) DO UPDATE SET value = max(value + 1, excluded.value) RETURNING value",
            [seconds],
            |row| row.get(0),
        )
        .map_err(sql)?;
    Ok(epoch as u64)
}

/// The highest id ever given out, also of rows that were pruned since.
fn last_id(conn: &Connection) -> StoreResult<u64> {
    let last: Option<i64> = conn
        .query_row(
            "SELECT max(n) FROM (SELECT max(seq) AS n FROM message UNION ALL \
             SELECT max(seq) FROM delivery UNION ALL SELECT max(seq) FROM address UNION ALL \
             SELECT value FROM meta WHERE key = 'last_id')",
            [],
            |row| row.get(0),
        )
        .map_err(sql)?;
    Ok(last.unwrap_or(0) as u64)
}

fn load_tenants(conn: &Connection, index: &mut MemoryIndex) -> StoreResult<()> {
    let mut select = conn.prepare("SELECT name, counts FROM tenant ORDER BY id").map_err(sql)?;
    let mut rows = select.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let (name, counts): (String, String) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
        index.tenants.push(TenantId(name.into()), parse(&counts, "a tenant's counts")?);
    }
    Ok(())
}

fn load_lanes(conn: &Connection, index: &mut MemoryIndex) -> StoreResult<()> {
    let mut select = conn
        .prepare(
            "SELECT l.channel, l.provider, l.class, t.id, l.id FROM lane l \
             JOIN tenant t ON t.name = l.tenant ORDER BY l.id",
        )
        .map_err(sql)?;
    let mut rows = select.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let text = |column| row.get::<_, String>(column).map_err(sql);
        let tenant: u32 = row.get(3).map_err(sql)?;
        let owner = index.tenants.get(tenant).ok_or_else(|| damaged("a lane's tenant"))?;
        let key = LaneKey {
            tenant: owner.name.clone(),
            channel: ChannelKind::parse(&text(0)?).ok_or_else(|| damaged("a lane's channel"))?,
            provider: text(1)?.into(),
            class: text(2)?.into(),
        };
        if row.get::<_, i64>(4).map_err(sql)? != index.names.len() as i64 {
            return Err(damaged("the lanes are not numbered without a gap"));
        }
        index.names.push((Arc::new(key), tenant));
    }
    Ok(())
}

fn load_gone(conn: &Connection, index: &mut MemoryIndex) -> StoreResult<()> {
    let mut select = conn.prepare("SELECT tenant, hash FROM gone").map_err(sql)?;
    let mut rows = select.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let tenant = TenantId(row.get::<_, String>(0).map_err(sql)?.into());
        index.mark_gone(&tenant, AddressHash(row.get(1).map_err(sql)?));
    }
    Ok(())
}

/// Finds where each lane starts and how deep it is, by one pass over the index of pending deliveries.
/// Returns the oldest of them.
fn load_pending(conn: &Connection, index: &mut MemoryIndex) -> StoreResult<u64> {
    let mut select = conn
        .prepare(
            "SELECT lane, min(due), count(*), min(seq) FROM delivery INDEXED BY pending \
             WHERE due IS NOT NULL GROUP BY lane",
        )
        .map_err(sql)?;
    let mut rows = select.query(params![]).map_err(sql)?;
    let mut oldest = u64::MAX;
    while let Some(row) = rows.next().map_err(sql)? {
        let number = |column| row.get::<_, i64>(column).map_err(sql);
        let lane: u32 = row.get(0).map_err(sql)?;
        index.lanes.load(lane, (number(1)?, 0), number(2)? as u64);
        oldest = oldest.min(number(3)? as u64);
    }
    Ok(oldest)
}

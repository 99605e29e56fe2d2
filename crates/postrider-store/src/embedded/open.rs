//! From the files to a store that works. Reads the index of what is waiting, never the rows.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_core::ports::store::StoreResult;
use postrider_core::{AddressHash, ChannelKind, Clock, LaneKey, TenantId};
use rusqlite::{Connection, params};

use super::Options;
use super::board::Board;
use super::checkpoint::Pressure;
use super::dedup::Dedup;
use super::error::{damaged, sql};
use super::expiry;
use super::flight::Flight;
use super::folder::Folder;
use super::lanes::Limits;
use super::marks;
use super::reserve::Reserve;
use super::rows::parse;
use super::schema::open_writer;
use super::shared::Shared;
use super::strikes;
use super::writer::Writer;
use crate::ids::Ids;

pub(super) struct Opened {
    pub(super) shared: Arc<Shared>,
    pub(super) writer: Writer,
    pub(super) checkpoints: JoinHandle<()>,
}

pub(super) fn open(
    folder: &Folder,
    clock: Arc<dyn Clock>,
    options: Options,
    reserve: Reserve,
) -> StoreResult<Opened> {
    let database = folder.database();
    let conn = open_writer(&database, options.page_cache_kib)?;
    if let Some(max) = reserve.journal_max() {
        conn.pragma_update(None, "journal_size_limit", max as i64).map_err(sql)?;
    }
    let limits = Limits {
        lane: options.lane_window.max(1),
        lane_when_full: 64.min(options.lane_window.max(1)),
        total: options.window_total,
    };
    let run = number_of_run(&conn)?;
    let mut board = Board::new(limits, options.job_cache_bytes, run << 30);
    load_tenants(&conn, &mut board)?;
    load_lanes(&conn, &mut board)?;
    load_gone(&conn, &mut board)?;
    strikes::load(&conn, &mut board)?;
    marks::count_crash(&conn, &Flight::left(&folder.flight()))?;
    marks::load(&conn, &mut board)?;
    let last_id = last_id(&conn)?;
    board.oldest.seq = load_pending(&conn, &mut board)?.min(last_id);
    board.expiry = expiry::load(&conn, last_id)?;
    let dedup = Dedup::load(&conn, options.dedup_bucket_keys, clock.now())?;
    let ids = Ids::above(last_id);
    let flight = Flight::begin(&folder.flight(), run);
    let shared = Arc::new(Shared::new(clock, board, ids, flight, database.clone()));
    let (pressure, checkpoints) = Pressure::start(&database, reserve.journal_max())?;
    let mut writer = Writer::new(conn, shared.clone(), dedup, pressure, reserve);
    writer.restore_reserve();
    Ok(Opened { shared, writer, checkpoints })
}

/// Tokens of this run are above those of every run before: by the number of runs, and by the
/// time, should the number be lost with a restored backup.
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

/// The highest id ever given out, also to what was pruned since.
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

fn load_tenants(conn: &Connection, board: &mut Board) -> StoreResult<()> {
    let mut select = conn.prepare("SELECT name, counts FROM tenant ORDER BY id").map_err(sql)?;
    let mut rows = select.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let (name, counts): (String, String) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
        board.tenants.push(TenantId(name.into()), parse(&counts, "a tenant's counts")?);
    }
    Ok(())
}

fn load_lanes(conn: &Connection, board: &mut Board) -> StoreResult<()> {
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
        let owner = board.tenants.get(tenant).ok_or_else(|| damaged("a lane's tenant"))?;
        let key = LaneKey {
            tenant: owner.name.clone(),
            channel: ChannelKind::parse(&text(0)?).ok_or_else(|| damaged("a lane's channel"))?,
            provider: text(1)?.into(),
            class: text(2)?.into(),
        };
        if row.get::<_, i64>(4).map_err(sql)? != board.names.len() as i64 {
            return Err(damaged("the lanes are not numbered without a gap"));
        }
        board.names.push((Arc::new(key), tenant));
    }
    Ok(())
}

fn load_gone(conn: &Connection, board: &mut Board) -> StoreResult<()> {
    let mut select = conn.prepare("SELECT tenant, hash FROM gone").map_err(sql)?;
    let mut rows = select.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let tenant = TenantId(row.get::<_, String>(0).map_err(sql)?.into());
        board.mark_gone(&tenant, AddressHash(row.get(1).map_err(sql)?));
    }
    Ok(())
}

/// Where each lane starts and how deep it is, by one pass over the index of what is waiting.
/// Answers the oldest of it.
fn load_pending(conn: &Connection, board: &mut Board) -> StoreResult<u64> {
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
        board.lanes.found(lane, (number(1)?, 0), number(2)? as u64);
        oldest = oldest.min(number(3)? as u64);
    }
    Ok(oldest)
}

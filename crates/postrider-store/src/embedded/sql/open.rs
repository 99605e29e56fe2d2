//! Opens the database and fills the index in memory. Reads the list of waiting deliveries, not their rows.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_core::Clock;
use postrider_core::model::id::order_key_at;

use super::prelude::*;
use super::statement::is_local;
use crate::embedded::StoreOptions;
use crate::embedded::checkpoint::Checkpointer;
use crate::embedded::disk_space::DiskSpace;
use crate::embedded::folder::{DATABASE, DataFolder, IN_FLIGHT};
use crate::embedded::in_flight::InFlightLog;
use crate::embedded::index::MemoryIndex;
use crate::embedded::index::lanes::WindowLimits;
use crate::embedded::index::recent::ListedRange;
use crate::embedded::journal::check_before_open;
use crate::embedded::problems::ProblemList;
use crate::embedded::reserve::DiskReserve;
use crate::embedded::shared::{REPAIR, StoreShared};
use crate::embedded::sql::counts::CountJournal;
use crate::embedded::sql::dedup::DedupStore;
use crate::embedded::sql::documents_step::tables_set_aside;
use crate::embedded::sql::ended::EndedEntries;
use crate::embedded::sql::indexes::renew_document_index;
use crate::embedded::sql::lanes::LaneNumbers;
use crate::embedded::sql::schema::open_writer;
use crate::embedded::sql::strikes::{self, tenant_and_hash};
use crate::embedded::sql::waiting::{list_at_start, make_list_anew};
use crate::embedded::sql::{documents, expiry, ledger_order, marks};
use crate::ids::IdGenerator;

/// The writer, which has everything that is shared, and the thread of the checkpoints.
pub(crate) fn open(
    folder: &DataFolder,
    clock: Arc<dyn Clock>,
    options: StoreOptions,
    reserve: DiskReserve,
) -> StoreResult<(Writer, JoinHandle<()>)> {
    let database = folder.file(DATABASE);
    check_before_open(&database)?;
    let mut conn = open_writer(&database, options.page_cache_kib)?;
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
    let last_id = last_id(&conn, clock.now())?;
    let lanes = LaneNumbers::load(&conn, &mut index, last_id)?;
    clock.start_after(newest_time(&conn, last_id));
    let (problems, now) = (ProblemList::default(), clock.now());
    report_tables_set_aside(&conn, &problems, now)?;
    let counts = CountJournal::load(&conn, &mut index, &problems, now)?;
    load_gone(&conn, &mut index, &problems, now)?;
    strikes::load(&conn, &mut index, &problems, now)?;
    marks::count_crash(&conn, &InFlightLog::read_left(&folder.file(IN_FLIGHT)))?;
    marks::load(&conn, &mut index, &problems, now)?;
    index.oldest.seq = load_pending(&conn, &mut index, last_id, &problems, now)?.min(last_id);
    index.expiry = expiry::load(&conn, last_id)?;
    ledger_order::fill_dead_letters(&conn)?;
    let order_tail = ledger_order::load(&conn, &index, last_id)?;
    let dedup = DedupStore::load(&conn, options.dedup_bucket_keys, now, &problems)?;
    let ids = IdGenerator::above(last_id);
    let in_flight = InFlightLog::begin(&folder.file(IN_FLIGHT), run);
    renew_document_index(&conn)?;
    let documents = (database.clone(), documents::newest(&conn)?);
    let data = database.parent().map(Path::to_owned).unwrap_or_default();
    let disk = DiskSpace::new(data, reserve.bytes(), reserve.watch());
    let shared =
        Arc::new(StoreShared::new(clock, index, ids, in_flight, problems, documents, disk));
    *shared.order_tail() = order_tail;
    let (checkpointer, checkpoints) = Checkpointer::start(
        (&database, folder.database()),
        &mut conn,
        reserve.journal_max(),
        options.journal_bytes_max,
        shared.clone(),
    )?;
    let mut writer = Writer::new(conn, shared, (lanes, dedup, counts), checkpointer, reserve, run);
    let pruned = value::<i64>(&writer.conn, "SELECT value FROM meta WHERE key = 'pruned'", [])?;
    writer.prune_from = pruned.unwrap_or(0) as u64;
    writer.set_listed(ListedRange::all_before(last_id + 1));
    writer.listing.at_once = options.listed_at_once;
    writer.ended = EndedEntries::load(&writer.conn)?;
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

/// The highest id ever given out, also of rows that were pruned since. If some cannot be read, the time
/// stands for them, because ids grow with it.
fn last_id(conn: &Connection, now: Timestamp) -> StoreResult<u64> {
    let mut last = 0;
    for select in [
        "SELECT max(seq) FROM message",
        "SELECT max(seq) FROM delivery",
        "SELECT max(seq) FROM address",
        "SELECT max(value) FROM meta WHERE key = 'last_id'",
    ] {
        let found: StoreResult<Option<Option<i64>>> = value(conn, select, []);
        last = last.max(match found {
            Err(error) if is_local(&error) => order_key_at(now),
            found => found?.flatten().unwrap_or(0) as u64,
        });
    }
    Ok(last)
}

/// The newest time that the store was used at, as far as it is known.
fn newest_time(conn: &Connection, last_id: u64) -> Timestamp {
    let saved = value(conn, "SELECT value FROM meta WHERE key = 'clock'", []);
    let saved: i64 = saved.ok().flatten().unwrap_or(0);
    DeliveryId(from_order_key(last_id, 0)).created_at().max(Timestamp(saved))
}

fn report_tables_set_aside(
    conn: &Connection,
    problems: &ProblemList,
    now: Timestamp,
) -> StoreResult<()> {
    for (table, subject) in tables_set_aside(conn)?.into_iter().zip(0..) {
        let what = format!(
            "some settings or keys of an older version could not be read and are not in force; what is left of them \
             is in the table {table}; set them again, then {REPAIR}"
        );
        problems.report_about("settings_unreadable", subject, now, what);
    }
    Ok(())
}

fn load_tenants(conn: &Connection, index: &mut MemoryIndex) -> StoreResult<()> {
    let select = "SELECT name, counts FROM tenant ORDER BY id";
    let pair = |row: &Row<'_>| Ok((get::<String>(row, 0)?, get::<String>(row, 1)?));
    for (name, counts) in all_rows(conn, select, [], pair)? {
        index.tenants.push(TenantId(name.into()), parse(&counts, "a tenant's counts")?);
    }
    Ok(())
}

fn load_gone(
    conn: &Connection,
    index: &mut MemoryIndex,
    problems: &ProblemList,
    now: Timestamp,
) -> StoreResult<()> {
    let keys = ("gone", "SELECT tenant, hash FROM gone", "tenant, hash");
    from_both_ends(conn, keys, problems, now, |row| {
        let (tenant, hash) = tenant_and_hash(row)?;
        index.set_gone(&tenant, hash, true);
        Ok(())
    })
}

/// Reads a table that may lose a few rows. If a page of it cannot be read, also reads from its end.
pub(crate) fn from_both_ends(
    conn: &Connection,
    (table, select, order): (&str, &str, &str),
    problems: &ProblemList,
    now: Timestamp,
    mut read: impl FnMut(&Row<'_>) -> StoreResult<()>,
) -> StoreResult<()> {
    let Err(error) = all_rows(conn, select, [], &mut read) else { return Ok(()) };
    if !is_local(&error) {
        return Err(error);
    }
    let descending = order.replace(',', " DESC,");
    let rest = format!("{select} ORDER BY {descending} DESC");
    // It ends at the same page.
    let _ = all_rows(conn, &rest, [], read);
    let what = format!("some rows of the table {table} cannot be read ({error}); {REPAIR}");
    problems.report_about("rows_unreadable", order_key_at(now), now, what);
    Ok(())
}

/// Finds where each lane starts and how deep it is, by one pass over the list of waiting deliveries. Makes the
/// list anew if it is damaged. Returns the oldest of them.
fn load_pending(
    conn: &Connection,
    index: &mut MemoryIndex,
    last_id: u64,
    problems: &ProblemList,
    now: Timestamp,
) -> StoreResult<u64> {
    let listed = list_at_start(conn, last_id, problems, now).and_then(|()| read_pending(conn));
    let error = match listed {
        Ok(lanes) => return Ok(load_depths(index, lanes)),
        Err(error) if is_local(&error) => error,
        Err(error) => return Err(error),
    };
    match make_list_anew(conn, last_id, problems, now, &error) {
        Ok(()) => return Ok(load_depths(index, read_pending(conn)?)),
        Err(error) if is_local(&error) => {
            let what = format!("the list of waiting deliveries is damaged ({error}); {REPAIR}");
            problems.report("index_damaged", now, what);
        }
        Err(error) => return Err(error),
    }
    Ok(load_lane_by_lane(conn, index))
}

/// Lane, due time of its first delivery, number of deliveries, oldest delivery.
type PendingLane = (u32, i64, u64, u64);

fn read_pending(conn: &Connection) -> StoreResult<Vec<PendingLane>> {
    let select = "SELECT lane, min(due), count(*), min(seq) FROM waiting GROUP BY lane";
    all_rows(conn, select, [], |row| {
        Ok((get(row, 0)?, get(row, 1)?, unsigned(row, 2)?, unsigned(row, 3)?))
    })
}

fn load_depths(index: &mut MemoryIndex, lanes: Vec<PendingLane>) -> u64 {
    let mut oldest = u64::MAX;
    for (lane, due, waiting, first) in lanes {
        index.lanes.load(lane, (due, 0), Some(waiting));
        oldest = oldest.min(first);
    }
    oldest
}

/// Every lane is loaded, those that can be read with their depth.
fn load_lane_by_lane(conn: &Connection, index: &mut MemoryIndex) -> u64 {
    let select = "SELECT min(due), count(*), min(seq) FROM waiting WHERE lane = ?1 \
                  HAVING count(*) > 0";
    let mut oldest = u64::MAX;
    for lane in 0..index.lane_numbers_end() {
        let found = first_row(conn, select, [lane], |row| {
            Ok((get(row, 0)?, unsigned(row, 1)?, unsigned(row, 2)?))
        });
        match found {
            Ok(None) => {}
            Ok(Some((due, waiting, first))) => {
                index.lanes.load(lane, (due, 0), Some(waiting));
                oldest = oldest.min(first);
            }
            Err(_) => {
                index.lanes.load(lane, (0, 0), None);
                oldest = 0;
            }
        }
    }
    oldest
}

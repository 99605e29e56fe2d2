//! Checks and repairs a data folder that no server uses. A check changes nothing. A repair keeps the old files,
//! saves what can be saved and lists what cannot.

mod rebuild;
mod salvage;
mod stale_page;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use postrider_core::ports::store::{StoreError, StoreResult};
use postrider_core::{DeliveryId, MessageId};
use rusqlite::{Connection, OpenFlags};

use super::folder::{DATABASE, DataFolder, journal_of, shared_memory_of, sync_folder};
use super::journal;
use super::reserve::remove_if_there;
use super::sql::documents_step::tables_set_aside;
use super::sql::schema::open_writer;
use super::sql::statement::{all_rows, get, sql};

/// Findings of one kind that are listed.
const LISTED: usize = 100;
const CACHE_KIB: u32 = 64 << 10;
const ORPHANS: &str = "SELECT count(*) FROM delivery d WHERE NOT EXISTS \
                       (SELECT 1 FROM message m WHERE m.seq = d.message)";

/// The result of a mended journal.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MendedJournal {
    pub frames: usize,
    /// Frames in which one bit was wrong.
    pub corrected: usize,
    /// Frames that are lost.
    pub lost: usize,
    /// Pages whose last content is lost: they have an older one now.
    pub stale_pages: Vec<u32>,
}

/// What a repair did.
#[derive(Debug, Default)]
pub struct RepairReport {
    /// Where the old files are.
    pub kept: PathBuf,
    /// Absent if the journal was good.
    pub journal: Option<MendedJournal>,
    /// Whether the database was written anew.
    pub rebuilt: bool,
    /// Rows of each table that were saved.
    pub saved: Vec<(String, u64)>,
    /// Parts of tables that could not be read.
    pub unreadable: Vec<String>,
    /// Messages of which deliveries are lost, and how many.
    pub lost: Vec<(MessageId, u64)>,
    /// Deliveries whose message is lost. They are deleted.
    pub orphans: Vec<DeliveryId>,
    /// Pending deliveries whose last change is lost: they may have been sent. Their class decides.
    pub in_doubt: Vec<DeliveryId>,
}

impl RepairReport {
    /// Whether everything could be saved.
    pub fn is_complete(&self) -> bool {
        let journal = self.journal.as_ref().is_none_or(|journal| journal.lost == 0);
        journal && self.unreadable.is_empty() && self.lost.is_empty() && self.orphans.is_empty()
    }
}

/// What is wrong; empty if the folder is good.
pub fn check(dir: &Path) -> StoreResult<Vec<String>> {
    let folder = DataFolder::lock_existing(dir)?;
    let database = folder.file(DATABASE);
    if let Err(StoreError::Corrupt { what, .. }) = journal::check_before_open(&database) {
        return Ok(vec![what]);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(&database, flags).map_err(sql)?;
    Ok(findings(&conn))
}

fn findings(conn: &Connection) -> Vec<String> {
    let check = format!("PRAGMA integrity_check({LISTED})");
    let mut found = all_rows(conn, &check, [], |row| get::<String>(row, 0))
        .unwrap_or_else(|error| vec![error.to_string()]);
    found.retain(|line| line != "ok");
    let set_aside = tables_set_aside(conn).unwrap_or_default().into_iter();
    found.extend(set_aside.map(|table| format!("{table} has rows that an upgrade could not read")));
    match conn.query_row(ORPHANS, [], |row| row.get::<_, i64>(0)) {
        Ok(0) => {}
        Ok(orphans) => found.push(format!("{orphans} deliveries have no message")),
        Err(error) => found.push(sql(error).to_string()),
    }
    found
}

/// Repairs a folder. Does nothing to a good one.
pub fn repair(dir: &Path) -> StoreResult<Option<RepairReport>> {
    let folder = DataFolder::lock_existing(dir)?;
    let database = folder.file(DATABASE);
    let journal_damaged = journal::damage_of(&database)?.is_some();
    if !journal_damaged {
        let conn = open_old(&database)?;
        if findings(&conn).is_empty() {
            return Ok(None);
        }
    }
    let mut report = RepairReport { kept: keep(dir, &database)?, ..RepairReport::default() };
    if journal_damaged {
        report.journal = Some(journal::mend_journal(&database)?);
    }
    let stale = report.journal.as_ref().map(|journal| journal.stale_pages.clone());
    let stale = stale.unwrap_or_default();
    let old = open_old(&database)?;
    if !stale.is_empty() || !findings(&old).is_empty() {
        report.rebuilt = true;
        let new = database.with_extension("new.db");
        remove_database(&new)?;
        rebuild::rebuild(&old, &database, &new, &stale, &mut report)?;
        drop(old);
        replace(&database, &new)?;
    }
    Ok(Some(report))
}

/// Opens a database and moves its journal into it, as far as that is possible.
fn open_old(database: &Path) -> StoreResult<Connection> {
    let conn = open_writer(database, CACHE_KIB)?;
    let _: Result<(), _> = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    Ok(conn)
}

/// Copies the files into a folder of their own.
fn keep(dir: &Path, database: &Path) -> StoreResult<PathBuf> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let kept = dir.join(format!("damaged-{}", since.as_secs()));
    let error = |error| StoreError::io("cannot keep a copy of the old files", error);
    fs::create_dir_all(&kept).map_err(error)?;
    for from in [database.to_owned(), journal_of(database), shared_memory_of(database)] {
        if let Some(name) = from.file_name().filter(|_| from.is_file()) {
            fs::copy(&from, kept.join(name)).map_err(error)?;
        }
    }
    Ok(kept)
}

/// Puts the new database in the place of the old one, of which there is a copy.
fn replace(database: &Path, new: &Path) -> StoreResult<()> {
    let error = |error| StoreError::io("cannot replace the database", error);
    for file in [journal_of(database), shared_memory_of(database)] {
        remove_if_there(&file).map_err(error)?;
    }
    fs::rename(new, database).map_err(error)?;
    database.parent().map_or(Ok(()), sync_folder).map_err(error)?;
    remove_database(new)
}

fn remove_database(database: &Path) -> StoreResult<()> {
    let error = |error| StoreError::io("cannot delete an unfinished repair", error);
    for file in [database.to_owned(), journal_of(database), shared_memory_of(database)] {
        remove_if_there(&file).map_err(error)?;
    }
    Ok(())
}

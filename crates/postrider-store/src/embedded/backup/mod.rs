//! Copies a data folder while a server uses it, or while none does. The copy is the store as it was at one instant.
//! Changes nothing in the store.

mod manifest;
mod restore;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_core::ports::store::{StoreError, StoreResult};
use postrider_core::{Clock as _, State, Timestamp};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

pub use manifest::BackupManifest;
pub use restore::{RestoreReport, restore};

use super::folder::{
    BACKUP_TIME, DATABASE, DataFolder, LOCK, io_error, journal_of, make_private_folder,
    private_file, sync_folder,
};
use super::folder_report::free_bytes;
use super::journal;
use super::reserve::remove_if_there;
use super::sql::schema::{LAYOUT, open_reader, version};
use super::sql::statement::{all_rows, get, sql, value};
use crate::SystemClock;

const CACHE_KIB: u32 = 8 << 10;
/// Pages that are copied between two reports of progress: 16 MiB.
const STEP_PAGES: i32 = 4096;
const PAGE: u64 = 4096;
/// The first layout in which sums may lack changes.
const COUNT_CHANGES_SINCE: u32 = 6;
/// The copy until it is complete.
const UNFINISHED: &str = "postrider.db.new";

/// How much of a copy is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    pub bytes: u64,
    pub bytes_total: u64,
}

/// Copies the store in `data` to the folder `to`, which may have an older backup: that is replaced once the new one is
/// complete.
pub fn backup(
    data: &Path,
    to: &Path,
    mut progress: impl FnMut(CopyProgress),
) -> StoreResult<BackupManifest> {
    check_source(data)?;
    check_destination(data, to)?;
    make_private_folder(to).map_err(|e| io_error("make", to, e))?;
    let copy = to.join(UNFINISHED);
    let done = copy_snapshot(&data.join(DATABASE), &copy, &mut progress)
        .and_then(|taken| finish(taken, &copy, to));
    if done.is_err() {
        let _ = remove_if_there(&copy);
    }
    let manifest = done?;
    note_time(data, manifest.taken_at);
    Ok(manifest)
}

/// Where a store that no server uses has a damaged journal, SQLite would leave out a part of it without a word.
fn check_source(data: &Path) -> StoreResult<()> {
    match DataFolder::lock_existing(data) {
        Ok(folder) => journal::check_before_open(&folder.file(DATABASE)),
        // A server uses it. It has checked its journal.
        Err(StoreError::Locked { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The folder of a backup has nothing but a backup, so that no other file is lost or taken for a part of it.
fn check_destination(data: &Path, to: &Path) -> StoreResult<()> {
    let Ok(entries) = fs::read_dir(to) else { return Ok(()) };
    let refuse = |why: &str| {
        let what = format!("{} {why}", to.display());
        Err(StoreError::Unusable { what })
    };
    let is_same = fs::canonicalize(data).ok() == fs::canonicalize(to).ok();
    if is_same || to.join(LOCK).exists() {
        return refuse("is a data folder; choose another folder for the backup");
    }
    let known = [DATABASE, UNFINISHED, manifest::FILE].map(std::ffi::OsStr::new);
    for entry in entries {
        let name = entry.map_err(|e| io_error("read", to, e))?.file_name();
        if !known.contains(&name.as_os_str()) {
            return refuse("has other files; choose a new folder, or one with an older backup");
        }
    }
    Ok(())
}

/// What the instant of the copy was like.
struct SnapshotFacts {
    taken_at: Timestamp,
    layout: u32,
    messages: u64,
    pending: u64,
}

/// Copies the database in one read transaction: every page as it was when that began. Nobody waits for it.
fn copy_snapshot(
    database: &Path,
    copy: &Path,
    progress: &mut dyn FnMut(CopyProgress),
) -> StoreResult<SnapshotFacts> {
    let source = open_reader(database, CACHE_KIB)?;
    // Else the last connection to close would empty the journal of a server that is stopped.
    source.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sql)?;
    let taken_at = SystemClock.now();
    source.execute_batch("BEGIN").map_err(sql)?;
    let layout = u32::try_from(version(&source)?).unwrap_or(u32::MAX);
    if layout > LAYOUT {
        return Err(StoreError::NewerLayout { found: layout, known: LAYOUT });
    }
    let (messages, pending) = counts(&source, layout)?;
    let pages: i64 =
        source.pragma_query_value(None, "page_count", |row| row.get(0)).map_err(sql)?;
    check_room(copy, pages.unsigned_abs() * PAGE)?;
    remove_if_there(copy).map_err(|e| io_error("replace", copy, e))?;
    drop(private_file(copy).map_err(|e| io_error("make", copy, e))?);
    let mut target = Connection::open(copy).map_err(sql)?;
    // It is synced as a whole at the end, and thrown away if it is not complete.
    let quick = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF";
    target.execute_batch(quick).map_err(sql)?;
    let copying = Backup::new(&source, &mut target).map_err(sql)?;
    loop {
        let step = copying.step(STEP_PAGES).map_err(sql)?;
        let now = copying.progress();
        let bytes = |pages: i32| u64::try_from(pages).unwrap_or(0) * PAGE;
        let (total, left) = (bytes(now.pagecount), bytes(now.remaining));
        progress(CopyProgress { bytes: total.saturating_sub(left), bytes_total: total });
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    drop(copying);
    target.close().map_err(|(_, error)| sql(error))?;
    Ok(SnapshotFacts { taken_at, layout, messages, pending })
}

/// Messages and pending deliveries, of all tenants.
fn counts(conn: &Connection, layout: u32) -> StoreResult<(u64, u64)> {
    let sum = |paths: &[String]| -> StoreResult<i64> {
        let all: Vec<_> = paths
            .iter()
            .map(|path| format!("coalesce(json_extract(counts, '{path}'), 0)"))
            .collect();
        let select = format!("SELECT coalesce(sum({}), 0) FROM tenant", all.join(" + "));
        Ok(value(conn, &select, [])?.unwrap_or(0))
    };
    // What is not in the sums of the tenants yet.
    let sum_of_changes = |paths: &[String]| -> StoreResult<i64> {
        if layout < COUNT_CHANGES_SINCE {
            return Ok(0);
        }
        let all: Vec<_> = paths
            .iter()
            .map(|path| format!("coalesce(json_extract(e.value, '$[1].{path}'), 0)"))
            .collect();
        let select = format!(
            "SELECT coalesce(sum({}), 0) FROM count_change c, json_each(c.changes) e \
             JOIN tenant t ON t.id = json_extract(e.value, '$[0]') WHERE c.id > t.counted",
            all.join(" + ")
        );
        Ok(value(conn, &select, [])?.unwrap_or(0))
    };
    let pending = || State::ALL.iter().filter(|state| state.is_pending());
    let messages = sum(&["$.messages".to_owned()])? + sum_of_changes(&["m".to_owned()])?;
    let by_name: Vec<_> = pending().map(|state| format!("$.states.{state}")).collect();
    let by_code: Vec<_> = pending().map(|state| format!("s[{}]", state.code())).collect();
    let pending = sum(&by_name)? + sum_of_changes(&by_code)?;
    Ok((messages.unsigned_abs(), pending.unsigned_abs()))
}

/// Checks the copy, makes it durable and puts it in its place.
fn finish(taken: SnapshotFacts, copy: &Path, to: &Path) -> StoreResult<BackupManifest> {
    check_database(copy)?;
    File::open(copy).and_then(|file| file.sync_all()).map_err(|e| io_error("sync", copy, e))?;
    let manifest = BackupManifest {
        format: manifest::FORMAT,
        taken_at: taken.taken_at,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        layout: taken.layout,
        messages: taken.messages,
        pending: taken.pending,
        bytes: fs::metadata(copy).map_err(|e| io_error("read", copy, e))?.len(),
        sha256: manifest::digest_of_file(copy)?,
    };
    // A database without a manifest is usable, one with the manifest of another is not.
    let listed = to.join(manifest::FILE);
    remove_if_there(&listed).map_err(|e| io_error("replace", &listed, e))?;
    let database = to.join(DATABASE);
    fs::rename(copy, &database).map_err(|e| io_error("replace", &database, e))?;
    sync_folder(to).map_err(|e| io_error("sync", to, e))?;
    manifest.write(to)?;
    Ok(manifest)
}

/// SQLite's own check, which reads everything.
fn check_database(database: &Path) -> StoreResult<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let name = format!("file:{}?immutable=1", uri_path(database));
    let conn =
        Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_URI).map_err(sql)?;
    let found = all_rows(&conn, "PRAGMA quick_check(1)", [], |row| get::<String>(row, 0))?;
    match found.first().map(String::as_str) {
        Some("ok") => Ok(()),
        found => Err(StoreError::Corrupt {
            what: format!("{}: {}", database.display(), found.unwrap_or("the check says nothing")),
            cause: None,
        }),
    }
}

/// A path within a URI: `%`, `?` and `#` have a meaning there.
fn uri_path(path: &Path) -> String {
    path.display().to_string().replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

fn check_room(file: &Path, needed: u64) -> StoreResult<()> {
    let Some(free) = file.parent().and_then(free_bytes).filter(|free| *free < needed) else {
        return Ok(());
    };
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let what = format!(
        "{} needs {} MiB, and the disk has {} MiB free",
        file.display(),
        mib(needed),
        mib(free)
    );
    Err(StoreError::Full { what, cause: None })
}

/// Lets a server of this folder say when the last backup was taken.
fn note_time(data: &Path, at: Timestamp) {
    let file: PathBuf = data.join(BACKUP_TIME);
    let write = || {
        drop(private_file(&file)?);
        fs::write(&file, at.0.to_string())
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "the time of the backup could not be noted in the data folder");
    }
}

/// When the last backup of a data folder was taken, if there was one.
pub(crate) fn last_backup(database: &Path) -> Option<Timestamp> {
    let text = fs::read_to_string(database.with_file_name(BACKUP_TIME)).ok()?;
    text.trim().parse().ok().map(Timestamp)
}

/// Whether SQLite left something in a journal.
fn has_journal(database: &Path) -> bool {
    journal_of(database).metadata().is_ok_and(|meta| meta.len() > 0)
}

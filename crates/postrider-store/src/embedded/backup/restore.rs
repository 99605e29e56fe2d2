//! Makes a data folder from a backup. Everything that was pending in it is held, because it may have been sent since.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use postrider_core::Timestamp;
use postrider_core::ports::store::{
    HeldDeliveries as _, Ledger as _, Store as _, StoreError, StoreResult,
};

use super::manifest::{BackupManifest, copy_with_digest};
use super::{CopyProgress, check_database, check_room, has_journal};
use crate::SteadyClock;
use crate::embedded::folder::{
    DATABASE, io_error, journal_of, make_private_folder, private_file, sync_folder,
};
use crate::embedded::folder_report::layout;
use crate::embedded::sql::schema::LAYOUT;
use crate::embedded::{EmbeddedStore, StoreOptions, journal};

/// Where the new store is until it is complete, in the new data folder.
const UNFINISHED: &str = "restoring";

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// When the backup was taken; absent if it has no manifest.
    pub taken_at: Option<Timestamp>,
    pub messages: u64,
    /// Deliveries that wait until somebody releases them.
    pub held: u64,
}

/// Restores the backup in `from` to the folder `data`, which is new or empty. `from` may also be a copy that another
/// program made, such as Litestream. A restore that was interrupted begins anew.
pub async fn restore(
    from: &Path,
    data: &Path,
    mut progress: impl FnMut(CopyProgress),
) -> StoreResult<RestoreReport> {
    let manifest = check_backup(from)?;
    check_destination(data)?;
    let work = data.join(UNFINISHED);
    if work.exists() {
        fs::remove_dir_all(&work).map_err(|e| io_error("delete", &work, e))?;
    }
    make_private_folder(&work).map_err(|e| io_error("make", &work, e))?;
    let done = restore_in(from, data, &work, manifest.as_ref(), &mut progress).await;
    let _ = fs::remove_dir_all(&work);
    done
}

async fn restore_in(
    from: &Path,
    data: &Path,
    work: &Path,
    manifest: Option<&BackupManifest>,
    progress: &mut dyn FnMut(CopyProgress),
) -> StoreResult<RestoreReport> {
    copy(from, work, manifest, progress)?;
    // No reserve: the folder is not the final one.
    let options = StoreOptions { reserve_bytes: 0, ..StoreOptions::default() };
    let store = EmbeddedStore::open(work, Arc::new(SteadyClock::of_system()), options)?;
    store.hold_pending().await?;
    let counts = store.counts(None).await?;
    store.close().await;
    drop(store);
    put_in_place(work, data)?;
    let taken_at = manifest.map(|manifest| manifest.taken_at);
    Ok(RestoreReport { taken_at, messages: counts.messages, held: counts.held })
}

fn check_backup(from: &Path) -> StoreResult<Option<BackupManifest>> {
    let database = from.join(DATABASE);
    if !database.is_file() {
        let missing = io::Error::other(format!("it has no file {DATABASE}"));
        return Err(io_error("find a backup in", from, missing));
    }
    let manifest = BackupManifest::read(from)?;
    let found = manifest.as_ref().map(|manifest| manifest.layout).or_else(|| layout(&database));
    match found {
        Some(found) if found > LAYOUT => Err(StoreError::NewerLayout { found, known: LAYOUT }),
        _ => Ok(manifest),
    }
}

/// A file that is already there would be lost, or would become a part of the store.
fn check_destination(data: &Path) -> StoreResult<()> {
    let Ok(entries) = fs::read_dir(data) else { return Ok(()) };
    for entry in entries {
        let name = entry.map_err(|e| io_error("read", data, e))?.file_name();
        if name != UNFINISHED && name != "lost+found" {
            let what = format!(
                "{} is not empty (it has {}); restore into a new folder, or move the old one away first",
                data.display(),
                name.display()
            );
            return Err(StoreError::Unusable { what });
        }
    }
    Ok(())
}

/// Copies the database, and the journal beside it if another program made the copy.
fn copy(
    from: &Path,
    work: &Path,
    manifest: Option<&BackupManifest>,
    progress: &mut dyn FnMut(CopyProgress),
) -> StoreResult<()> {
    let (old, new) = (from.join(DATABASE), work.join(DATABASE));
    let total = fs::metadata(&old).map_err(|e| io_error("read", &old, e))?.len();
    check_room(&new, total)?;
    let sha256 = copy_file(&old, &new, &mut |bytes| {
        progress(CopyProgress { bytes, bytes_total: total });
    })?;
    if let Some(manifest) = manifest {
        if sha256 != manifest.sha256 {
            let what = format!(
                "{} is not the file that was backed up: it has {total} bytes, and its checksum should be {} but is \
                 {sha256}; use another backup",
                old.display(),
                manifest.sha256
            );
            return Err(StoreError::Corrupt { what, cause: None });
        }
        return Ok(());
    }
    if has_journal(&old) {
        copy_file(&journal_of(&old), &journal_of(&new), &mut |_| ())?;
        return journal::check_before_open(&new);
    }
    check_database(&new)
}

fn copy_file(from: &Path, to: &Path, copied: &mut dyn FnMut(u64)) -> StoreResult<String> {
    let mut file = private_file(to).map_err(|e| io_error("make", to, e))?;
    let sha256 = copy_with_digest(from, &mut file, copied).map_err(|e| io_error("write", to, e))?;
    file.sync_all().map_err(|e| io_error("sync", to, e))?;
    Ok(sha256)
}

/// The folder is a data folder once the database has its name, which comes last.
fn put_in_place(work: &Path, data: &Path) -> StoreResult<()> {
    let (old, new) = (work.join(DATABASE), data.join(DATABASE));
    if has_journal(&old) {
        let (old, new) = (journal_of(&old), journal_of(&new));
        fs::rename(&old, &new).map_err(|e| io_error("rename", &old, e))?;
        sync_folder(data).map_err(|e| io_error("sync", data, e))?;
    }
    fs::rename(&old, &new).map_err(|e| io_error("rename", &old, e))?;
    sync_folder(data).map_err(|e| io_error("sync", data, e))
}

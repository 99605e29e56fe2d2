//! What can be said about a data folder from outside. Does not open the database, and makes, locks and
//! changes nothing, so that a running server is not disturbed.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use postrider_core::ports::store::StoreError;

use super::folder;
use super::journal;
use super::sql::schema;

/// The state of a data folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderReport {
    pub exists: bool,
    /// Permissions such as `0o700`.
    pub mode: Option<u32>,
    /// Whether the folder is writable, or the nearest existing one above it.
    pub writable: bool,
    pub free_bytes: Option<u64>,
    /// The layout of the store in it.
    pub layout: Option<u32>,
    /// The newest layout that this program knows.
    pub layout_known: u32,
    /// Why the journal cannot be taken over. Not looked at while a server uses the folder.
    pub journal_damage: Option<String>,
}

impl FolderReport {
    pub fn of(dir: &Path) -> Self {
        let exists = std::fs::metadata(dir).is_ok_and(|found| found.is_dir());
        let nearest = nearest(dir);
        Self {
            exists,
            mode: if exists { mode(dir) } else { None },
            writable: nearest.is_some_and(is_writable),
            free_bytes: nearest.and_then(free_bytes),
            layout: layout(&dir.join(folder::DATABASE)),
            layout_known: schema::LAYOUT,
            journal_damage: journal_damage(dir),
        }
    }
}

/// The folder itself, or the nearest existing one above it.
fn nearest(dir: &Path) -> Option<&Path> {
    let named = |path: &&Path| path.as_os_str().is_empty() || path.exists();
    let found = dir.ancestors().find(named)?;
    Some(if found.as_os_str().is_empty() { Path::new(".") } else { found })
}

/// SQLite has the layout (`user_version`) in bytes 60 to 63 of its header. The header of a new store may
/// lack it, because it is still in the journal.
pub(crate) fn layout(database: &Path) -> Option<u32> {
    let mut header = [0; 64];
    File::open(database).ok()?.read_exact(&mut header).ok()?;
    let number = header.last_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
    number.filter(|layout| *layout > 0)
}

fn journal_damage(dir: &Path) -> Option<String> {
    if is_in_use(&dir.join(folder::LOCK)) {
        return None;
    }
    match journal::check_before_open(&dir.join(folder::DATABASE)) {
        Err(StoreError::Corrupt { what, .. }) => Some(what),
        _ => None,
    }
}

/// Whether a process holds the lock, as far as the system tells without taking it.
fn is_in_use(lock: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(inode) = lock.metadata().map(|meta| format!(":{} ", meta.ino())) else { return false };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().any(|line| line.contains("FLOCK") && line.contains(&inode))
}

fn mode(dir: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    Some(std::fs::metadata(dir).ok()?.permissions().mode() & 0o777)
}

fn is_writable(dir: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

pub(crate) fn free_bytes(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::conformance::WorkingStore;
    use crate::{StoreOptions, SystemClock};

    #[tokio::test]
    async fn a_report_neither_makes_nor_opens_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        let before = FolderReport::of(&dir);
        assert!(!before.exists && before.writable && before.layout.is_none(), "{before:?}");
        assert!(!dir.exists());
        let store =
            WorkingStore::open(&dir, Arc::new(SystemClock), StoreOptions::default()).unwrap();
        assert!(is_in_use(&dir.join(folder::LOCK)));
        store.close().await;
        assert!(!is_in_use(&dir.join(folder::LOCK)));
        let after = FolderReport::of(&dir);
        assert_eq!((after.exists, after.layout), (true, Some(after.layout_known)), "{after:?}");
        assert_eq!(after.mode, Some(0o700));
        assert!(after.free_bytes.is_some_and(|free| free > 0));
    }
}

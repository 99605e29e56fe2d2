//! What can be told about a data folder from outside: nothing is opened as a database, made, locked or
//! changed, so that a running server does not notice.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::{folder, schema};

/// A data folder as it lies there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    pub exists: bool,
    /// Rights, where the system knows them: `0o700`.
    pub mode: Option<u32>,
    /// Of the folder, or of the next one above that exists.
    pub writable: bool,
    pub free_bytes: Option<u64>,
    /// The layout of the store in it.
    pub layout: Option<u32>,
    /// The newest layout that this program knows.
    pub layout_known: u32,
}

impl Look {
    pub fn at(dir: &Path) -> Self {
        let there = std::fs::metadata(dir).is_ok_and(|found| found.is_dir());
        let nearest = nearest(dir);
        Self {
            exists: there,
            mode: if there { mode(dir) } else { None },
            writable: nearest.is_some_and(is_writable),
            free_bytes: nearest.and_then(free_bytes),
            layout: layout(&folder::database_in(dir)),
            layout_known: schema::LAYOUT,
        }
    }
}

/// The folder itself, or the one above it that it would be made in.
fn nearest(dir: &Path) -> Option<&Path> {
    let named = |path: &&Path| path.as_os_str().is_empty() || path.exists();
    let found = dir.ancestors().find(named)?;
    Some(if found.as_os_str().is_empty() { Path::new(".") } else { found })
}

/// SQLite keeps the number in its header, in four bytes from the sixtieth on. A new store has it only
/// in its log at first: then it says nothing.
fn layout(database: &Path) -> Option<u32> {
    let mut header = [0; 64];
    File::open(database).ok()?.read_exact(&mut header).ok()?;
    let number = header.last_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
    number.filter(|layout| *layout > 0)
}

#[cfg(unix)]
fn mode(dir: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    Some(std::fs::metadata(dir).ok()?.permissions().mode() & 0o777)
}

#[cfg(unix)]
fn is_writable(dir: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

#[cfg(unix)]
fn free_bytes(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

#[cfg(not(unix))]
fn mode(_: &Path) -> Option<u32> {
    None
}

#[cfg(not(unix))]
fn is_writable(_: &Path) -> bool {
    true
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{EmbeddedStore, Options, SystemClock};

    #[tokio::test]
    async fn a_folder_is_looked_at_without_being_made_or_opened() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        let before = Look::at(&dir);
        assert!(!before.exists && before.writable && before.layout.is_none(), "{before:?}");
        assert!(!dir.exists());
        let store = EmbeddedStore::open(&dir, Arc::new(SystemClock), Options::default()).unwrap();
        store.close().await;
        let after = Look::at(&dir);
        assert_eq!((after.exists, after.layout), (true, Some(after.layout_known)), "{after:?}");
        #[cfg(unix)]
        assert_eq!(after.mode, Some(0o700));
        assert!(after.free_bytes.is_some_and(|free| free > 0));
    }
}

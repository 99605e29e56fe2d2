//! The data folder: private, and locked by one process at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider_core::ports::store::{StoreError, StoreResult};

pub(crate) const DATABASE: &str = "postrider.db";
pub(crate) const RESERVE: &str = "postrider.reserve";
pub(crate) const IN_FLIGHT: &str = "postrider.flight";
pub(crate) const LOCK: &str = "postrider.lock";
/// The time of the last backup, as a number of milliseconds.
pub(crate) const BACKUP_TIME: &str = "postrider.backup";

/// A folder that is locked until this is dropped: by a file for this purpose, which anybody can delete, and by the
/// database itself. SQLite's own locks are of another kind. They would be lost if the database was closed here while
/// SQLite has it open, so this must be dropped last.
pub(crate) struct DataFolder {
    path: PathBuf,
    _lock: File,
    database: Arc<File>,
}

impl DataFolder {
    pub(crate) fn lock(path: &Path) -> StoreResult<Self> {
        make_private_folder(path).map_err(|e| io_error("make", path, e))?;
        tighten(path)?;
        let lock_path = path.join(LOCK);
        let lock = private_file(&lock_path).map_err(|e| io_error("open", &lock_path, e))?;
        try_lock(&lock, &lock_path, path)?;
        // SQLite gives its other files the permissions of the database, so the database is made first.
        let database_path = path.join(DATABASE);
        let database =
            private_file(&database_path).map_err(|e| io_error("open", &database_path, e))?;
        try_lock(&database, &database_path, path)?;
        sync_folder(path).map_err(|e| io_error("sync", path, e))?;
        Ok(Self { path: path.to_owned(), _lock: lock, database: Arc::new(database) })
    }

    /// As [`DataFolder::lock`], for a folder that has a store.
    pub(crate) fn lock_existing(path: &Path) -> StoreResult<Self> {
        if !path.join(DATABASE).is_file() {
            let why = match path.is_dir() {
                true => format!("it has no file {DATABASE}; name the right folder with --data"),
                false => "there is no such folder; name the right one with --data".to_owned(),
            };
            return Err(io_error("find a store in", path, io::Error::other(why)));
        }
        Self::lock(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The database, for a sync. Whoever keeps it drops it after SQLite's connections.
    pub(crate) fn database(&self) -> Arc<File> {
        self.database.clone()
    }
}

fn try_lock(file: &File, name: &Path, folder: &Path) -> StoreResult<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
            what: format!(
                "{} is in use by a running server; stop it, or choose another folder with --data",
                folder.display()
            ),
        }),
        Err(TryLockError::Error(e)) => Err(io_error("lock", name, e)),
    }
}

/// SQLite's journal, the write-ahead log.
pub(crate) fn journal_of(database: &Path) -> PathBuf {
    with_suffix(database, "-wal")
}

/// SQLite's index of the journal, which its processes share.
pub(crate) fn shared_memory_of(database: &Path) -> PathBuf {
    with_suffix(database, "-shm")
}

fn with_suffix(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn io_error(verb: &str, path: &Path, error: io::Error) -> StoreError {
    let what = format!("cannot {verb} {}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::full(&what, error),
        _ => StoreError::io(&what, error),
    }
}

pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let missing: Vec<_> = path.ancestors().take_while(|folder| !is_there(folder)).collect();
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_folder)
}

/// Takes the rights of others to enter the folder away. Refuses a folder that has something else in it, because that
/// may be meant for others.
fn tighten(path: &Path) -> StoreResult<()> {
    let mode = fs::metadata(path).map_err(|e| io_error("look at", path, e))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let refused = |why: &str| StoreError::Unusable {
        what: format!(
            "other users can enter the data folder {} (mode {:o}), {why}; run `chmod 700` on it, or choose another \
             folder with --data",
            path.display(),
            mode & 0o7777
        ),
    };
    if !path.join(DATABASE).is_file() && !is_empty(path) {
        return Err(refused("and it has files that are not of a store"));
    }
    match fs::set_permissions(path, fs::Permissions::from_mode(0o700)) {
        Ok(()) => {
            tracing::warn!(folder = %path.display(), "other users could enter the data folder; now only its owner can");
            Ok(())
        }
        // A mounted folder that belongs to a group of this user, for example.
        Err(error) if mode & 0o007 == 0 => {
            tracing::warn!(folder = %path.display(), %error, "a group can enter the data folder");
            Ok(())
        }
        Err(error) => Err(refused(&format!("and that cannot be changed: {error}"))),
    }
}

/// Files of ours, and the folder of a file system for lost files, do not count.
fn is_empty(path: &Path) -> bool {
    let is_other = |entry: io::Result<fs::DirEntry>| {
        let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
        name != "lost+found" && !name.as_encoded_bytes().starts_with(b"postrider.")
    };
    fs::read_dir(path).is_ok_and(|mut entries| !entries.any(is_other))
}

/// The current folder has an empty name.
fn is_there(folder: &Path) -> bool {
    folder.as_os_str().is_empty() || folder.exists()
}

/// Makes new names in a folder durable: the sync of a file does not.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}

pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

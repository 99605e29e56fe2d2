//! Disk space that is kept back: a file of real blocks, deleted when a decision could not be written
//! otherwise. While it is missing, no new work is accepted, so that its space serves what was accepted.
//! Does not limit the journal, which has to stay smaller than the reserve ([`DiskReserve::journal_max`]).

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider_core::ports::store::StoreError;

use crate::embedded::folder::private_file;

/// The pause between two tries to restore the reserve.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// The same if free pages of the database stand in for the rest of the file.
const RETRY_WHOLE: Duration = Duration::from_secs(60);
/// The reserve takes at most this part of a small disk.
const PART_OF_DISK: u64 = 8;

pub(crate) struct DiskReserve {
    path: PathBuf,
    bytes: u64,
    /// Shared with those who ask whether new work is accepted.
    whole: Arc<AtomicBool>,
    /// Absent before the first try.
    next_try: Option<Instant>,
    /// False if free pages of the database stand in for a part of the file.
    has_file: bool,
}

impl DiskReserve {
    /// Changes nothing on disk: the file of an earlier process stays and can be given back.
    pub(crate) fn at(path: PathBuf, bytes: u64) -> Self {
        let bytes = size_of_disk(&path).map_or(bytes, |disk| bytes.min(disk / PART_OF_DISK));
        Self { path, bytes, whole: Arc::default(), next_try: None, has_file: false }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Relaxed)
    }

    pub(crate) fn was_tried(&self) -> bool {
        self.next_try.is_some()
    }

    /// Whether there was no room for the whole file.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.was_tried() && !self.has_file
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn watch(&self) -> Arc<AtomicBool> {
        self.whole.clone()
    }

    /// How large the journal may grow so that the reserve suffices to checkpoint it. One transaction may
    /// exceed it.
    pub(crate) fn journal_max(&self) -> Option<u64> {
        (self.bytes > 0).then_some(self.bytes / 4 * 3)
    }

    /// The answer to new work while the reserve is missing.
    pub(crate) fn refusal() -> StoreError {
        StoreError::Full {
            what: "the disk is full, what is left is kept for finishing what was accepted; \
                   free space on the disk of the data folder, new work is then taken again by itself"
                .to_owned(),
            cause: None,
        }
    }

    /// Deletes the file, so that its space can be used. False if there was none.
    pub(crate) fn give_back(&mut self) -> bool {
        self.whole.store(false, Ordering::Relaxed);
        self.has_file = false;
        self.next_try = Some(Instant::now() + RETRY);
        let held = self.path.metadata().map_or(0, |meta| meta.len());
        match fs::remove_file(&self.path) {
            Ok(()) => held > 0,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                tracing::error!(%error, "the reserve on the disk cannot be deleted");
                false
            }
        }
    }

    /// Whether it is time to call [`DiskReserve::make_whole`] again.
    pub(crate) fn is_due(&self) -> bool {
        !(self.is_whole() && self.has_file) && self.next_try.is_none_or(|at| Instant::now() >= at)
    }

    /// `free` bytes are free within the database. If there is no room for the whole file, they stand in for it, and
    /// the file is only as large as the journal may become.
    pub(crate) fn make_whole(&mut self, free: u64) -> io::Result<()> {
        let made = self.make_file(self.bytes);
        self.has_file = made.is_ok();
        let made = match made {
            Err(_) if free >= self.bytes => self.make_file(self.journal_max().unwrap_or(0)),
            made => made,
        };
        let pause = if made.is_ok() { RETRY_WHOLE } else { RETRY };
        self.next_try = Some(Instant::now() + pause);
        self.whole.store(made.is_ok(), Ordering::Relaxed);
        made
    }

    /// No new work if free pages stand in for the file and have become too few.
    pub(crate) fn check_free(&mut self, free: impl FnOnce() -> u64) {
        if self.is_whole() && !self.has_file && free() < self.bytes {
            self.whole.store(false, Ordering::Relaxed);
            self.next_try = Some(Instant::now() + RETRY);
        }
    }

    fn make_file(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return remove_if_there(&self.path);
        }
        if self.is_there(bytes) {
            return Ok(());
        }
        // A part of the reserve helps nobody, so it is deleted.
        remove_if_there(&self.path)?;
        private_file(&self.path)
            .and_then(|file| allocate(&file, bytes))
            .inspect_err(|_| drop(remove_if_there(&self.path)))
    }

    fn is_there(&self, bytes: u64) -> bool {
        let Ok(meta) = self.path.metadata() else { return false };
        meta.len() == bytes && has_blocks(&meta)
    }
}

pub(crate) fn remove_if_there(path: &std::path::Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn has_blocks(meta: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    meta.blocks() * 512 >= meta.len()
}

fn size_of_disk(path: &std::path::Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path.parent()?).ok()?;
    disk.f_blocks.checked_mul(disk.f_frsize)
}

/// Asks the file system for the blocks; if it does not offer that, writes them.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            other => return Ok(other?),
        }
    }
    write_out(file, bytes)
}

/// Writes no zeros, because the file system may store those as a hole.
fn write_out(mut file: &File, bytes: u64) -> io::Result<()> {
    let block = [0xA5; 64 << 10];
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        io::Write::write_all(&mut file, &block[..part])?;
        left -= part as u64;
    }
    // Some file systems allocate only now.
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_takes_real_blocks_and_gives_them_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        let mut reserve = DiskReserve::at(path.clone(), 1 << 20);
        assert!(!reserve.is_whole());
        reserve.make_whole(0).unwrap();
        assert!(reserve.is_whole());
        let meta = path.metadata().unwrap();
        assert!(meta.len() == 1 << 20 && has_blocks(&meta));
        assert!(reserve.give_back());
        assert!(!path.exists() && !reserve.is_whole() && !reserve.is_due());
        assert!(!reserve.give_back(), "there is no reserve any more");
    }

    #[test]
    fn a_sparse_file_is_replaced_by_real_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        private_file(&path).unwrap().set_len(1 << 20).unwrap();
        DiskReserve::at(path.clone(), 1 << 20).make_whole(0).unwrap();
        assert!(has_blocks(&path.metadata().unwrap()));
    }

    #[test]
    fn written_blocks_are_real_too() {
        let file = tempfile::tempfile().unwrap();
        write_out(&file, 100_000).unwrap();
        let meta = file.metadata().unwrap();
        assert!(meta.len() == 100_000 && has_blocks(&meta));
    }
}

//! Room on the disk that is kept back: a file of real blocks which is given up when a decision
//! could not be written otherwise. As long as it is not whole, nothing new is taken in, so that
//! what it gave is there for finishing what was promised. Does not look after the journal; that
//! has to stay smaller than the reserve for the reserve to be enough ([`Reserve::journal_max`]).

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider_core::ports::store::StoreError;

use super::folder::private_file;

/// How often it is tried to make the reserve whole again.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// A small disk gives no more than this part of itself.
const PART_OF_DISK: u64 = 8;

pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
    /// Shared with whoever wants to know whether new work is taken.
    whole: Arc<AtomicBool>,
    /// Absent before the first try.
    next_try: Option<Instant>,
}

impl Reserve {
    /// Nothing is touched yet: what an earlier run left is there, and can be given back.
    pub(super) fn at(path: PathBuf, bytes: u64) -> Self {
        let bytes = size_of_disk(&path).map_or(bytes, |disk| bytes.min(disk / PART_OF_DISK));
        Self { path, bytes, whole: Arc::default(), next_try: None }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Relaxed)
    }

    pub(super) fn was_tried(&self) -> bool {
        self.next_try.is_some()
    }

    pub(super) fn watch(&self) -> Arc<AtomicBool> {
        self.whole.clone()
    }

    /// How large the journal may grow such that the reserve is room enough to fold it in, also
    /// if all of it is new. One transaction may exceed it.
    pub(super) fn journal_max(&self) -> Option<u64> {
        (self.bytes > 0).then_some(self.bytes / 4 * 3)
    }

    /// What whoever brings new work is told meanwhile.
    pub(super) fn refusal() -> StoreError {
        StoreError::Full(
            "the disk is full, what is left is kept for finishing what was accepted; \
             free space on the disk of the data folder, new work is then taken again by itself"
                .to_owned(),
        )
    }

    /// Gives the room back to the disk. False if there was none to give.
    pub(super) fn give_back(&mut self) -> bool {
        self.whole.store(false, Ordering::Relaxed);
        self.next_try = Some(Instant::now() + RETRY);
        let held = self.path.metadata().map_or(0, |meta| meta.len());
        match fs::remove_file(&self.path) {
            Ok(()) => held > 0,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                tracing::error!(%error, "the reserve cannot be given back to the disk");
                false
            }
        }
    }

    /// Whether it is time to try [`Reserve::make_whole`] again.
    pub(super) fn is_due(&self) -> bool {
        !self.is_whole() && self.next_try.is_none_or(|at| Instant::now() >= at)
    }

    pub(super) fn make_whole(&mut self) -> io::Result<()> {
        self.next_try = Some(Instant::now() + RETRY);
        if self.bytes == 0 {
            remove_if_there(&self.path)?;
        } else if !self.is_there() {
            // A part of it would only take room from those it is meant for.
            remove_if_there(&self.path)?;
            self.allocate().inspect_err(|_| drop(remove_if_there(&self.path)))?;
        }
        self.whole.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn allocate(&self) -> io::Result<()> {
        let file = private_file(&self.path)?;
        allocate(&file, self.bytes)
    }

    fn is_there(&self) -> bool {
        let Ok(meta) = self.path.metadata() else { return false };
        meta.len() == self.bytes && has_blocks(&meta)
    }
}

fn remove_if_there(path: &std::path::Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn has_blocks(meta: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    meta.blocks() * 512 >= meta.len()
}

#[cfg(not(unix))]
fn has_blocks(_: &fs::Metadata) -> bool {
    true
}

#[cfg(unix)]
fn size_of_disk(path: &std::path::Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path.parent()?).ok()?;
    disk.f_blocks.checked_mul(disk.f_frsize)
}

#[cfg(not(unix))]
fn size_of_disk(_: &std::path::Path) -> Option<u64> {
    None
}

/// Asks the file system for the blocks; where it cannot be asked, they are written.
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

/// Not zeros: those may be kept as a hole.
fn write_out(mut file: &File, bytes: u64) -> io::Result<()> {
    let block = [0xA5; 64 << 10];
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        io::Write::write_all(&mut file, &block[..part])?;
        left -= part as u64;
    }
    // Some file systems look for the room only now.
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_takes_real_room_and_gives_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        let mut reserve = Reserve::at(path.clone(), 1 << 20);
        assert!(!reserve.is_whole());
        reserve.make_whole().unwrap();
        assert!(reserve.is_whole());
        let meta = path.metadata().unwrap();
        assert!(meta.len() == 1 << 20 && has_blocks(&meta));
        assert!(reserve.give_back());
        assert!(!path.exists() && !reserve.is_whole() && !reserve.is_due());
        assert!(!reserve.give_back(), "there is nothing left to give");
    }

    #[test]
    fn a_hole_is_no_reserve() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        private_file(&path).unwrap().set_len(1 << 20).unwrap();
        Reserve::at(path.clone(), 1 << 20).make_whole().unwrap();
        assert!(has_blocks(&path.metadata().unwrap()));
    }

    #[test]
    fn what_is_written_out_has_blocks_too() {
        let file = tempfile::tempfile().unwrap();
        write_out(&file, 100_000).unwrap();
        let meta = file.metadata().unwrap();
        assert!(meta.len() == 100_000 && has_blocks(&meta));
    }
}

//! Whether the disk of the data folder is full or nearly full, as problems of the store. Frees nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_core::Timestamp;

use super::problems::ProblemList;

const DISK_FULL: &str = "disk_full";
const DISK_LOW: &str = "disk_low";
/// With less than this, writes begin to fail.
const FULL_BELOW: u64 = 256 << 10;
/// A twentieth of a large disk is more than anybody has to hurry for.
const PART_MAX: u64 = 10 << 30;

pub(crate) struct DiskSpace {
    folder: PathBuf,
    reserve_bytes: u64,
    is_reserve_whole: Arc<AtomicBool>,
}

/// What the file system says of the disk.
#[derive(Debug, Clone, Copy)]
struct DiskFigures {
    free: u64,
    size: u64,
}

impl DiskSpace {
    pub(crate) fn new(
        folder: PathBuf,
        reserve_bytes: u64,
        is_reserve_whole: Arc<AtomicBool>,
    ) -> Self {
        Self { folder, reserve_bytes, is_reserve_whole }
    }

    /// Reports what is wrong with the disk at this moment, and resolves what is not wrong any more.
    pub(crate) fn check(&self, problems: &ProblemList, now: Timestamp) {
        let disk = self.figures();
        let has_room = disk.is_none_or(|disk| disk.free >= FULL_BELOW);
        if self.is_reserve_whole.load(Ordering::Relaxed) && has_room {
            problems.resolve(DISK_FULL);
        } else {
            let what = "the disk of the data folder is full: new work is refused, and what is left is kept for \
                        finishing what was accepted; free space there, new work is then taken again by itself";
            problems.report(DISK_FULL, now, what.to_owned());
        }
        match disk.filter(|disk| disk.free < disk.low_below(self.reserve_bytes)) {
            Some(disk) => problems.report(DISK_LOW, now, disk.text(self.reserve_bytes)),
            None => problems.resolve(DISK_LOW),
        }
    }

    /// Nothing if the file system does not say.
    fn figures(&self) -> Option<DiskFigures> {
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        Some(DiskFigures {
            free: disk.f_bavail.checked_mul(disk.f_frsize)?,
            size: disk.f_blocks.checked_mul(disk.f_frsize)?,
        })
    }
}

impl DiskFigures {
    /// Twice the reserve, or a twentieth of the disk if that is more, at most 10 GiB.
    fn low_below(self, reserve: u64) -> u64 {
        reserve.saturating_mul(2).max((self.size / 20).min(PART_MAX))
    }

    fn text(self, reserve: u64) -> String {
        let mib = |bytes: u64| bytes >> 20;
        format!(
            "{} MiB are free on the disk of the data folder, of {} MiB; there should be {} MiB; free space there, \
             or new work is refused soon",
            mib(self.free),
            mib(self.size),
            mib(self.low_below(reserve))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_a_share_of_the_disk_and_enough_for_the_reserve() {
        let below = |size: u64, reserve| DiskFigures { free: 0, size }.low_below(reserve);
        assert_eq!(below(100 << 20, 12 << 20), 24 << 20);
        assert_eq!(below(100 << 30, 64 << 20), 5 << 30);
        assert_eq!(below(9_000 << 30, 64 << 20), 10 << 30);
    }

    #[test]
    fn a_missing_reserve_is_a_problem_until_it_is_whole_again() {
        let dir = tempfile::tempdir().unwrap();
        let (problems, whole) = (ProblemList::default(), Arc::new(AtomicBool::new(false)));
        // The second reserve is more than any disk has.
        for (reserve, low) in [(0, None), (u64::MAX, Some(DISK_LOW))] {
            let disk = DiskSpace::new(dir.path().to_owned(), reserve, whole.clone());
            for is_whole in [false, true, false] {
                whole.store(is_whole, Ordering::Relaxed);
                disk.check(&problems, Timestamp(1));
                let expected = (!is_whole).then_some(DISK_FULL).into_iter().chain(low);
                let found = problems.all().into_iter().map(|problem| problem.code);
                assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            }
        }
    }
}

//! What the disk does without the store: writes of the size of a commit, each followed by a sync, in the same folder
//! and in the same minute.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use postrider_core::ports::store::StoreResult;

use crate::io;

/// Bytes of a write: about those of a commit.
const WRITE: usize = 256 << 10;
/// Writes of one call.
const WRITES: usize = 25;
/// The file starts over here, as the journal does.
const FILE_MAX: u64 = 32 << 20;

pub(crate) struct DiskProbe {
    file: File,
    times: Vec<Duration>,
}

impl DiskProbe {
    /// The file has no name, so that nothing is left of it.
    pub(crate) fn new(dir: &Path) -> StoreResult<Self> {
        std::fs::create_dir_all(dir).map_err(io)?;
        Ok(Self { file: tempfile::tempfile_in(dir).map_err(io)?, times: Vec::new() })
    }

    pub(crate) fn measure(&mut self) -> StoreResult<()> {
        let bytes = vec![7_u8; WRITE];
        for _ in 0..WRITES {
            if self.file.stream_position().map_err(io)? >= FILE_MAX {
                self.file.seek(SeekFrom::Start(0)).map_err(io)?;
            }
            let start = Instant::now();
            self.file.write_all(&bytes).and_then(|()| self.file.sync_data()).map_err(io)?;
            self.times.push(start.elapsed());
        }
        Ok(())
    }

    /// The median and the slowest write since the last call.
    pub(crate) fn take(&mut self) -> (Duration, Duration) {
        let mut times = std::mem::take(&mut self.times);
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        (median, times.last().copied().unwrap_or_default())
    }
}

//! What the disk does to a program that is not the store: a thread writes 4 KiB to a file of its own in the same
//! folder, again and again, each time followed by a sync. While such a write takes long, the disk holds up everybody.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postrider_core::ports::store::StoreResult;

use crate::io;

/// Bytes of a write.
const WRITE: usize = 4096;
/// The file starts over here, so that it never grows.
const FILE_MAX: u64 = 1 << 20;
/// The pause between two writes.
const PAUSE: Duration = Duration::from_millis(3);
/// A write that takes longer is a stall of the disk.
const STALL: Duration = Duration::from_millis(5);

/// From, until.
type Span = (Instant, Instant);

#[derive(Default)]
struct WitnessShared {
    ends: AtomicBool,
    stalls: Mutex<Vec<Span>>,
}

pub(crate) struct DiskWitness {
    shared: Arc<WitnessShared>,
    thread: Option<JoinHandle<()>>,
}

impl DiskWitness {
    /// The file has no name, so that nothing is left of it.
    pub(crate) fn start(dir: &Path) -> StoreResult<Self> {
        std::fs::create_dir_all(dir).map_err(io)?;
        let mut file = tempfile::tempfile_in(dir).map_err(io)?;
        file.write_all(&vec![0; FILE_MAX as usize]).and_then(|()| file.sync_all()).map_err(io)?;
        let shared = Arc::new(WitnessShared::default());
        let own = shared.clone();
        let thread = thread::spawn(move || {
            while !own.ends.load(Ordering::Relaxed) {
                let start = Instant::now();
                if let Err(error) = write(&mut file) {
                    eprintln!("the disk cannot be watched: {error}");
                    return;
                }
                if start.elapsed() >= STALL {
                    own.stalls().push((start, Instant::now()));
                }
                thread::sleep(PAUSE);
            }
        });
        Ok(Self { shared, thread: Some(thread) })
    }

    /// How long the disk held up everybody in this time.
    pub(crate) fn stalled_within(&self, (from, until): Span) -> Duration {
        let stalls = self.shared.stalls();
        stalls
            .iter()
            .map(|stall| until.min(stall.1).saturating_duration_since(from.max(stall.0)))
            .sum()
    }

    /// The longest stall in this time.
    pub(crate) fn longest_since(&self, from: Instant) -> Duration {
        let stalls = self.shared.stalls();
        let since = stalls.iter().filter(|stall| stall.1 >= from);
        since.map(|stall| stall.1 - stall.0).max().unwrap_or_default()
    }
}

impl WitnessShared {
    fn stalls(&self) -> std::sync::MutexGuard<'_, Vec<Span>> {
        self.stalls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DiskWitness {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn write(file: &mut File) -> std::io::Result<()> {
    if file.stream_position()? >= FILE_MAX {
        file.seek(SeekFrom::Start(0))?;
    }
    file.write_all(&[7; WRITE])?;
    file.sync_data()
}

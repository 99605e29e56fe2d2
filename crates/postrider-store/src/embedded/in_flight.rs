//! A log of the deliveries in flight, in a file that is written but never synced: it has to survive a killed
//! process, not a power cut. A clean end empties it. If it cannot be written, nothing waits and nothing
//! fails. Many small leases share a write, so the last millisecond may be missing.
//!
//! The file is a list of 64-bit words: the number of the run, then entries. An entry begins with a word of
//! its kind and length.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::folder::private_file;

/// Beyond this size the file starts over with the deliveries that are in flight then.
const BYTES_MAX: usize = 1 << 20;
/// Writes in one millisecond; further entries wait and share the next write.
const WRITES_PER_MS: u32 = 4;
const LEASED: u64 = 1 << 56;
const ENDED: u64 = 2 << 56;
const WORDS_MAX: usize = 16 << 10;
const LENGTH: u64 = (1 << 56) - 1;

/// What a process left in flight when it did not shut down cleanly.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UnfinishedRun {
    pub(crate) run: u64,
    /// Deliveries by sequence, each with the time of its lease.
    pub(crate) in_flight: HashMap<u64, i64>,
}

pub(crate) struct InFlightLog(Mutex<LogFile>);

struct LogFile {
    /// Absent if it cannot be written, and after a clean end.
    file: Option<File>,
    run: u64,
    bytes: usize,
    words: Vec<u8>,
    /// The start of the current millisecond, and the writes in it.
    since: Instant,
    writes: u32,
}

impl InFlightLog {
    /// Reads what the previous process left; empty if it shut down cleanly.
    pub(crate) fn read_left(path: &Path) -> UnfinishedRun {
        let mut bytes = Vec::new();
        match File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => read(&bytes),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, "the log of deliveries in flight cannot be read");
                }
                UnfinishedRun::default()
            }
        }
    }

    pub(crate) fn begin(path: &Path, run: u64) -> Self {
        let file = private_file(path).inspect_err(
            |error| tracing::warn!(%error, "the log of deliveries in flight cannot be opened"),
        );
        let mut log = LogFile {
            file: file.ok(),
            run,
            bytes: 0,
            words: Vec::new(),
            since: Instant::now(),
            writes: 0,
        };
        log.start_over(&[]);
        Self(Mutex::new(log))
    }

    /// Notes leases before they are handed out. `all` lists everything that is leased, with the time.
    pub(crate) fn leased(
        &self,
        at: i64,
        seqs: impl ExactSizeIterator<Item = u64>,
        all: impl FnOnce() -> Vec<(u64, i64)>,
    ) {
        if seqs.len() == 0 {
            return;
        }
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.bytes > BYTES_MAX {
            log.start_over(&all());
        }
        log.push(LEASED | seqs.len() as u64);
        log.push(at as u64);
        seqs.for_each(|seq| log.push(seq));
        log.write_soon();
    }

    /// Writes the entries that wait for a write.
    pub(crate) fn catch_up(&self) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !log.words.is_empty() {
            log.write();
        }
    }

    /// Notes leases that were settled or given back.
    pub(crate) fn ended(&self, seqs: impl Iterator<Item = u64> + Clone) {
        let count = seqs.clone().count() as u64;
        if count == 0 {
            return;
        }
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(ENDED | count);
        seqs.for_each(|seq| log.push(seq));
        log.write_soon();
    }

    /// A clean end: nothing is in flight, and nothing is noted any more.
    pub(crate) fn end(&self) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = log.file.take().map(|file| file.set_len(0)) {
            tracing::warn!(%error, "the log of deliveries in flight cannot be emptied");
        }
    }
}

impl LogFile {
    fn push(&mut self, word: u64) {
        self.words.extend_from_slice(&word.to_le_bytes());
    }

    fn write_soon(&mut self) {
        if self.since.elapsed() >= Duration::from_millis(1) {
            self.since = Instant::now();
            self.writes = 0;
        }
        if self.writes < WRITES_PER_MS || self.words.len() >= WORDS_MAX {
            self.write();
        }
    }

    fn write(&mut self) {
        self.writes += 1;
        let Some(file) = &mut self.file else {
            self.words.clear();
            return;
        };
        self.bytes += self.words.len();
        if let Err(error) = file.write_all(&self.words) {
            tracing::warn!(%error, "the log of deliveries in flight cannot be written any more");
            self.file = None;
        }
        self.words.clear();
    }

    fn start_over(&mut self, in_flight: &[(u64, i64)]) {
        self.words.clear();
        let emptied = self.file.as_mut().map(|file| file.set_len(0).and_then(|()| file.rewind()));
        if let Some(Err(error)) = emptied {
            tracing::warn!(%error, "the log of deliveries in flight cannot be written any more");
            self.file = None;
        }
        self.bytes = 0;
        self.push(self.run);
        for (seq, at) in in_flight {
            self.push(LEASED | 1);
            self.push(*at as u64);
            self.push(*seq);
        }
        self.write();
    }
}

/// Reads the complete entries; the last one may be cut off.
fn read(bytes: &[u8]) -> UnfinishedRun {
    let mut words = bytes.chunks_exact(8).map(|word| {
        let mut whole = [0; 8];
        whole.copy_from_slice(word);
        u64::from_le_bytes(whole)
    });
    let mut left = UnfinishedRun { run: words.next().unwrap_or(0), in_flight: HashMap::new() };
    while let Some(head) = words.next() {
        let length = (head & LENGTH) as usize;
        match head & !LENGTH {
            LEASED => {
                let Some(at) = words.next() else { break };
                left.in_flight.extend(words.by_ref().take(length).map(|seq| (seq, at as i64)));
            }
            ENDED => words.by_ref().take(length).for_each(|seq| {
                left.in_flight.remove(&seq);
            }),
            _ => break,
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_that_did_not_end_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flight");
        let log = InFlightLog::begin(&path, 7);
        log.leased(100, [1, 2, 3].into_iter(), Vec::new);
        log.ended([2].into_iter());
        log.leased(200, [2, 4].into_iter(), Vec::new);
        log.ended([4, 1].into_iter());
        log.catch_up();
        let left = UnfinishedRun { run: 7, in_flight: HashMap::from([(3, 100), (2, 200)]) };
        assert_eq!(InFlightLog::read_left(&path), left);
        log.end();
        log.leased(300, [5].into_iter(), Vec::new);
        assert_eq!(InFlightLog::read_left(&path), UnfinishedRun::default(), "after a clean end");
    }

    #[test]
    fn the_file_stays_short_and_keeps_the_deliveries_in_flight() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flight");
        let log = InFlightLog::begin(&path, 7);
        for n in 10..100_000u64 {
            log.leased(5, [n].into_iter(), || vec![(1, 5), (2, 6)]);
            log.ended([n].into_iter());
        }
        log.catch_up();
        assert!(path.metadata().unwrap().len() < 2 * BYTES_MAX as u64);
        assert_eq!(InFlightLog::read_left(&path).in_flight, HashMap::from([(1, 5), (2, 6)]));
    }

    #[test]
    fn a_cut_off_end_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flight");
        InFlightLog::begin(&path, 7).leased(100, [1, 2].into_iter(), Vec::new);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            let left = read(&whole[..length]);
            assert!(left.in_flight.len() <= 1, "{length}: {left:?}");
        }
    }
}

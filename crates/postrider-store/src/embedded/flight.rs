//! What is in flight, in a file of its own that is written but never synced: it outlives the process
//! that is killed, which is all that is asked of it. A clean end leaves it empty. What cannot be
//! written is not remembered; nothing waits for it and nothing fails by it. In a rush of small leases
//! several share a write, so that the last millisecond may be missing.
//!
//! The file is a list of 64-bit words: first the number of the run, then entries of a tagged length
//! and what it announces.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::folder::private_file;

/// Beyond it the file starts over with what is in flight then.
const BYTES_MAX: usize = 1 << 20;
/// Writes in a millisecond; what comes beyond them is written together.
const WRITES_PER_MS: u32 = 4;
const LEASED: u64 = 1 << 56;
const ENDED: u64 = 2 << 56;
const WORDS_MAX: usize = 16 << 10;
const LENGTH: u64 = (1 << 56) - 1;

/// What a run left behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) run: u64,
    /// Deliveries by sequence, each with the time of its lease.
    pub(super) in_flight: HashMap<u64, i64>,
}

pub(super) struct Flight(Mutex<Log>);

struct Log {
    /// Absent when it cannot be written, or must not be any more.
    file: Option<File>,
    run: u64,
    bytes: usize,
    words: Vec<u8>,
    /// The millisecond that is counted, and what was written in it.
    since: Instant,
    writes: u32,
}

impl Flight {
    /// What the run before left, if it did not end cleanly.
    pub(super) fn left(path: &Path) -> Left {
        let mut bytes = Vec::new();
        match File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => read(&bytes),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, "what was in flight at the last end cannot be read");
                }
                Left::default()
            }
        }
    }

    pub(super) fn begin(path: &Path, run: u64) -> Self {
        let file = private_file(path)
            .inspect_err(|error| tracing::warn!(%error, "what is in flight cannot be noted"));
        let mut log = Log {
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

    /// Leases that are about to be handed out. `all` tells everything that is leased, with the time.
    pub(super) fn leased(
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

    /// Writes what was not yet: there is time now.
    pub(super) fn catch_up(&self) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !log.words.is_empty() {
            log.write();
        }
    }

    /// Leases that ended in order.
    pub(super) fn ended(&self, seqs: impl Iterator<Item = u64> + Clone) {
        let count = seqs.clone().count() as u64;
        if count == 0 {
            return;
        }
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(ENDED | count);
        seqs.for_each(|seq| log.push(seq));
        log.write_soon();
    }

    /// A clean end: nothing counts as in flight, and nothing is noted any more.
    pub(super) fn end(&self) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = log.file.take().map(|file| file.set_len(0)) {
            tracing::warn!(%error, "what is in flight cannot be cleared");
        }
    }
}

impl Log {
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
            tracing::warn!(%error, "what is in flight cannot be noted any more");
            self.file = None;
        }
        self.words.clear();
    }

    fn start_over(&mut self, in_flight: &[(u64, i64)]) {
        self.words.clear();
        let emptied = self.file.as_mut().map(|file| file.set_len(0).and_then(|()| file.rewind()));
        if let Some(Err(error)) = emptied {
            tracing::warn!(%error, "what is in flight cannot be noted any more");
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

/// As far as it is whole: the last entry may have been cut off by the end.
fn read(bytes: &[u8]) -> Left {
    let mut words = bytes.chunks_exact(8).map(|word| {
        let mut whole = [0; 8];
        whole.copy_from_slice(word);
        u64::from_le_bytes(whole)
    });
    let mut left = Left { run: words.next().unwrap_or(0), in_flight: HashMap::new() };
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
    fn what_was_leased_and_did_not_end_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flight");
        let flight = Flight::begin(&path, 7);
        flight.leased(100, [1, 2, 3].into_iter(), Vec::new);
        flight.ended([2].into_iter());
        flight.leased(200, [2, 4].into_iter(), Vec::new);
        flight.ended([4, 1].into_iter());
        flight.catch_up();
        let left = Left { run: 7, in_flight: HashMap::from([(3, 100), (2, 200)]) };
        assert_eq!(Flight::left(&path), left);
        flight.end();
        flight.leased(300, [5].into_iter(), Vec::new);
        assert_eq!(Flight::left(&path), Left::default(), "after a clean end");
    }

    #[test]
    fn the_file_stays_short_and_keeps_what_is_in_flight() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flight");
        let flight = Flight::begin(&path, 7);
        for n in 10..100_000u64 {
            flight.leased(5, [n].into_iter(), || vec![(1, 5), (2, 6)]);
            flight.ended([n].into_iter());
        }
        flight.catch_up();
        assert!(path.metadata().unwrap().len() < 2 * BYTES_MAX as u64);
        assert_eq!(Flight::left(&path).in_flight, HashMap::from([(1, 5), (2, 6)]));
    }

    #[test]
    fn a_cut_off_end_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flight");
        Flight::begin(&path, 7).leased(100, [1, 2].into_iter(), Vec::new);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            let left = read(&whole[..length]);
            assert!(left.in_flight.len() <= 1, "{length}: {left:?}");
        }
    }
}

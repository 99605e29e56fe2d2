//! The frames of a journal: which of them are intact, and which SQLite would take.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use postrider_core::ports::store::{StoreError, StoreResult};

use super::JournalDamage;
use super::checksum::{JournalChecksum, number};

pub(super) const PAGE: usize = 4096;
pub(super) const HEADER: usize = 32;
pub(super) const FRAME_HEADER: usize = 24;
pub(super) const FRAME: usize = FRAME_HEADER + PAGE;
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalFrame {
    pub(crate) page: u32,
    /// The last frame of a transaction.
    pub(crate) commits: bool,
    /// Its content is what was written.
    pub(crate) intact: bool,
    /// It continues the checksum of the frame before.
    linked: bool,
    pub(super) salts_match: bool,
}

pub(crate) struct JournalFrames {
    pub(crate) header: [u8; HEADER],
    header_valid: bool,
    /// Those of most frames, if the head of the journal is damaged.
    pub(crate) salts: [u8; 8],
    pub(super) big_endian: bool,
    pub(crate) frames: Vec<JournalFrame>,
}

impl JournalFrames {
    /// `None` if the journal is empty or missing.
    pub(crate) fn read(path: &Path) -> StoreResult<Option<Self>> {
        let error = |error| StoreError::io("cannot read the journal", error);
        let file = match File::open(path) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(error)?,
        };
        let length = file.metadata().map_err(error)?.len();
        let count = usize::try_from(length).unwrap_or(usize::MAX).saturating_sub(HEADER) / FRAME;
        let mut header = [0; HEADER];
        if count == 0 || file.read_exact_at(&mut header, 0).is_err() {
            return Ok(None);
        }
        let big_endian = number(&header, 0) & 1 == 1;
        let journal = Self::read_as(&file, header, count, big_endian);
        if journal.header_valid || journal.frames.iter().any(|frame| frame.linked) {
            return Ok(Some(journal));
        }
        Ok(Some(Self::read_as(&file, header, count, !big_endian)))
    }

    fn read_as(file: &File, header: [u8; HEADER], count: usize, big_endian: bool) -> Self {
        let computed = JournalChecksum::default().over(&header[..24], big_endian);
        let stored = JournalChecksum::from_bytes(&header[24..]);
        let header_valid = computed == stored
            && number(&header, 0) & !1 == MAGIC
            && number(&header, 4) == VERSION
            && number(&header, 8) as usize == PAGE;
        let salts = if header_valid { salts_of(&header[16..]) } else { common_salts(file, count) };
        let mut journal = Self { header, header_valid, salts, big_endian, frames: Vec::new() };
        journal.frames.reserve(count);
        let mut seeds = vec![stored, computed];
        let mut bytes = vec![0; FRAME];
        for index in 0..count {
            if file.read_exact_at(&mut bytes, offset(index)).is_err() {
                bytes.fill(0);
            }
            journal.add(&bytes, &mut seeds);
        }
        journal.trust_flipped_salts();
        journal
    }

    /// `seeds` are the possible checksums of the frame before: as stored, and as computed.
    fn add(&mut self, bytes: &[u8], seeds: &mut Vec<JournalChecksum>) {
        let stored = JournalChecksum::from_bytes(&bytes[16..24]);
        let computed: Vec<_> = seeds.iter().map(|seed| self.checksum_of(bytes, *seed)).collect();
        let matched = computed.iter().position(|checksum| *checksum == stored);
        if let (Some(1..), Some(before)) = (matched, self.frames.last_mut()) {
            // Only the stored checksum of the frame before is damaged.
            before.intact |= before.salts_match;
        }
        let linked = matched.is_some();
        let salts_match = bytes[8..16] == self.salts;
        self.frames.push(JournalFrame {
            page: number(bytes, 0),
            commits: number(bytes, 4) != 0,
            intact: linked && salts_match,
            linked,
            salts_match,
        });
        *seeds = vec![stored];
        if !linked {
            seeds.extend(computed);
        }
    }

    pub(super) fn checksum_of(&self, frame: &[u8], seed: JournalChecksum) -> JournalChecksum {
        let head = seed.over(&frame[..8], self.big_endian);
        head.over(&frame[FRAME_HEADER..], self.big_endian)
    }

    /// The checksum does not cover the salts: a frame between good ones is good without them.
    fn trust_flipped_salts(&mut self) {
        for index in 1..self.frames.len() {
            let next_is_good = self.frames[index].intact;
            let before = &mut self.frames[index - 1];
            before.intact |= before.linked && next_is_good;
        }
    }

    /// How many frames SQLite can verify, from the first one on.
    fn verified(&self) -> usize {
        if !self.header_valid {
            return 0;
        }
        let first_bad = self.frames.iter().position(|frame| !(frame.linked && frame.salts_match));
        first_bad.unwrap_or(self.frames.len())
    }

    /// `known` is the last frame that was durable for sure.
    pub(crate) fn damage(&self, known: Option<usize>) -> Option<JournalDamage> {
        let verified = self.verified();
        let rest = &self.frames[verified..];
        let taken = self.frames[..verified].iter().rposition(|frame| frame.commits);
        let taken = taken.map_or(0, |last| last + 1);
        // A transaction begins only after the one before is durable. What is left of a single one is what a
        // power cut leaves of a transaction that nobody was told of.
        let commit = rest.iter().position(|frame| {
            frame.commits && (frame.intact || (frame.salts_match && self.header_valid))
        });
        let goes_on =
            commit.is_some_and(|commit| rest[commit + 1..].iter().any(|frame| frame.intact));
        let was_durable = known.is_some_and(|known| known > taken);
        if !goes_on && !was_durable {
            return None;
        }
        let commits = rest.iter().filter(|frame| frame.intact && frame.commits).count();
        let frame = if self.header_valid { verified + 1 } else { 0 };
        Some(JournalDamage { frame, frames: self.frames.len(), commits: commits.max(1) })
    }
}

pub(super) fn offset(index: usize) -> u64 {
    (HEADER + index * FRAME) as u64
}

fn salts_of(bytes: &[u8]) -> [u8; 8] {
    let mut salts = [0; 8];
    salts.copy_from_slice(&bytes[..8]);
    salts
}

/// The salts that two of the first three frames have.
fn common_salts(file: &File, count: usize) -> [u8; 8] {
    let read = |index: usize| {
        let mut salts = [0; 8];
        let done = file.read_exact_at(&mut salts, offset(index) + 8);
        done.map(|()| salts).unwrap_or_default()
    };
    let first: Vec<_> = (0..count.min(3)).map(read).collect();
    match first[..] {
        [a, b, c] if a != b && b == c => b,
        [a, ..] => a,
        [] => [0; 8],
    }
}

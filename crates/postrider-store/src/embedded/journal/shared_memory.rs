//! SQLite's index of the journal survives a killed process. It says how many frames were durable, because it is
//! written after their sync.

use std::path::Path;

use super::checksum::JournalChecksum;

const HEADER: usize = 48;

/// The last durable frame of the journal with these salts; `None` if the file does not say.
pub(crate) fn last_frame(path: &Path, salts: [u8; 8]) -> Option<usize> {
    let bytes = std::fs::read(path).ok()?;
    let (first, second) = (bytes.get(..HEADER)?, bytes.get(HEADER..2 * HEADER)?);
    let is_set = first[12] == 1;
    let native = |at: usize| -> u32 {
        first.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
    };
    let checksum = JournalChecksum::default().over(&first[..40], cfg!(target_endian = "big"));
    let is_valid = first == second && is_set && checksum == JournalChecksum(native(40), native(44));
    (is_valid && first[32..40] == salts).then(|| native(16) as usize)
}

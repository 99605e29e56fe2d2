//! A key as it is stored: 54 bytes, the key first, so that records sort as their keys do.

use postrider_core::MessageId;
use postrider_core::model::id::{from_order_key, order_key, random_tail};

use crate::embedded::index::effects::DedupEntry;

pub(super) type DedupHash = [u8; 16];

pub(super) const RECORD: usize = 54;
/// So many records fill one page of the database.
pub(super) const PAGE_RECORDS: usize = 75;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyRecord(pub(super) [u8; RECORD]);

impl KeyRecord {
    pub(super) fn new(key: &DedupHash, entry: &DedupEntry) -> Self {
        let mut bytes = [0; RECORD];
        bytes[..16].copy_from_slice(key);
        bytes[16..32].copy_from_slice(&entry.fingerprint);
        bytes[32..40].copy_from_slice(&order_key(entry.message.0).to_be_bytes());
        bytes[40..48].copy_from_slice(&random_tail(entry.message.0).to_be_bytes());
        // Six bytes last until the year 10889.
        let expires = u64::try_from(entry.expires).unwrap_or(0).min((1 << 48) - 1);
        bytes[48..].copy_from_slice(&expires.to_be_bytes()[2..]);
        Self(bytes)
    }

    pub(super) fn key(&self) -> DedupHash {
        part(&self.0, 0)
    }

    pub(super) fn expires(&self) -> i64 {
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&self.0[48..]);
        i64::from_be_bytes(bytes)
    }

    pub(super) fn entry(&self) -> DedupEntry {
        let seq = u64::from_be_bytes(part(&self.0, 32));
        let tail = u64::from_be_bytes(part(&self.0, 40));
        DedupEntry {
            message: MessageId(from_order_key(seq, tail)),
            fingerprint: part(&self.0, 16),
            expires: self.expires(),
        }
    }

    /// What the number of a page has of its first key.
    pub(super) fn prefix(&self) -> u32 {
        prefix(&self.key())
    }
}

pub(super) fn prefix(key: &DedupHash) -> u32 {
    u32::from_be_bytes(part(key, 0))
}

/// The records of a page; `None` if its length is wrong.
pub(super) fn records(page: &[u8]) -> Option<&[[u8; RECORD]]> {
    let (records, rest) = page.as_chunks();
    rest.is_empty().then_some(records)
}

pub(super) fn find_in(records: &[[u8; RECORD]], key: &DedupHash) -> Option<DedupEntry> {
    let at = records.binary_search_by(|record| record[..16].cmp(key)).ok()?;
    Some(KeyRecord(records[at]).entry())
}

fn part<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[from..from + N]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_back_what_was_put_in() {
        let message = MessageId(from_order_key(u64::MAX >> 1, 12_345));
        let entry = DedupEntry { message, fingerprint: [7; 16], expires: 1_790_000_000_123 };
        let record = KeyRecord::new(&[9; 16], &entry);
        assert_eq!((record.key(), record.entry()), ([9; 16], entry));
        assert_eq!(find_in(&[record.0], &[9; 16]), Some(entry));
        assert_eq!(find_in(&[record.0], &[8; 16]), None);
    }
}

//! The checksum of SQLite's journal: each frame continues that of the frame before.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JournalChecksum(pub(crate) u32, pub(crate) u32);

impl JournalChecksum {
    /// Continues over `bytes`, whose length is a multiple of eight.
    pub(crate) fn over(self, bytes: &[u8], big_endian: bool) -> Self {
        let word = |bytes: &[u8]| {
            let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
            if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        let Self(mut first, mut second) = self;
        for pair in bytes.chunks_exact(8) {
            first = first.wrapping_add(word(&pair[..4])).wrapping_add(second);
            second = second.wrapping_add(word(&pair[4..])).wrapping_add(first);
        }
        Self(first, second)
    }

    /// As it is stored.
    pub(crate) fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.1.to_be_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(number(bytes, 0), number(bytes, 4))
    }
}

/// A number of the journal at an offset.
pub(crate) fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

//! A blocked Bloom filter: 13 bits a key, one cache line a lookup. Keys are hashes already, so nothing is
//! hashed here.

const LINE_WORDS: usize = 8;
const BITS_PER_KEY: usize = 13;

pub(crate) struct BloomFilter {
    words: Vec<u64>,
}

impl BloomFilter {
    pub(crate) fn sized_for(keys: usize) -> Self {
        let lines = keys.saturating_mul(BITS_PER_KEY).div_ceil(LINE_WORDS * 64).max(1);
        Self { words: vec![0; lines * LINE_WORDS] }
    }

    pub(crate) fn insert(&mut self, key: &[u8; 16]) {
        let (line, bits) = self.place(key);
        for (word, mask) in self.words[line..line + LINE_WORDS].iter_mut().zip(bits) {
            *word |= mask;
        }
    }

    pub(crate) fn may_contain(&self, key: &[u8; 16]) -> bool {
        let (line, bits) = self.place(key);
        self.words[line..line + LINE_WORDS].iter().zip(bits).all(|(word, mask)| word & mask == mask)
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// One part of `size` bytes, the last one shorter; `None` behind the end.
    pub(crate) fn part(&self, number: usize, size: usize) -> Option<Vec<u8>> {
        let words = self.words.chunks(size / 8).nth(number)?;
        Some(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(LINE_WORDS * 8) {
            return None;
        }
        let words = bytes.chunks_exact(8).map(|chunk| {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        Some(Self { words: words.collect() })
    }

    /// The line of a key and one bit in each of six of its words.
    fn place(&self, key: &[u8; 16]) -> (usize, [u64; LINE_WORDS]) {
        let value = u128::from_le_bytes(*key);
        let (low, high) = (value as u64, (value >> 64) as u64);
        let lines = (self.words.len() / LINE_WORDS) as u128;
        let line = ((u128::from(low) * lines) >> 64) as usize * LINE_WORDS;
        let mut bits = [0; LINE_WORDS];
        for (i, word) in bits.iter_mut().take(6).enumerate() {
            *word = 1 << ((high >> (6 * i)) & 63);
        }
        // Two words stay free for a rotation by the key, which evens the lines out.
        bits.rotate_right((high >> 60) as usize % LINE_WORDS);
        (line, bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(from: u64, n: u64) -> impl Iterator<Item = [u8; 16]> {
        (from..from + n).map(|i| {
            let spread = |x: u64| {
                let x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                x ^ (x >> 32)
            };
            (u128::from(spread(i + 1)) << 64 | u128::from(spread(i.wrapping_mul(7) + 3)))
                .to_le_bytes()
        })
    }

    #[test]
    fn what_was_put_in_is_found_and_little_else() {
        let mut filter = BloomFilter::sized_for(50_000);
        keys(0, 50_000).for_each(|key| filter.insert(&key));
        let parts = (0..).map_while(|number| filter.part(number, 1 << 10));
        let filter = BloomFilter::from_bytes(&parts.flatten().collect::<Vec<_>>()).unwrap();
        assert!(keys(0, 50_000).all(|key| filter.may_contain(&key)));
        let wrong = keys(1_000_000, 50_000).filter(|key| filter.may_contain(key)).count();
        assert!(wrong < 500, "{wrong} of 50000 are false");
    }
}

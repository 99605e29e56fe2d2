//! Which addresses have a flag. The flags themselves are on disk: here is only what rules most addresses out.
//! Few addresses are known exactly; many are in filters, which take at most 3.3 bytes for each.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};

use postrider_core::{AddressHash, TenantId};

use super::MemoryIndex;
use crate::embedded::sql::dedup::filter::BloomFilter;

/// So many addresses are known exactly, and so many the first filter takes.
const EXACT_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct AddressFlagSet {
    exact: HashSet<u64>,
    /// Each has twice the room of the one before.
    filters: Vec<BloomFilter>,
    /// Room in the last filter.
    room: usize,
}

impl AddressFlagSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.filters.is_empty()
    }

    /// False if the address has no flag. If true, the disk knows for sure.
    pub(crate) fn may_contain(&self, fingerprint: u64) -> bool {
        let key = filter_key(fingerprint);
        self.exact.contains(&fingerprint) || self.filters.iter().any(|f| f.may_contain(&key))
    }

    pub(crate) fn insert(&mut self, fingerprint: u64) {
        // What is in a filter already would only take its room again.
        if self.may_contain(fingerprint) {
            return;
        }
        self.exact.insert(fingerprint);
        if self.exact.len() >= EXACT_MAX {
            self.move_to_filter();
        }
    }

    /// What is in a filter stays there until the next start: such an address costs a read.
    pub(crate) fn remove(&mut self, fingerprint: u64) {
        self.exact.remove(&fingerprint);
    }

    fn move_to_filter(&mut self) {
        if self.room < EXACT_MAX {
            self.room = EXACT_MAX << self.filters.len();
            self.filters.push(BloomFilter::sized_for(self.room));
        }
        self.room -= EXACT_MAX;
        let Some(filter) = self.filters.last_mut() else { return };
        for fingerprint in self.exact.drain() {
            filter.insert(&filter_key(fingerprint));
        }
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        let filters: usize = self.filters.iter().map(BloomFilter::bytes).sum();
        filters + self.exact.capacity() * 9
    }
}

/// A fingerprint as 16 bytes, all of which depend on it.
fn filter_key(fingerprint: u64) -> [u8; 16] {
    let other = fingerprint.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    ((u128::from(other) << 64) | u128::from(fingerprint)).to_le_bytes()
}

impl MemoryIndex {
    pub(super) fn fingerprint(&self, tenant: &TenantId, hash: AddressHash) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        tenant.hash(&mut hasher);
        hash.hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn is_flagged(&self, lane: u32, hash: AddressHash) -> bool {
        if self.gone.is_empty() && self.struck.is_empty() {
            return false;
        }
        let Some(key) = self.lane_key(lane) else { return false };
        let fingerprint = self.fingerprint(&key.tenant, hash);
        self.gone.may_contain(fingerprint) || self.struck.may_contain(fingerprint)
    }

    /// Whether an address may have strikes; the disk knows for sure.
    pub(crate) fn may_be_struck(&self, tenant: &TenantId, hash: AddressHash) -> bool {
        self.has_struck() && self.struck.may_contain(self.fingerprint(tenant, hash))
    }

    pub(crate) fn has_struck(&self) -> bool {
        !self.struck.is_empty()
    }

    pub(crate) fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    pub(crate) fn set_gone(&mut self, tenant: &TenantId, hash: AddressHash, gone: bool) {
        let fingerprint = self.fingerprint(tenant, hash);
        set_flag(&mut self.gone, fingerprint, gone);
    }

    pub(crate) fn set_struck(&mut self, tenant: &TenantId, hash: AddressHash, struck: bool) {
        let fingerprint = self.fingerprint(tenant, hash);
        set_flag(&mut self.struck, fingerprint, struck);
    }
}

fn set_flag(flagged: &mut AddressFlagSet, fingerprint: u64, flag: bool) {
    if flag { flagged.insert(fingerprint) } else { flagged.remove(fingerprint) }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;

    #[test]
    fn a_million_addresses_take_three_bytes_each_and_none_is_missed() {
        let hasher = RandomState::new();
        let mut flags = AddressFlagSet::default();
        let count = 1_000_000;
        (0..count).for_each(|n| flags.insert(hasher.hash_one(n)));
        assert!((0..count).all(|n| flags.may_contain(hasher.hash_one(n))));
        let exact = EXACT_MAX * 2 * 9;
        assert!(flags.bytes() <= count * 33 / 10 + exact, "{} bytes", flags.bytes());
        let wrong = (count..2 * count).filter(|n| flags.may_contain(hasher.hash_one(*n))).count();
        assert!(wrong < count / 25, "{wrong} of {count} cost a read");
    }

    #[test]
    fn a_flag_that_was_set_and_taken_back_often_takes_no_more_room() {
        let hasher = RandomState::new();
        let all = || (0..EXACT_MAX).map(|n| hasher.hash_one(n));
        let mut flags = AddressFlagSet::default();
        all().take(1_000).for_each(|flag| flags.insert(flag));
        all().take(1_000).for_each(|flag| flags.remove(flag));
        assert!(flags.is_empty());
        all().for_each(|flag| flags.insert(flag));
        let before = flags.bytes();
        for _ in 0..10 {
            all().for_each(|flag| flags.remove(flag));
            all().for_each(|flag| flags.insert(flag));
        }
        assert_eq!(flags.bytes(), before);
    }
}

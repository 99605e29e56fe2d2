//! Addresses that worked before, so that probes go to those that can succeed. Addresses with the same slot are taken
//! for one, as where they vote; fixed memory. Pure.

use crate::policy::votes::Votes;

const WORDS: usize = 4;

#[derive(Debug, Clone, Copy, Default)]
pub struct ServedAddresses([u64; WORDS]);

impl ServedAddresses {
    /// `target` is a number that stands for the address.
    pub fn contains(&self, target: u64) -> bool {
        let (word, bit) = place(target);
        self.0[word] & bit != 0
    }

    /// Whether another address worked.
    pub(super) fn has_other(mut self, target: u64) -> bool {
        self.remove(target);
        self.0 != [0; WORDS]
    }

    pub(super) fn add(&mut self, target: u64) {
        let (word, bit) = place(target);
        self.0[word] |= bit;
    }

    pub(super) fn remove(&mut self, target: u64) {
        let (word, bit) = place(target);
        self.0[word] &= !bit;
    }

    pub(super) fn with(mut self, others: &Self) -> Self {
        self.0.iter_mut().zip(others.0).for_each(|(word, other)| *word |= other);
        self
    }

    /// Numbers that stand for these addresses.
    pub(super) fn slots(&self) -> impl Iterator<Item = u64> {
        (0..64 * WORDS as u64).filter(|slot| self.contains(*slot))
    }
}

fn place(target: u64) -> (usize, u64) {
    let slot = Votes::slot(target);
    (usize::from(slot / 64), 1 << (slot % 64))
}

//! Makes ids: the core's growing source with random numbers, which are drawn in blocks.

use postrider_core::model::id::order_key;
use postrider_core::{IdSource, Timestamp};

const BLOCK: usize = 4096;

/// Each id is above the last one, also after a restart if the generator starts above the last.
pub(crate) struct IdGenerator {
    source: IdSource,
    last: u64,
    block: Box<[u8; BLOCK]>,
    used: usize,
}

impl IdGenerator {
    /// `last` is the highest order key that was ever given out.
    pub(crate) fn above(last: u64) -> Self {
        Self { source: IdSource::above(last), last, block: Box::new([0; BLOCK]), used: BLOCK }
    }

    pub(crate) fn next(&mut self, now: Timestamp) -> u128 {
        let random = self.random();
        let id = self.source.next(now, random);
        self.last = order_key(id);
        id
    }

    /// Goes on above an id that another store gave out.
    pub(crate) fn raise(&mut self, last: u64) {
        if last > self.last {
            self.source = IdSource::above(last);
            self.last = last;
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    fn random(&mut self) -> u64 {
        if self.used + 8 > BLOCK {
            // Without randomness an id is still unique. It can be guessed, but an id grants no rights.
            if aws_lc_rs::rand::fill(&mut self.block[..]).is_err() {
                tracing::error!("the system gives no random numbers; ids can be guessed");
            }
            self.used = 0;
        }
        let mut word = [0; 8];
        word.copy_from_slice(&self.block[self.used..self.used + 8]);
        self.used += 8;
        u64::from_le_bytes(word)
    }
}

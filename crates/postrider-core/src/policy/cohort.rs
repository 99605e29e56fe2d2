//! Samples of the calls to one origin that no address can dominate: how fast the fastest tenth of the
//! calls is, and how many addresses refuse. Fixed memory; reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;

const SIZE: usize = 64;
/// Calls to the same address in one sample, where many addresses are called.
const PER_ADDRESS: usize = 2;
/// A sample with enough calls ends at this age ...
const AGE: Duration = Duration::from_secs(1);
/// ... enough for the fastest tenth, or for how many are refused while the limit doubles ...
const ENOUGH: usize = 10;
pub(super) const ENOUGH_ANSWERS: usize = 16;
/// ... and any sample at this one.
const AGE_MAX: Duration = Duration::from_secs(60);
/// The fastest tenth of a full sample.
const TENTH: usize = SIZE.div_ceil(10);

/// The addresses of up to 64 calls.
#[derive(Debug, Clone)]
struct AddressSample {
    enough: usize,
    began: Timestamp,
    targets: [u64; SIZE],
    len: usize,
    addresses: usize,
    /// Calls were left out because of their address.
    left_out: bool,
    /// How many addresses the previous sample had. Where there are few, each may have more calls.
    addresses_before: usize,
}

impl AddressSample {
    fn new(enough: usize, addresses_before: usize, now: Timestamp) -> Self {
        Self {
            enough,
            began: now,
            targets: [0; SIZE],
            len: 0,
            addresses: 0,
            left_out: false,
            addresses_before,
        }
    }

    fn restart(&mut self, now: Timestamp) {
        let known = self.len >= self.enough || self.left_out;
        let addresses =
            if known { self.addresses } else { self.addresses_before.max(self.addresses) };
        (self.began, self.len, self.addresses, self.left_out) = (now, 0, 0, false);
        self.addresses_before = addresses;
    }

    fn is_complete(&self, now: Timestamp) -> bool {
        self.len == SIZE || self.len >= self.enough && now.since(self.began) >= AGE
    }

    /// Nothing will come of it: too old, too few addresses for its rule, or the clock went back.
    fn is_stale(&self, now: Timestamp) -> bool {
        let age = now.since(self.began);
        let starved = self.left_out && self.len < self.enough && age >= AGE;
        starved || age >= AGE_MAX || now < self.began
    }

    fn admit(&mut self, target: u64) -> bool {
        let same = self.targets[..self.len].iter().filter(|other| **other == target).count();
        let most = PER_ADDRESS.max(2 * SIZE / self.addresses_before.max(1));
        if same >= most || self.len == SIZE {
            self.left_out = true;
            return false;
        }
        self.targets[self.len] = target;
        self.len += 1;
        self.addresses += usize::from(same == 0);
        true
    }
}

/// What a complete cohort says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CohortLatency {
    /// The fastest tenth of its calls took at most this long.
    pub(super) p10_ms: u32,
    /// At least half of the limit was in use.
    pub(super) half_used: bool,
}

/// The next 64 calls that start. A call under way counts as slower than those that ended, so the
/// fastest tenth is known once a tenth ended.
#[derive(Debug, Clone)]
pub(super) struct Cohort {
    number: u32,
    sample: AddressSample,
    complete: bool,
    half_used: bool,
    /// Calls that ended well, and the latencies of the fastest, sorted.
    well: usize,
    fastest_ms: [u32; TENTH],
    /// Calls that ended otherwise; their latency says nothing.
    void: usize,
}

impl Cohort {
    pub(super) fn new() -> Self {
        Self {
            number: 1,
            sample: AddressSample::new(ENOUGH, 1, Timestamp::default()),
            complete: false,
            half_used: false,
            well: 0,
            fastest_ms: [u32::MAX; TENTH],
            void: 0,
        }
    }

    pub(super) fn restart(&mut self, now: Timestamp) {
        self.number = self.number.wrapping_add(1).max(1);
        self.sample.restart(now);
        (self.complete, self.half_used, self.well, self.void) = (false, false, 0, 0);
        self.fastest_ms = [u32::MAX; TENTH];
    }

    /// The number of the cohort that the call belongs to; zero if it belongs to none.
    pub(super) fn start(&mut self, target: u64, half_used: bool, now: Timestamp) -> u32 {
        if self.sample.is_stale(now) {
            self.restart(now);
        }
        self.complete |= self.sample.is_complete(now);
        if self.complete || !self.sample.admit(target) {
            return 0;
        }
        self.half_used |= half_used;
        self.number
    }

    /// `latency_ms` is none for a call that did not end well.
    pub(super) fn end(
        &mut self,
        number: u32,
        latency_ms: Option<u32>,
        now: Timestamp,
    ) -> Option<CohortLatency> {
        if number == self.number {
            self.count(latency_ms);
        }
        self.complete |= self.sample.is_complete(now);
        let counted = self.sample.len.saturating_sub(self.void);
        let tenth = counted.div_ceil(10).clamp(1, TENTH);
        if !self.complete || counted >= ENOUGH && self.well < tenth {
            return None;
        }
        let (p10_ms, half_used) = (self.fastest_ms[tenth - 1], self.half_used);
        self.restart(now);
        (counted >= ENOUGH).then_some(CohortLatency { p10_ms, half_used })
    }

    fn count(&mut self, latency_ms: Option<u32>) {
        let Some(latency_ms) = latency_ms else {
            self.void += 1;
            return;
        };
        self.well += 1;
        let at = self.fastest_ms.partition_point(|other| *other <= latency_ms);
        if at < TENTH {
            self.fastest_ms[at..].rotate_right(1);
            self.fastest_ms[at] = latency_ms;
        }
    }
}

/// The answers of the last calls that ended, at most 64.
#[derive(Debug, Clone)]
pub(super) struct RefusalSample {
    sample: AddressSample,
    /// Calls that were refused, and their addresses.
    refused: usize,
    refusing: [u64; SIZE],
    refusing_len: usize,
}

impl RefusalSample {
    pub(super) fn new() -> Self {
        Self {
            sample: AddressSample::new(ENOUGH_ANSWERS, SIZE, Timestamp::default()),
            refused: 0,
            refusing: [0; SIZE],
            refusing_len: 0,
        }
    }

    pub(super) fn restart(&mut self, now: Timestamp) {
        self.sample.restart(now);
        (self.refused, self.refusing_len) = (0, 0);
    }

    /// Counts an answer, unless its address has its share already.
    pub(super) fn count(&mut self, target: u64, refused: bool, now: Timestamp) -> bool {
        if self.sample.is_stale(now) || self.sample.is_complete(now) {
            self.restart(now);
        }
        if !self.sample.admit(target) {
            return false;
        }
        self.refused += usize::from(refused);
        if refused && !self.refusing[..self.refusing_len].contains(&target) {
            self.refusing[self.refusing_len] = target;
            self.refusing_len += 1;
        }
        true
    }

    pub(super) fn answers(&self) -> usize {
        self.sample.len
    }

    /// Calls that were refused.
    pub(super) fn refused(&self) -> usize {
        self.refused
    }

    /// Addresses called, and those of them that refused.
    pub(super) fn addresses(&self) -> (usize, usize) {
        (self.sample.addresses, self.refusing_len)
    }

    /// How many addresses are in use, as far as a sample tells.
    pub(super) fn addresses_in_use(&self) -> usize {
        self.sample.addresses.max(self.sample.addresses_before)
    }
}

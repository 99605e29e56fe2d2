//! Shared rates of a store that one process has: their state is in memory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use postrider_core::Timestamp;
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::rate_slice::{RateSlice, SharedRate};

/// Beyond this many, rates that nobody uses are forgotten.
const RATES_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct SharedRates(Mutex<HashMap<Box<str>, (Rate, SharedRate)>>);

impl SharedRates {
    pub(crate) fn grant(&self, limit: &str, rate: Rate, want: u32, now: Timestamp) -> RateSlice {
        let mut rates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, shared)) = rates.get_mut(limit) {
            *known = rate;
            return shared.grant(rate, want, now);
        }
        if rates.len() >= RATES_MAX {
            rates.retain(|_, (rate, shared)| !shared.is_idle(*rate, now));
        }
        let mut shared = SharedRate::default();
        let slice = shared.grant(rate, want, now);
        rates.insert(limit.into(), (rate, shared));
        slice
    }
}

//! Doubts a provider that calls very many addresses gone at once. A wrong key, a wrong environment or an
//! incident at the provider look the same, and an erased address does not come back. Counts what it is
//! told; reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::breaker::BreakerPolicy;
use crate::policy::window::SlidingWindow;

/// The answers that one credential got about its addresses.
#[derive(Debug, Clone)]
pub struct GoneGuard {
    share: f64,
    sends_min: u32,
    /// "Failed" are those that were called gone.
    sends: SlidingWindow,
    doubts: bool,
    /// An operator confirmed that they are gone.
    overruled: bool,
}

impl GoneGuard {
    pub fn new(policy: &BreakerPolicy) -> Self {
        Self {
            share: policy.gone_share,
            sends_min: policy.gone_sends_min,
            sends: SlidingWindow::new(Duration::from_secs(policy.gone_window_s.into())),
            doubts: false,
            overruled: false,
        }
    }

    /// Applies other rules from now on; counts over a window of another length are forgotten.
    pub fn adopt(&mut self, policy: &BreakerPolicy) {
        let new = Self::new(policy);
        (self.share, self.sends_min) = (new.share, new.sends_min);
        if !self.sends.is_as_long_as(&new.sends) {
            self.sends = new.sends;
        }
    }

    /// Counts an answer about an address.
    pub fn count(&mut self, gone: bool, now: Timestamp) {
        self.sends.count(gone, now);
        self.doubts |= gone && self.sends.tally(now).exceeds(self.share, self.sends_min);
    }

    /// Whether an address that is called gone is to be kept for the time being.
    pub fn doubts(&self) -> bool {
        self.doubts && !self.overruled
    }

    /// Forgets the counts; keeps an operator's order.
    pub fn clear(&mut self) {
        self.sends.clear();
        self.doubts = false;
    }

    /// Sets that an operator confirms gone addresses; `false` takes it back.
    pub fn overrule(&mut self, overruled: bool) {
        if overruled || self.overruled {
            self.clear();
        }
        self.overruled = overruled;
    }

    /// Whether nothing is remembered that is worth its memory.
    pub fn is_forgettable(&mut self, now: Timestamp) -> bool {
        !self.doubts && !self.overruled && self.sends.tally(now).calls == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn guard() -> GoneGuard {
        GoneGuard::new(&BreakerPolicy::default())
    }

    #[test]
    fn a_few_addresses_among_many_are_believed_to_be_gone() {
        let mut guard = guard();
        (0..10_000).for_each(|n| guard.count(n % 5 == 4, NOW));
        assert!(!guard.doubts(), "a fifth is not more than a fifth");
    }

    #[test]
    fn too_many_at_once_are_doubted_but_not_on_the_word_of_a_few() {
        let mut guard = guard();
        (0..49).for_each(|_| guard.count(true, NOW));
        assert!(!guard.doubts());
        guard.count(true, NOW);
        assert!(guard.doubts());
        guard.clear();
        assert!(!guard.doubts());
    }

    #[test]
    fn the_same_number_over_hours_is_how_addresses_end() {
        let mut guard = guard();
        (0..1_000).for_each(|minute| guard.count(true, NOW + Duration::from_secs(minute * 60)));
        assert!(!guard.doubts());
    }

    #[test]
    fn an_operators_word_stands() {
        let mut guard = guard();
        guard.overrule(true);
        (0..100).for_each(|_| guard.count(true, NOW));
        assert!(!guard.doubts());
        guard.overrule(false);
        (0..100).for_each(|_| guard.count(true, NOW));
        assert!(guard.doubts());
    }
}

//! The newest settlements of a consumer, by which a repeated one is known: its first answer may have been lost.

/// How many leases are remembered: many times what is settled at once.
const KNOWN_MAX: u64 = 16_384;

/// The tokens of leases that were settled. A token has its place by its number, so that a look costs the same however
/// many are known, and a newer lease takes the place of an old one.
#[derive(Default)]
pub(crate) struct SettledBefore(Vec<u64>);

impl SettledBefore {
    pub(crate) fn add(&mut self, token: u64) {
        if self.0.is_empty() {
            self.0 = vec![0; KNOWN_MAX as usize];
        }
        if let Some(place) = self.0.get_mut((token % KNOWN_MAX) as usize) {
            *place = token;
        }
    }

    pub(crate) fn contains(&self, token: u64) -> bool {
        token != 0 && self.0.get((token % KNOWN_MAX) as usize) == Some(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_leases_are_known() {
        let mut settled = SettledBefore::default();
        assert!(!settled.contains(0) && !settled.contains(7));
        (1..=3 * KNOWN_MAX).filter(|token| token % 2 == 0).for_each(|token| settled.add(token));
        let newest = 2 * KNOWN_MAX + 1..=3 * KNOWN_MAX;
        assert!(newest.clone().all(|token| settled.contains(token) == (token % 2 == 0)));
        assert!(!settled.contains(2) && !settled.contains(2 * KNOWN_MAX));
    }
}

//! What the active tenants of a provider found says about the provider as a whole: one tenant alone says nothing
//! about it. Pure.

/// It fails as a whole if so many of its active tenants, two at least, find it down.
const DOWN_SHARE: f64 = 0.8;
/// It wants to be left alone as a whole if it said so to so many of them, two at least.
const PAUSED_SHARE: f64 = 0.5;

/// Tenants that something holds for, among all that are active.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActiveShare {
    pub those: usize,
    pub all: usize,
}

impl ActiveShare {
    /// Whether the provider is down, if those find it down.
    pub fn is_down_for_all(self) -> bool {
        self.is_at_least(DOWN_SHARE)
    }

    /// Whether it wants to be left alone, if it said so to those.
    pub fn is_paused_for_most(self) -> bool {
        self.is_at_least(PAUSED_SHARE)
    }

    fn is_at_least(self, share: f64) -> bool {
        self.those >= 2 && self.those as f64 >= share * self.all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tenant_says_nothing_about_the_provider_and_most_of_several_do() {
        let cases = [(1, 1), (2, 2), (7, 10), (8, 10), (5, 10), (4, 10)];
        let shares = cases.map(|(those, all)| ActiveShare { those, all });
        let down = shares.map(ActiveShare::is_down_for_all);
        let paused = shares.map(ActiveShare::is_paused_for_most);
        assert_eq!(down, [false, true, false, true, false, false]);
        assert_eq!(paused, [false, true, true, true, true, false]);
    }
}

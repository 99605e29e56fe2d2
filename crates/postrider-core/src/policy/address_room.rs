//! How many addresses something is remembered about, over all tenants and origins. One tenant gets a quarter at most,
//! so that its bad addresses never leave the others without memory. Reads no clock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Addresses of all tenants.
const ADDRESSES_MAX: usize = 65_536;
/// Addresses of one tenant, at all origins.
const ADDRESSES_PER_TENANT: usize = ADDRESSES_MAX / 4;
/// So many tenants are listed before those that have nothing are dropped.
const TENANTS_MIN: usize = 1_024;

#[derive(Debug, Default)]
pub struct AddressRoom {
    used: AtomicUsize,
    tenants: Mutex<HashMap<u64, Weak<AtomicUsize>>>,
}

/// The part of one tenant.
#[derive(Debug, Default)]
pub struct AddressShare {
    room: Arc<AddressRoom>,
    used: Arc<AtomicUsize>,
}

impl AddressRoom {
    /// The part of a tenant, which a number stands for. Its parts at several origins count together.
    pub fn share(self: &Arc<Self>, tenant: u64) -> AddressShare {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= TENANTS_MIN && tenants.len().is_power_of_two() {
            tenants.retain(|_, used| used.strong_count() > 0);
        }
        let known = tenants.get(&tenant).and_then(Weak::upgrade);
        let used = known.unwrap_or_else(|| {
            let used = Arc::default();
            tenants.insert(tenant, Arc::downgrade(&used));
            used
        });
        AddressShare { room: self.clone(), used }
    }
}

impl AddressShare {
    /// Takes room for one address, if there is some.
    pub fn take(&self) -> bool {
        if !add_below(&self.used, ADDRESSES_PER_TENANT) {
            return false;
        }
        let is_taken = add_below(&self.room.used, ADDRESSES_MAX);
        if !is_taken {
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
        is_taken
    }

    pub fn give_back(&self, count: usize) {
        self.used.fetch_sub(count, Ordering::Relaxed);
        self.room.used.fetch_sub(count, Ordering::Relaxed);
    }
}

fn add_below(count: &AtomicUsize, max: usize) -> bool {
    let add = |count| (count < max).then_some(count + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_gets_a_quarter_at_all_origins_together() {
        let room = Arc::new(AddressRoom::default());
        let (here, there, other) = (room.share(1), room.share(1), room.share(2));
        let taken =
            (0..ADDRESSES_MAX).filter(|n| if n % 2 == 0 { here.take() } else { there.take() });
        assert_eq!(taken.count(), ADDRESSES_PER_TENANT);
        assert!(other.take());
        here.give_back(1);
        assert!(there.take() && !here.take());
    }

    #[test]
    fn all_tenants_share_what_there_is() {
        let room = Arc::new(AddressRoom::default());
        let shares: Vec<_> = (0..8).map(|tenant| room.share(tenant)).collect();
        let taken = (0..ADDRESSES_MAX * 2).filter(|n| shares[n % 8].take()).count();
        assert_eq!(taken, ADDRESSES_MAX);
        shares[0].give_back(1);
        assert!(shares[1].take());
    }

    #[test]
    fn tenants_that_nothing_is_remembered_about_are_forgotten() {
        let room = Arc::new(AddressRoom::default());
        (0..100_000).for_each(|tenant| drop(room.share(tenant)));
        assert!(room.tenants.lock().unwrap().len() <= TENANTS_MIN);
    }
}

//! Why calls to one address are put off, as people are shown it. Changes nothing.

use postrider_core::policy::address_turns::{SLOW_SHARE, is_slow};
use postrider_core::{AddressHash, LaneKey, Timestamp};

use super::own_places::LongPlaceUse;
use super::provider::{ProviderGates, number};
use super::{Lanes, ProviderKey};

/// Why calls to one address are put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressRest {
    /// It failed so often in a row since then, while so many others of the tenant there work. It gets one call at a
    /// time, and none before `until`.
    Sick { failures: u32, since: Timestamp, others_well: usize, until: Timestamp },
    /// It asked to be left alone until then.
    AskedToWait { until: Timestamp },
    /// Its answers take so long (0 if none came yet), and it needs one of the places for long calls.
    Slow { took_ms: u32, places: SlowPlaces },
}

/// The places that a slow address needs, at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlowPlaces {
    /// The origin's, if so many of them are in use that none is left for the address.
    OfOrigin { used: usize, of: usize },
    /// Its own calls under way take as many as one address may, of those that are free.
    OfAddress { under_way: usize, free: usize },
    /// This server's.
    OfServer(LongPlaceUse),
    /// One is free.
    Free,
}

impl Lanes {
    /// Why calls to this address are put off at this moment, if they are.
    pub fn address_rest(&self, lane: &LaneKey, address: AddressHash) -> Option<AddressRest> {
        let rest = |origin| self.address_rest_at(&origin, lane, address.number());
        self.origins(lane).into_iter().find_map(rest)
    }

    fn address_rest_at(
        &self,
        origin: &ProviderKey,
        lane: &LaneKey,
        target: u64,
    ) -> Option<AddressRest> {
        let now = self.clock.now();
        let provider = self.providers().get(origin).cloned()?;
        let gates = provider.gates();
        let health = gates.known_trouble(&lane.tenant).map(|own| &own.health);
        let known = health.and_then(|health| health.addresses.condition(target));
        if let Some((known, health)) = known.zip(health).filter(|(known, _)| known.is_sick) {
            let others = health.votes_of_others(target, now);
            return Some(AddressRest::Sick {
                failures: known.failures,
                since: known.failing_since,
                others_well: others.voters - others.bad,
                until: known.until,
            });
        }
        if let Some(known) = known.filter(|known| known.until > now) {
            return Some(AddressRest::AskedToWait { until: known.until });
        }
        let overdue = gates.places.overdue_at(number(&lane.tenant), target);
        let is_slow = is_slow(health.map(|health| &health.addresses), target, overdue);
        if !is_slow || gates.long_places(now) == 0 {
            return None;
        }
        let places = self.slow_places(&gates, provider.number(), lane, overdue);
        Some(AddressRest::Slow { took_ms: known.map_or(0, |known| known.took_ms), places })
    }

    /// What a slow address with so many long calls under way would find.
    fn slow_places(
        &self,
        gates: &ProviderGates,
        origin: u64,
        lane: &LaneKey,
        under_way: usize,
    ) -> SlowPlaces {
        let of = gates.long_places(self.clock.now());
        let free = gates.places.free_long(of);
        let all = self.policies.now().limits.concurrency;
        let tenant = number(&lane.tenant);
        if free == 0 {
            return SlowPlaces::OfOrigin { used: gates.places.long(), of };
        }
        if self.global.room_apart(all, tenant, origin, true) == 0 {
            return SlowPlaces::OfServer(self.global.long_use(all, tenant, origin, true));
        }
        match SLOW_SHARE * under_way > free {
            true => SlowPlaces::OfAddress { under_way, free },
            false => SlowPlaces::Free,
        }
    }
}

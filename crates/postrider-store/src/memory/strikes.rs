//! The model's strikes of addresses.

use postrider_core::policy::strikes;
use postrider_core::ports::store::{AddressLearning, Page, StrikeFilter, StruckAddress};
use postrider_core::{Address, AddressHash, AddressStatus, Decision, Strike, TenantId, Timestamp};

use super::rows::MemoryTables;
use crate::view;

/// An address of a tenant, registered or not.
pub(super) type AddressKey = (TenantId, AddressHash);

impl MemoryTables {
    pub(super) fn addresses_at(
        &mut self,
        place: &AddressKey,
    ) -> impl Iterator<Item = &mut Address> {
        self.addresses.values_mut().filter(|a| a.tenant == place.0 && a.hash == place.1)
    }

    pub(super) fn strikes_of(&self, tenant: &TenantId, hash: AddressHash) -> Vec<Strike> {
        self.strikes.get(&(tenant.clone(), hash)).cloned().unwrap_or_default()
    }

    /// What a settlement says about its address.
    pub(super) fn learn(
        &mut self,
        place: &AddressKey,
        learned: AddressLearning,
        decision: &Decision,
        now: Timestamp,
    ) {
        if *decision == Decision::Done {
            self.forgive(place);
        }
        if let Some(struck) = learned.strike {
            let known = self.strikes.entry(place.clone()).or_default();
            let mut strike = Strike::after(known, struck.kind, now);
            strike.suspect |= struck.suspect;
            known.retain(|other| other.kind != struck.kind);
            known.push(strike);
            known.sort_by_key(|strike| strike.kind);
        }
        let suspect = learned.strike.is_some_and(|struck| struck.suspect);
        for address in self.addresses_at(place) {
            if suspect && address.status == AddressStatus::Active {
                address.status = AddressStatus::Suspect;
            }
            if let Some(target) = learned.target.as_deref().filter(|_| address.target.is_some()) {
                address.target = Some(target.clone());
            }
        }
    }

    /// Whether there was anything to forgive.
    pub(super) fn forgive(&mut self, place: &AddressKey) -> bool {
        let struck = self.strikes.remove(place).is_some();
        for address in self.addresses_at(place) {
            if address.status == AddressStatus::Suspect {
                address.status = AddressStatus::Active;
            }
        }
        struck
    }

    pub(super) fn forget_old_strikes(&mut self, now: Timestamp) {
        self.strikes.retain(|_, known| {
            known.retain(|strike| strike.last_at > now - strikes::KEPT);
            !known.is_empty()
        });
    }

    pub(super) fn struck(
        &self,
        tenant: &TenantId,
        which: &StrikeFilter,
    ) -> Page<StruckAddress, AddressHash> {
        let limit = which.limit.max(1);
        let found = self
            .strikes
            .iter()
            .filter(|((of, _), _)| of == tenant)
            .filter(|((_, hash), _)| which.hash.is_none_or(|wanted| wanted == *hash))
            .filter(|((_, hash), _)| which.cursor.is_none_or(|cursor| *hash > cursor))
            .filter(|(_, known)| !which.suspect || known.iter().any(|strike| strike.suspect))
            .map(|((_, hash), known)| StruckAddress { hash: *hash, strikes: known.clone() })
            .take(limit + 1);
        view::page(found.collect(), limit, |struck| struck.hash)
    }
}

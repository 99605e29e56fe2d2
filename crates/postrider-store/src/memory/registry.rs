//! The model's registry.

use async_trait::async_trait;
use postrider_core::model::id::order_key;
use postrider_core::ports::store::*;
use postrider_core::{Address, AddressHash, AddressId, AddressStatus, KeyId, TenantId};

use super::MemoryStore;
use crate::progress::AddressEnd;
use crate::view::page;

#[async_trait]
impl Registry for MemoryStore {
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let place = (new.tenant.clone(), new.hash);
        let mark = AddressEnd::when_registered(rows.gone.remove(&place));
        rows.gone.extend(mark.map(|mark| (place.clone(), mark)));
        rows.strikes.remove(&place);
        let known = rows.addresses_at(&place).next().map(|address| address.id);
        let id = known.unwrap_or_else(|| AddressId(self.ids().next(now)));
        let address = Address {
            id,
            tenant: new.tenant,
            recipient: new.recipient,
            channel: new.target.channel(),
            hash: new.hash,
            target: Some(new.target),
            status: AddressStatus::Active,
            created_at: id.created_at(),
            gone_at: None,
        };
        rows.addresses.insert(id, address.clone());
        Ok((address, known.is_none()))
    }

    async fn address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<Option<Address>> {
        Ok(self.rows().addresses.get(&id).filter(|a| a.tenant == *tenant).cloned())
    }

    async fn delete_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        cancels: bool,
    ) -> StoreResult<bool> {
        let key = order_key(self.ids().next(self.clock.now()));
        let mut rows = self.rows();
        let ours = rows.addresses.get(&id).is_some_and(|a| a.tenant == *tenant);
        let removed = if ours { rows.addresses.remove(&id) } else { None };
        let Some(address) = removed else { return Ok(false) };
        if cancels {
            let place = (address.tenant, address.hash);
            let mark = AddressEnd::when_deleted(rows.gone.get(&place).copied(), key);
            rows.gone.insert(place, mark);
        }
        Ok(true)
    }

    async fn known_hash(
        &self,
        tenant: &TenantId,
        hashes: &[AddressHash],
    ) -> StoreResult<Option<AddressHash>> {
        let mut rows = self.rows();
        Ok(hashes.iter().copied().find(|hash| {
            let place = (tenant.clone(), *hash);
            rows.gone.contains_key(&place)
                || rows.strikes.contains_key(&place)
                || rows.addresses_at(&place).next().is_some()
        }))
    }

    async fn rehash_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        hash: AddressHash,
    ) -> StoreResult<bool> {
        let mut rows = self.rows();
        let is_taken = rows.addresses_at(&(tenant.clone(), hash)).next().is_some();
        let known = rows.addresses.get_mut(&id).filter(|a| a.tenant == *tenant && !is_taken);
        let Some(address) = known else { return Ok(false) };
        let old = (tenant.clone(), std::mem::replace(&mut address.hash, hash));
        let new = (tenant.clone(), hash);
        if let Some(mark) = rows.gone.remove(&old) {
            rows.gone.insert(new.clone(), mark);
        }
        if let Some(strikes) = rows.strikes.remove(&old) {
            rows.strikes.insert(new, strikes);
        }
        Ok(true)
    }

    async fn addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> StoreResult<Page<Address, AddressId>> {
        let rows = self.rows();
        let limit = limit.max(1);
        let found = rows
            .addresses
            .values()
            .filter(|a| a.tenant == *tenant && cursor.is_none_or(|cursor| a.id > cursor))
            .filter(|a| recipient.is_none_or(|r| a.recipient.as_deref() == Some(r)))
            .take(limit + 1)
            .cloned();
        Ok(page(found.collect(), limit, |address| address.id))
    }

    async fn strikes(
        &self,
        tenant: &TenantId,
        which: StrikeFilter,
    ) -> StoreResult<Page<StruckAddress, AddressHash>> {
        Ok(self.rows().struck(tenant, &which))
    }

    async fn forgive(&self, tenant: &TenantId, hash: AddressHash) -> StoreResult<bool> {
        Ok(self.rows().forgive(&(tenant.clone(), hash)))
    }

    fn new_key_id(&self) -> KeyId {
        KeyId(self.ids().next(self.clock.now()))
    }
}

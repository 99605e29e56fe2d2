//! The model's registry.

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{Address, AddressHash, AddressId, AddressStatus, KeyId, TenantId};

use super::MemoryStore;
use crate::view::page;

#[async_trait]
impl Registry for MemoryStore {
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let place = (new.tenant.clone(), new.hash);
        rows.gone.remove(&place);
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

    async fn delete_address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<bool> {
        let mut rows = self.rows();
        let ours = rows.addresses.get(&id).is_some_and(|a| a.tenant == *tenant);
        Ok(ours && rows.addresses.remove(&id).is_some())
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

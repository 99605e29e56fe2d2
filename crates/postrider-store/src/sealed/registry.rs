//! The registry: addresses and their recipients are sealed.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{Address, AddressHash, AddressId, KeyId, TenantId};

use super::SealedStore;

impl SealedStore {
    /// What cannot be read any more is absent.
    async fn open_address(&self, mut address: Address) -> StoreResult<Address> {
        let tenant = address.tenant.clone();
        address.recipient = self.keys.open_recipient(&tenant, address.recipient.take()).await?;
        if let Some(target) = &address.target {
            match self.keys.open_target(&tenant, target).await? {
                Ok(Some(opened)) => address.target = Some(opened),
                Ok(None) => {}
                Err(_) => address.target = None,
            }
        }
        Ok(address)
    }
}

#[async_trait]
impl Registry for SealedStore {
    async fn put_address(&self, mut new: NewAddress) -> StoreResult<(Address, bool)> {
        new.recipient = self.keys.seal_recipient(&new.tenant, new.recipient.as_ref()).await?;
        new.target = self.keys.seal_target(&new.tenant, &new.target).await?;
        let (address, is_new) = self.inner.put_address(new).await?;
        Ok((self.open_address(address).await?, is_new))
    }

    async fn address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<Option<Address>> {
        match self.inner.address(tenant, id).await? {
            Some(address) => Ok(Some(self.open_address(address).await?)),
            None => Ok(None),
        }
    }

    async fn delete_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        cancels: bool,
    ) -> StoreResult<bool> {
        self.inner.delete_address(tenant, id, cancels).await
    }

    async fn known_hash(
        &self,
        tenant: &TenantId,
        hashes: &[AddressHash],
    ) -> StoreResult<Option<AddressHash>> {
        self.inner.known_hash(tenant, hashes).await
    }

    async fn rehash_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        hash: AddressHash,
    ) -> StoreResult<bool> {
        self.inner.rehash_address(tenant, id, hash).await
    }

    async fn addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> StoreResult<Page<Address, AddressId>> {
        let recipient = recipient.map(Arc::from);
        let sealed = self.keys.seal_recipient(tenant, recipient.as_ref()).await?;
        let page = self.inner.addresses(tenant, sealed.as_deref(), cursor, limit).await?;
        let mut items = Vec::with_capacity(page.items.len());
        for address in page.items {
            items.push(self.open_address(address).await?);
        }
        Ok(Page { items, next: page.next })
    }

    async fn strikes(
        &self,
        tenant: &TenantId,
        which: StrikeFilter,
    ) -> StoreResult<Page<StruckAddress, AddressHash>> {
        self.inner.strikes(tenant, which).await
    }

    async fn forgive(&self, tenant: &TenantId, hash: AddressHash) -> StoreResult<bool> {
        self.inner.forgive(tenant, hash).await
    }

    fn new_key_id(&self) -> KeyId {
        self.inner.new_key_id()
    }
}

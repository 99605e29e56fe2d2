//! The registry: addresses and their strikes. Knows no delivery.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Page, StoreResult};
use crate::model::address::{Address, AddressHash, Target};
use crate::model::id::{AddressId, KeyId};
use crate::model::message::TenantId;
use crate::policy::strikes::Strike;

#[derive(Debug, Clone)]
pub struct NewAddress {
    pub tenant: TenantId,
    pub recipient: Option<Arc<str>>,
    pub target: Target,
    pub hash: AddressHash,
}

/// An address with strikes, known by its hash. It need not be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StruckAddress {
    pub hash: AddressHash,
    pub strikes: Vec<Strike>,
}

/// Which struck addresses to show, in order of their hashes.
#[derive(Debug, Clone, Default)]
pub struct StrikeFilter {
    pub hash: Option<AddressHash>,
    /// Only those that are suspect.
    pub suspect: bool,
    /// The last hash of the page before.
    pub cursor: Option<AddressHash>,
    pub limit: usize,
}

#[async_trait]
pub trait Registry: Send + Sync {
    /// Registers an address; the same endpoint of the same tenant keeps its id, takes the new keys
    /// and recipient, is active again and loses its strikes. The flag says whether it is new.
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)>;
    async fn address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<Option<Address>>;
    /// With `cancels`, what was accepted before for its endpoint is not sent any more: it is halted when it is leased.
    async fn delete_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        cancels: bool,
    ) -> StoreResult<bool>;
    /// The first of these hashes that has an address, a gone mark or strikes. For endpoints whose hash was made with
    /// an older key.
    async fn known_hash(
        &self,
        tenant: &TenantId,
        hashes: &[AddressHash],
    ) -> StoreResult<Option<AddressHash>>;
    /// Gives an address another hash, with its marks and strikes. False if there is no such address, or another one has
    /// that hash.
    async fn rehash_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        hash: AddressHash,
    ) -> StoreResult<bool>;
    /// By creation, oldest first.
    async fn addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> StoreResult<Page<Address, AddressId>>;

    /// The strikes of addresses since their last success.
    async fn strikes(
        &self,
        tenant: &TenantId,
        which: StrikeFilter,
    ) -> StoreResult<Page<StruckAddress, AddressHash>>;
    /// Deletes the strikes of an address, which is then not suspect any more; false if there were none.
    /// An address that is gone stays gone.
    async fn forgive(&self, tenant: &TenantId, hash: AddressHash) -> StoreResult<bool>;

    /// A fresh id for what the store keeps but does not name itself.
    fn new_key_id(&self) -> KeyId;
}

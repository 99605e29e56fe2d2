//! The registry: addresses, keys and settings. Knows no delivery.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Page, StoreResult};
use crate::model::address::{Address, AddressHash, Target};
use crate::model::id::{AddressId, KeyId};
use crate::model::message::TenantId;
use crate::model::time::Timestamp;
use crate::policy::strikes::Strike;

/// What a caller may do with an API key.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Everything, for every tenant.
    Admin,
    /// Send, read and act, within one tenant.
    Tenant,
    /// Read, within one tenant.
    Read,
    /// Read, also stored bodies, within one tenant.
    Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub id: KeyId,
    pub tenant: TenantId,
    pub name: Box<str>,
    pub scope: KeyScope,
    /// SHA-256 of the secret. The secret itself is shown once and not stored.
    pub secret_hash: [u8; 32],
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SigningKind {
    /// P-256 private key, PKCS#8.
    Vapid,
    /// Standard Webhooks secret: the raw bytes behind `whsec_`.
    Webhook,
    /// Key under which endpoints are hashed. Belongs to no tenant.
    Hash,
}

/// A key that signs for us.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    pub id: KeyId,
    pub tenant: TenantId,
    pub kind: SigningKind,
    pub secret: Vec<u8>,
    pub created_at: Timestamp,
    /// When it stopped being the active one.
    pub retired_at: Option<Timestamp>,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

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
    async fn delete_address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<bool>;
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

    async fn put_api_key(&self, key: ApiKey) -> StoreResult<()>;
    async fn revoke_api_key(&self, id: KeyId) -> StoreResult<bool>;
    async fn api_keys(&self) -> StoreResult<Vec<ApiKey>>;

    /// Adds a key and, with it, retires the active one of the same tenant and kind.
    async fn put_signing_key(&self, key: SigningKey) -> StoreResult<()>;
    async fn signing_keys(&self) -> StoreResult<Vec<SigningKey>>;

    /// Stores a small text (JSON) under a name; deletes it if `json` is absent.
    async fn put_setting(&self, name: &str, json: Option<&str>) -> StoreResult<()>;
    /// All of them, by name.
    async fn settings(&self) -> StoreResult<Vec<(String, String)>>;

    /// A fresh id for what the store keeps but does not name itself.
    fn new_key_id(&self) -> KeyId;
}

//! Encryption at rest: a store around any other one that seals bodies, addresses, recipients and our own keys before
//! they are written, and opens what is read. The store inside never sees them. Each tenant has a data key, and a master
//! key wraps the data keys. What was written before encryption was turned on is read as it is.

mod cipher;
mod consumer;
mod data_keys;
mod documents;
mod entries;
mod intake;
mod ledger;
mod master_key;
mod registry;

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::rate_slice::RateSlice;
use postrider_core::ports::store::*;
use postrider_core::{Clock, Target, TenantId, Timestamp};

use cipher::{FieldKind, OpenError, SealedName, is_sealed};
use consumer::SealedConsumer;
pub use data_keys::{DataKeys, SealingStatus};
pub use master_key::{MasterKey, MasterKeyError};

/// A store whose content is encrypted.
pub struct SealedStore {
    inner: Arc<dyn Store>,
    keys: Arc<DataKeys>,
}

impl SealedStore {
    /// `masters` are the master keys, the one to use first. An error if a data key is wrapped by another one.
    pub async fn open(inner: Arc<dyn Store>, masters: Vec<MasterKey>) -> StoreResult<Self> {
        let keys = Arc::new(DataKeys::new(inner.clone(), masters));
        keys.check().await?;
        let store = Self { inner, keys };
        store.seal_old_documents().await?;
        Ok(store)
    }

    /// The keys, for rotating and destroying them.
    pub fn keys(&self) -> Arc<DataKeys> {
        self.keys.clone()
    }
}

/// An error if the store has data keys, so that it cannot be read without a master key.
pub async fn check_unsealed(store: &dyn Store) -> StoreResult<()> {
    match data_keys::are_there(store).await? {
        false => Ok(()),
        true => Err(StoreError::Unusable {
            what: "the store is encrypted, and the configuration names no master key; \
                   set encryption.key to the one it was encrypted with"
                .to_owned(),
        }),
    }
}

/// The fields of a sealed address. Its channel stays readable.
#[derive(serde::Serialize, serde::Deserialize)]
struct SealedTarget<T> {
    sealed: T,
}

impl DataKeys {
    async fn seal(&self, tenant: &TenantId, kind: FieldKind, text: &str) -> StoreResult<String> {
        self.key(tenant).await?.seal(tenant, kind, text)
    }

    /// What was sealed; a text that was not is answered as it is.
    async fn open<'a>(
        &self,
        tenant: &TenantId,
        kind: FieldKind,
        text: &'a str,
    ) -> StoreResult<Result<std::borrow::Cow<'a, str>, OpenError>> {
        if !is_sealed(text) {
            return Ok(Ok(text.into()));
        }
        let Some(name) = SealedName::parse(text).filter(|name| name.owner == tenant.as_str())
        else {
            return Ok(Err(OpenError::Damaged));
        };
        let key = self.key_of_generation(tenant, name.generation).await?;
        let Some(key) = key else { return Ok(Err(OpenError::KeyDestroyed)) };
        Ok(key.open(tenant, kind, &name).map(Into::into))
    }

    async fn seal_target(&self, tenant: &TenantId, target: &Target) -> StoreResult<Target> {
        let sealed = self.seal(tenant, FieldKind::Target, target.as_json()).await?;
        Ok(Target::new(target.channel(), &SealedTarget { sealed }))
    }

    async fn open_target(
        &self,
        tenant: &TenantId,
        target: &Target,
    ) -> StoreResult<Result<Option<Target>, OpenError>> {
        let Ok(SealedTarget { sealed }) = target.read::<SealedTarget<&str>>() else {
            return Ok(Ok(None));
        };
        let text = match self.open(tenant, FieldKind::Target, sealed).await? {
            Ok(text) => text,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Target::from_stored(&text).map(Some).ok_or(OpenError::Damaged))
    }

    /// Always the same for the same recipient, so that it can be searched for.
    async fn seal_recipient(
        &self,
        tenant: &TenantId,
        recipient: Option<&Arc<str>>,
    ) -> StoreResult<Option<Arc<str>>> {
        let Some(recipient) = recipient else { return Ok(None) };
        let sealed = self.key(tenant).await?.seal_searchable(tenant, recipient)?;
        Ok(Some(sealed.into()))
    }

    /// Absent if it cannot be read any more.
    async fn open_recipient(
        &self,
        tenant: &TenantId,
        recipient: Option<Arc<str>>,
    ) -> StoreResult<Option<Arc<str>>> {
        let Some(recipient) = recipient.as_deref() else { return Ok(None) };
        let opened = self.open(tenant, FieldKind::Recipient, recipient).await?;
        Ok(opened.ok().map(|text| text.into()))
    }
}

#[async_trait]
impl Store for SealedStore {
    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }

    async fn consumer(&self, node: &str) -> StoreResult<Arc<dyn Consumer>> {
        let inner = self.inner.consumer(node).await?;
        let (store, keys) = (self.inner.clone(), self.keys.clone());
        Ok(Arc::new(SealedConsumer { inner, store, keys }))
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[async_trait]
impl Shares for SealedStore {
    async fn grant(&self, limit: &str, rate: Rate, want: u32) -> StoreResult<RateSlice> {
        self.inner.grant(limit, rate, want).await
    }
}

#[async_trait]
impl AuditLog for SealedStore {
    async fn append_audit(&self, records: Vec<AuditRecord>) -> StoreResult<bool> {
        self.inner.append_audit(records).await
    }

    async fn audit_records(&self, filter: AuditFilter) -> StoreResult<Vec<AuditRecord>> {
        self.inner.audit_records(filter).await
    }

    async fn prune_audit(&self, upto: u64) -> StoreResult<u64> {
        self.inner.prune_audit(upto).await
    }
}

/// Counts with the names of tenants and providers, which lanes have as they are, too.
#[async_trait]
impl Rollups for SealedStore {
    async fn put_rollups(&self, parts: Vec<RollupPart>) -> StoreResult<()> {
        self.inner.put_rollups(parts).await
    }

    async fn rollups(&self, filter: RollupFilter) -> StoreResult<Vec<RollupPart>> {
        self.inner.rollups(filter).await
    }

    async fn rollups_behind(
        &self,
        after: Option<RollupName>,
        limit: usize,
    ) -> StoreResult<Vec<RollupPart>> {
        self.inner.rollups_behind(after, limit).await
    }

    async fn prune_rollups(&self, span: RollupSpan, before: Timestamp) -> StoreResult<u64> {
        self.inner.prune_rollups(span, before).await
    }
}

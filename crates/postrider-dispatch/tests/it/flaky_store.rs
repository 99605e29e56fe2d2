//! The reference store with a disk that can fail, and with an eye on who asks it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::{
    Admission, ApiKey, CancelResult, Counts, DedupKey, DeliveryFilter, HeldDeliveries, LaneDepth,
    LeasedDelivery, Ledger, Load, MessageView, NewAddress, NewMessage, Page, Queue, ReadyLane,
    Registry, Replay, Retention, Selection, SettleResult, Settlement, SigningKey, StoreError,
    StoreResult, StrikeFilter, StruckAddress,
};
use postrider_core::{
    Address, AddressHash, AddressId, Delivery, DeliveryId, KeyId, LaneId, LaneKey, MessageId,
    TenantId, Timestamp,
};
use postrider_store::{ManualClock, MemoryStore};

pub(crate) struct FlakyStore {
    pub(crate) inner: Arc<MemoryStore>,
    /// Settlements and starts fail as on a full disk.
    pub(crate) full: AtomicBool,
    /// Settlements panic.
    pub(crate) panics: AtomicBool,
    /// How long it takes to note a start.
    pub(crate) start_takes: Option<(Arc<ManualClock>, Duration)>,
    /// How often somebody began to wait for work.
    pub(crate) waits: AtomicUsize,
}

impl FlakyStore {
    pub(crate) fn over(inner: Arc<MemoryStore>) -> Self {
        let (full, panics) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { inner, full, panics, start_takes: None, waits: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl Queue for FlakyStore {
    async fn accept(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<Admission>> {
        self.inner.accept(messages).await
    }

    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>> {
        self.inner.repeats(keys).await
    }

    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        self.inner.ready_lanes(limit).await
    }

    async fn lease(
        &self,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        self.inner.lease(lane, max, duration).await
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> StoreResult<Vec<SettleResult>> {
        assert!(!self.panics.load(Ordering::SeqCst), "on purpose");
        if self.full.load(Ordering::SeqCst) {
            return Err(StoreError::Full { what: "no space left".to_owned(), cause: None });
        }
        self.inner.settle(settlements).await
    }

    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        if self.full.load(Ordering::SeqCst) {
            return Err(StoreError::Full { what: "no space left".to_owned(), cause: None });
        }
        if let Some((clock, long)) = &self.start_takes {
            clock.advance(*long);
        }
        self.inner.start(attempts).await
    }

    async fn wait_for_work(&self, at_most: Duration) {
        self.waits.fetch_add(1, Ordering::SeqCst);
        self.inner.wait_for_work(at_most).await;
    }

    async fn lease_expired(
        &self,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        self.inner.lease_expired(max, duration).await
    }

    fn load(&self, tenant: Option<&TenantId>) -> Load {
        self.inner.load(tenant)
    }

    fn suspend(&self, lane: LaneId, until: Timestamp) {
        self.inner.suspend(lane, until);
    }

    fn resume(&self, lane: Option<LaneId>) {
        self.inner.resume(lane);
    }
}

#[async_trait]
impl Ledger for FlakyStore {
    async fn message(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<MessageView>> {
        self.inner.message(tenant, id).await
    }

    async fn content(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<Arc<str>>> {
        self.inner.content(tenant, id).await
    }

    async fn delivery(
        &self,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> StoreResult<Option<Delivery>> {
        self.inner.delivery(tenant, id).await
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> StoreResult<Page<Delivery, DeliveryId>> {
        self.inner.deliveries(filter).await
    }

    async fn dead_letters(
        &self,
        filter: DeliveryFilter,
    ) -> StoreResult<Page<Delivery, DeliveryId>> {
        self.inner.dead_letters(filter).await
    }

    async fn replay(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        how: Replay,
    ) -> StoreResult<u64> {
        self.inner.replay(tenant, which, how).await
    }

    async fn discard(&self, tenant: Option<&TenantId>, which: Selection) -> StoreResult<u64> {
        self.inner.discard(tenant, which).await
    }

    async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<CancelResult>> {
        self.inner.cancel(tenant, id).await
    }

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts> {
        self.inner.counts(tenant).await
    }

    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>> {
        self.inner.lanes(tenant, limit).await
    }

    async fn oldest_pending(&self) -> StoreResult<Option<Timestamp>> {
        self.inner.oldest_pending().await
    }

    async fn prune(&self, retention: &Retention) -> StoreResult<u64> {
        self.inner.prune(retention).await
    }
}

#[async_trait]
impl HeldDeliveries for FlakyStore {
    async fn hold_pending(&self) -> StoreResult<u64> {
        self.inner.hold_pending().await
    }

    async fn release_held(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        rate_per_s: Option<f64>,
    ) -> StoreResult<u64> {
        self.inner.release_held(tenant, which, rate_per_s).await
    }
}

#[async_trait]
impl Registry for FlakyStore {
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)> {
        self.inner.put_address(new).await
    }

    async fn address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<Option<Address>> {
        self.inner.address(tenant, id).await
    }

    async fn delete_address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<bool> {
        self.inner.delete_address(tenant, id).await
    }

    async fn addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> StoreResult<Page<Address, AddressId>> {
        self.inner.addresses(tenant, recipient, cursor, limit).await
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

    async fn put_api_key(&self, key: ApiKey) -> StoreResult<()> {
        self.inner.put_api_key(key).await
    }

    async fn revoke_api_key(&self, id: KeyId) -> StoreResult<bool> {
        self.inner.revoke_api_key(id).await
    }

    async fn api_keys(&self) -> StoreResult<Vec<ApiKey>> {
        self.inner.api_keys().await
    }

    async fn put_signing_key(&self, key: SigningKey) -> StoreResult<()> {
        self.inner.put_signing_key(key).await
    }

    async fn signing_keys(&self) -> StoreResult<Vec<SigningKey>> {
        self.inner.signing_keys().await
    }

    async fn put_setting(&self, name: &str, json: Option<&str>) -> StoreResult<()> {
        self.inner.put_setting(name, json).await
    }

    async fn settings(&self) -> StoreResult<Vec<(String, String)>> {
        self.inner.settings().await
    }

    fn new_key_id(&self) -> KeyId {
        self.inner.new_key_id()
    }
}

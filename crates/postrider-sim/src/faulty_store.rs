//! The store's ports on a disk with faults: new work suffers from them, ledger and registry do not.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::rate_slice::RateSlice;
use postrider_core::ports::store::{
    Admission, AuditFilter, AuditLog, AuditRecord, CancelResult, Consumer, Counts, DedupKey,
    DeliveryFilter, Document, DocumentChanges, DocumentVersion, Documents, Entries, EntryFilter,
    EntryKey, EntryResult, EntryWrite, HeldDeliveries, Intake, LaneDepth, Ledger, Load,
    MessageView, NewAddress, NewMessage, NewReceipt, Page, PruneProgress, PutResult, ReceiptResult,
    Receipts, Registry, Replay, Retention, RollupFilter, RollupName, RollupPart, RollupSpan,
    Rollups, Selection, Shares, Store, StoreResult, StoredEntry, StrikeFilter, StruckAddress,
    TenantHoldings,
};
use postrider_core::{
    Address, AddressHash, AddressId, Clock, Delivery, DeliveryId, KeyId, LaneId, LaneKey,
    MessageId, TenantId, Timestamp,
};

use crate::faulty_consumer::{FaultyConsumer, each};
use crate::faulty_disk::{FaultyDisk, StoreOp};

/// The real store on a disk with faults. Shows every answer to the oracle first.
pub(crate) struct FaultyStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) disk: Arc<FaultyDisk>,
}

impl FaultyStore {
    fn ask<T>(&self, answer: impl Future<Output = T>) -> T {
        self.disk.ask(answer)
    }

    /// One answer for all, as the disk gives it; the oracle knows what was written.
    async fn accept_all(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<Admission>> {
        let after = self.disk.enter(StoreOp::Accept).await?;
        let answers = self.ask(self.inner.accept(messages.clone()));
        let answers = answers.into_iter().collect::<StoreResult<Vec<_>>>()?;
        if !after.torn {
            self.disk.world.with(|state| {
                let now = state.now();
                let first = state.oracle.deliveries.len();
                let result = state.oracle.accepted(&messages, &answers, now);
                state.note("accept", first, "", messages.len() as i64);
                state.report_violation(result);
            });
        }
        self.disk.leave(after, answers).await
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }

    async fn consumer(&self, node: &str) -> StoreResult<Arc<dyn Consumer>> {
        let inner = self.ask(self.inner.consumer(node))?;
        Ok(Arc::new(FaultyConsumer { inner, disk: self.disk.clone() }))
    }

    async fn close(&self) {
        self.ask(self.inner.close());
    }
}

#[async_trait]
impl AuditLog for FaultyStore {
    async fn append_audit(&self, records: Vec<AuditRecord>) -> StoreResult<bool> {
        self.ask(self.inner.append_audit(records))
    }

    async fn audit_records(&self, filter: AuditFilter) -> StoreResult<Vec<AuditRecord>> {
        self.ask(self.inner.audit_records(filter))
    }

    async fn prune_audit(&self, upto: u64) -> StoreResult<u64> {
        self.ask(self.inner.prune_audit(upto))
    }
}

#[async_trait]
impl Entries for FaultyStore {
    async fn entries(&self, keys: Vec<EntryKey>) -> StoreResult<Vec<Option<StoredEntry>>> {
        self.ask(self.inner.entries(keys))
    }

    async fn write_entries(&self, writes: Vec<EntryWrite>) -> StoreResult<Vec<EntryResult>> {
        self.ask(self.inner.write_entries(writes))
    }

    async fn entries_behind(
        &self,
        after: Option<EntryKey>,
        limit: usize,
    ) -> StoreResult<Vec<StoredEntry>> {
        self.ask(self.inner.entries_behind(after, limit))
    }

    async fn list_entries(&self, filter: EntryFilter) -> StoreResult<Page<StoredEntry, Arc<str>>> {
        self.ask(self.inner.list_entries(filter))
    }
}

#[async_trait]
impl Receipts for FaultyStore {
    async fn record_receipts(&self, receipts: Vec<NewReceipt>) -> Vec<StoreResult<ReceiptResult>> {
        self.ask(self.inner.record_receipts(receipts))
    }
}

#[async_trait]
impl Rollups for FaultyStore {
    async fn put_rollups(&self, parts: Vec<RollupPart>) -> StoreResult<()> {
        self.ask(self.inner.put_rollups(parts))
    }

    async fn rollups(&self, filter: RollupFilter) -> StoreResult<Vec<RollupPart>> {
        self.ask(self.inner.rollups(filter))
    }

    async fn rollups_behind(
        &self,
        after: Option<RollupName>,
        limit: usize,
    ) -> StoreResult<Vec<RollupPart>> {
        self.ask(self.inner.rollups_behind(after, limit))
    }

    async fn prune_rollups(&self, span: RollupSpan, before: Timestamp) -> StoreResult<u64> {
        self.ask(self.inner.prune_rollups(span, before))
    }
}

#[async_trait]
impl Shares for FaultyStore {
    async fn grant(&self, limit: &str, rate: Rate, want: u32) -> StoreResult<RateSlice> {
        self.ask(self.inner.grant(limit, rate, want))
    }
}

#[async_trait]
impl Intake for FaultyStore {
    async fn accept(&self, messages: Vec<NewMessage>) -> Vec<StoreResult<Admission>> {
        let count = messages.len();
        each(self.accept_all(messages).await, count)
    }

    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>> {
        let after = self.disk.enter(StoreOp::Look).await?;
        let answers = self.ask(self.inner.repeats(keys))?;
        self.disk.leave(after, answers).await
    }

    fn takes_work(&self) -> StoreResult<()> {
        self.inner.takes_work()
    }

    fn load(&self, tenant: Option<&TenantId>) -> Load {
        self.inner.load(tenant)
    }
}

#[async_trait]
impl Ledger for FaultyStore {
    async fn message(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<MessageView>> {
        self.ask(self.inner.message(tenant, id))
    }

    async fn content(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<Arc<str>>> {
        self.ask(self.inner.content(tenant, id))
    }

    async fn delivery(
        &self,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> StoreResult<Option<Delivery>> {
        self.ask(self.inner.delivery(tenant, id))
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> StoreResult<Page<Delivery, DeliveryId>> {
        self.ask(self.inner.deliveries(filter))
    }

    async fn dead_letters(
        &self,
        filter: DeliveryFilter,
    ) -> StoreResult<Page<Delivery, DeliveryId>> {
        self.ask(self.inner.dead_letters(filter))
    }

    async fn replay(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        how: Replay,
    ) -> StoreResult<u64> {
        self.ask(self.inner.replay(tenant, which, how))
    }

    async fn discard(&self, tenant: Option<&TenantId>, which: Selection) -> StoreResult<u64> {
        self.ask(self.inner.discard(tenant, which))
    }

    async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<CancelResult>> {
        self.ask(self.inner.cancel(tenant, id))
    }

    async fn cancel_deliveries(
        &self,
        tenant: Option<&TenantId>,
        ids: Vec<DeliveryId>,
    ) -> StoreResult<CancelResult> {
        self.ask(self.inner.cancel_deliveries(tenant, ids))
    }

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts> {
        self.ask(self.inner.counts(tenant))
    }

    async fn holdings(&self) -> StoreResult<Vec<TenantHoldings>> {
        self.ask(self.inner.holdings())
    }

    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>> {
        self.ask(self.inner.lanes(tenant, limit))
    }

    async fn lane_ids(&self, keys: Vec<Arc<LaneKey>>) -> StoreResult<Vec<LaneId>> {
        self.ask(self.inner.lane_ids(keys))
    }

    async fn oldest_pending(&self) -> StoreResult<Option<Timestamp>> {
        self.ask(self.inner.oldest_pending())
    }

    async fn prune(&self, retention: &Retention) -> StoreResult<PruneProgress> {
        self.ask(self.inner.prune(retention))
    }
}

#[async_trait]
impl HeldDeliveries for FaultyStore {
    async fn hold_pending(&self) -> StoreResult<u64> {
        self.ask(self.inner.hold_pending())
    }

    async fn release_held(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        rate_per_s: Option<f64>,
    ) -> StoreResult<u64> {
        self.ask(self.inner.release_held(tenant, which, rate_per_s))
    }
}

#[async_trait]
impl Registry for FaultyStore {
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)> {
        self.ask(self.inner.put_address(new))
    }

    async fn address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<Option<Address>> {
        self.ask(self.inner.address(tenant, id))
    }

    async fn delete_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        cancels: bool,
    ) -> StoreResult<bool> {
        self.ask(self.inner.delete_address(tenant, id, cancels))
    }

    async fn known_hash(
        &self,
        tenant: &TenantId,
        hashes: &[AddressHash],
    ) -> StoreResult<Option<AddressHash>> {
        self.ask(self.inner.known_hash(tenant, hashes))
    }

    async fn rehash_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        hash: AddressHash,
    ) -> StoreResult<bool> {
        self.ask(self.inner.rehash_address(tenant, id, hash))
    }

    async fn addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> StoreResult<Page<Address, AddressId>> {
        self.ask(self.inner.addresses(tenant, recipient, cursor, limit))
    }

    async fn strikes(
        &self,
        tenant: &TenantId,
        which: StrikeFilter,
    ) -> StoreResult<Page<StruckAddress, AddressHash>> {
        self.ask(self.inner.strikes(tenant, which))
    }

    async fn forgive(&self, tenant: &TenantId, hash: AddressHash) -> StoreResult<bool> {
        self.ask(self.inner.forgive(tenant, hash))
    }

    fn new_key_id(&self) -> KeyId {
        self.inner.new_key_id()
    }
}

#[async_trait]
impl Documents for FaultyStore {
    async fn put_document(
        &self,
        name: &str,
        json: Option<&str>,
        expected: Option<DocumentVersion>,
        ttl: Option<Duration>,
    ) -> StoreResult<PutResult> {
        self.ask(self.inner.put_document(name, json, expected, ttl))
    }

    async fn documents(&self, prefix: &str) -> StoreResult<Vec<Document>> {
        self.ask(self.inner.documents(prefix))
    }

    async fn changes(
        &self,
        since: DocumentVersion,
        _at_most: Duration,
    ) -> StoreResult<DocumentChanges> {
        self.ask(self.inner.changes(since, Duration::ZERO))
    }
}

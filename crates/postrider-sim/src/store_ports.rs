//! The store's ports over a [`FaultyStore`]: the queue with faults, ledger and registry without.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::{
    Admission, ApiKey, CancelResult, Counts, DedupKey, DeliveryFilter, HeldDeliveries, LaneDepth,
    LeasedDelivery, Ledger, Load, MessageView, NewAddress, NewMessage, Page, Queue, ReadyLane,
    Registry, Replay, Retention, Selection, SettleResult, Settlement, SigningKey, StoreResult,
    StrikeFilter, StruckAddress,
};
use postrider_core::{
    Address, AddressHash, AddressId, Delivery, DeliveryId, KeyId, LaneId, LaneKey, MessageId,
    TenantId, Timestamp,
};

use crate::faulty_store::{FaultyStore, StoreOp};
use crate::oracle::EventTime;

impl FaultyStore {
    fn check_leased(&self, leased: &[LeasedDelivery], lasts: Duration, asked: EventTime) {
        self.world.with(|state| {
            let now = state.now();
            let result = state.oracle.leased(leased, lasts, asked, now);
            for one in leased {
                let which = state.oracle.find(one.delivery).unwrap_or(usize::MAX);
                state.note("lease", which, "", one.attempts.into());
            }
            state.report_violation(result);
        });
    }
}

#[async_trait]
impl Queue for FaultyStore {
    async fn accept(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<Admission>> {
        let after = self.enter(StoreOp::Accept).await?;
        let answers = self.ask(self.inner.accept(messages.clone()))?;
        if !after.torn {
            self.world.with(|state| {
                let now = state.now();
                let first = state.oracle.deliveries.len();
                let result = state.oracle.accepted(&messages, &answers, now);
                state.note("accept", first, "", messages.len() as i64);
                state.report_violation(result);
            });
        }
        self.leave(after, answers).await
    }

    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>> {
        let after = self.enter(StoreOp::Look).await?;
        let answers = self.ask(self.inner.repeats(keys))?;
        self.leave(after, answers).await
    }

    fn takes_work(&self) -> StoreResult<()> {
        self.inner.takes_work()
    }

    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        let after = self.enter(StoreOp::Look).await?;
        let ready = self.ask(self.inner.ready_lanes(limit))?;
        self.leave(after, ready).await
    }

    async fn lease(
        &self,
        lane: LaneId,
        max: usize,
        lasts: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        let asked = self.world.with(|state| {
            let now = state.now();
            state.oracle.next_event(now)
        });
        let after = self.enter(StoreOp::Lease).await?;
        let leased = self.ask(self.inner.lease(lane, max, lasts))?;
        self.storage.wait_until_idle();
        self.check_leased(&leased, lasts, asked);
        self.leave(after, leased).await
    }

    async fn lease_expired(
        &self,
        max: usize,
        lasts: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        let asked = self.world.with(|state| {
            let now = state.now();
            state.oracle.next_event(now)
        });
        let after = self.enter(StoreOp::Lease).await?;
        let expired = self.ask(self.inner.lease_expired(max, lasts))?;
        self.storage.wait_until_idle();
        let leased: Vec<_> = expired.iter().map(|(_, leased)| leased.clone()).collect();
        self.check_leased(&leased, lasts, asked);
        self.leave(after, expired).await
    }

    fn load(&self, tenant: Option<&TenantId>) -> Load {
        self.inner.load(tenant)
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> StoreResult<Vec<SettleResult>> {
        let after = self.enter(StoreOp::Settle).await?;
        let answers = self.ask(self.inner.settle(settlements.clone()))?;
        if !after.torn {
            self.world.with(|state| {
                let now = state.now();
                let result = state.oracle.settled(&settlements, &answers, now);
                for (one, answer) in settlements.iter().zip(&answers) {
                    let which = state.oracle.find(one.delivery).unwrap_or(usize::MAX);
                    let how = crate::oracle::decision_name(&one.decision);
                    let what = if *answer == SettleResult::Done { "settle" } else { "fenced" };
                    state.note(what, which, how, one.attempts.len() as i64);
                }
                state.report_violation(result);
            });
        }
        self.leave(after, answers).await
    }

    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        let after = self.enter(StoreOp::Settle).await?;
        let answers = self.ask(self.inner.start(attempts.clone()))?;
        if !after.torn {
            self.world.with(|state| {
                let result = state.oracle.started(&attempts, &answers);
                state.report_violation(result);
            });
        }
        self.leave(after, answers).await
    }

    fn suspend(&self, lane: LaneId, until: Timestamp) {
        self.inner.suspend(lane, until);
    }

    fn resume(&self, lane: Option<LaneId>) {
        self.inner.resume(lane);
    }

    async fn wait_for_work(&self, at_most: Duration) {
        if self.world.is_dead() {
            return std::future::pending().await;
        }
        self.waiters.wait(self.inner.wait_for_work(at_most)).await;
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

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts> {
        self.ask(self.inner.counts(tenant))
    }

    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>> {
        self.ask(self.inner.lanes(tenant, limit))
    }

    async fn oldest_pending(&self) -> StoreResult<Option<Timestamp>> {
        self.ask(self.inner.oldest_pending())
    }

    async fn prune(&self, retention: &Retention) -> StoreResult<u64> {
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

    async fn delete_address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<bool> {
        self.ask(self.inner.delete_address(tenant, id))
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

    async fn put_api_key(&self, key: ApiKey) -> StoreResult<()> {
        self.ask(self.inner.put_api_key(key))
    }

    async fn revoke_api_key(&self, id: KeyId) -> StoreResult<bool> {
        self.ask(self.inner.revoke_api_key(id))
    }

    async fn api_keys(&self) -> StoreResult<Vec<ApiKey>> {
        self.ask(self.inner.api_keys())
    }

    async fn put_signing_key(&self, key: SigningKey) -> StoreResult<()> {
        self.ask(self.inner.put_signing_key(key))
    }

    async fn signing_keys(&self) -> StoreResult<Vec<SigningKey>> {
        self.ask(self.inner.signing_keys())
    }

    async fn put_setting(&self, key: &str, value: Option<&str>) -> StoreResult<()> {
        self.ask(self.inner.put_setting(key, value))
    }

    async fn settings(&self) -> StoreResult<Vec<(String, String)>> {
        self.ask(self.inner.settings())
    }

    fn new_key_id(&self) -> KeyId {
        self.inner.new_key_id()
    }
}

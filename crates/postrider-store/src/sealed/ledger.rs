//! The ledger: bodies and recipients are opened when they are shown. A recipient is searched for by its sealed form,
//! which each tenant has its own of.

use std::cmp::Reverse;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{Delivery, DeliveryId, LaneId, LaneKey, MessageId, TenantId, Timestamp};

use super::SealedStore;
use super::cipher::{FieldKind, SealedName};

impl SealedStore {
    async fn open_delivery(&self, mut delivery: Delivery) -> StoreResult<Delivery> {
        delivery.recipient =
            self.keys.open_recipient(&delivery.tenant, delivery.recipient.take()).await?;
        Ok(delivery)
    }

    async fn open_page(
        &self,
        page: Page<Delivery, DeliveryId>,
    ) -> StoreResult<Page<Delivery, DeliveryId>> {
        let mut items = Vec::with_capacity(page.items.len());
        for delivery in page.items {
            items.push(self.open_delivery(delivery).await?);
        }
        Ok(Page { items, next: page.next })
    }

    /// The filters that find the same as this one: one, or one per tenant if a recipient is searched for in all.
    async fn sealed_filters(&self, filter: DeliveryFilter) -> StoreResult<Vec<DeliveryFilter>> {
        let Some(recipient) = &filter.recipient else { return Ok(vec![filter]) };
        let tenants = match &filter.tenant {
            Some(tenant) => vec![tenant.clone()],
            None => self.keys.tenants().await?,
        };
        let mut filters = Vec::with_capacity(tenants.len());
        for tenant in tenants {
            let recipient = self.keys.seal_recipient(&tenant, Some(recipient)).await?;
            filters.push(DeliveryFilter { tenant: Some(tenant), recipient, ..filter.clone() });
        }
        Ok(filters)
    }

    async fn found(
        &self,
        filter: DeliveryFilter,
        is_dead: bool,
    ) -> StoreResult<Page<Delivery, DeliveryId>> {
        let (limit, mut pages) = (filter.limit, Vec::new());
        for filter in self.sealed_filters(filter).await? {
            pages.push(match is_dead {
                true => self.inner.dead_letters(filter).await?,
                false => self.inner.deliveries(filter).await?,
            });
        }
        self.open_page(merged(pages, limit)).await
    }

    /// Acts on what each of the filters selects, and adds up.
    async fn selections(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
    ) -> StoreResult<Vec<(Option<TenantId>, Selection)>> {
        let Selection::Filter(filter) = which else { return Ok(vec![(tenant.cloned(), which)]) };
        if filter.recipient.is_none() {
            return Ok(vec![(tenant.cloned(), Selection::Filter(filter))]);
        }
        let filter = DeliveryFilter { tenant: filter.tenant.or(tenant.cloned()), ..filter };
        let filters = self.sealed_filters(filter).await?;
        Ok(filters.into_iter().map(|f| (f.tenant.clone(), Selection::Filter(f))).collect())
    }
}

/// One page of several, newest first.
fn merged(mut pages: Vec<Page<Delivery, DeliveryId>>, limit: usize) -> Page<Delivery, DeliveryId> {
    if pages.len() <= 1 {
        return pages.pop().unwrap_or(Page { items: Vec::new(), next: None });
    }
    // What is older than the end of a page that goes on may be missing in that page.
    let reached = pages.iter().filter_map(|page| page.next).max();
    let mut items: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
    items.sort_unstable_by_key(|delivery| Reverse(delivery.id));
    items.retain(|delivery| reached.is_none_or(|reached| delivery.id >= reached));
    let is_cut = items.len() > limit;
    items.truncate(limit);
    let next = if is_cut { items.last().map(|delivery| delivery.id) } else { reached };
    Page { items, next }
}

#[async_trait]
impl Ledger for SealedStore {
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
        let Some(sealed) = self.inner.content(tenant, id).await? else { return Ok(None) };
        let Some(name) = SealedName::parse(&sealed) else { return Ok(Some(sealed)) };
        let owner = tenant.cloned().unwrap_or_else(|| TenantId::new(name.owner));
        let opened = self.keys.open(&owner, FieldKind::Content, &sealed).await?;
        Ok(opened.ok().map(|text| text.into()))
    }

    async fn delivery(
        &self,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> StoreResult<Option<Delivery>> {
        match self.inner.delivery(tenant, id).await? {
            Some(delivery) => Ok(Some(self.open_delivery(delivery).await?)),
            None => Ok(None),
        }
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> StoreResult<Page<Delivery, DeliveryId>> {
        self.found(filter, false).await
    }

    async fn dead_letters(
        &self,
        filter: DeliveryFilter,
    ) -> StoreResult<Page<Delivery, DeliveryId>> {
        self.found(filter, true).await
    }

    async fn replay(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        how: Replay,
    ) -> StoreResult<u64> {
        let mut count = 0;
        for (tenant, which) in self.selections(tenant, which).await? {
            count += self.inner.replay(tenant.as_ref(), which, how.clone()).await?;
        }
        Ok(count)
    }

    async fn discard(&self, tenant: Option<&TenantId>, which: Selection) -> StoreResult<u64> {
        let mut count = 0;
        for (tenant, which) in self.selections(tenant, which).await? {
            count += self.inner.discard(tenant.as_ref(), which).await?;
        }
        Ok(count)
    }

    async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<CancelResult>> {
        self.inner.cancel(tenant, id).await
    }

    async fn cancel_deliveries(
        &self,
        tenant: Option<&TenantId>,
        ids: Vec<DeliveryId>,
    ) -> StoreResult<CancelResult> {
        self.inner.cancel_deliveries(tenant, ids).await
    }

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts> {
        self.inner.counts(tenant).await
    }

    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>> {
        self.inner.lanes(tenant, limit).await
    }

    async fn lane_ids(&self, keys: Vec<Arc<LaneKey>>) -> StoreResult<Vec<LaneId>> {
        self.inner.lane_ids(keys).await
    }

    async fn oldest_pending(&self) -> StoreResult<Option<Timestamp>> {
        self.inner.oldest_pending().await
    }

    async fn holdings(&self) -> StoreResult<Vec<TenantHoldings>> {
        self.inner.holdings().await
    }

    async fn prune(&self, retention: &Retention) -> StoreResult<PruneProgress> {
        self.inner.prune(retention).await
    }

    fn check_health(&self) -> StoreHealth {
        self.inner.check_health()
    }
}

#[async_trait]
impl HeldDeliveries for SealedStore {
    async fn hold_pending(&self) -> StoreResult<u64> {
        self.inner.hold_pending().await
    }

    async fn release_held(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        rate_per_s: Option<f64>,
    ) -> StoreResult<u64> {
        let mut count = 0;
        for (tenant, which) in self.selections(tenant, which).await? {
            count += self.inner.release_held(tenant.as_ref(), which, rate_per_s).await?;
        }
        Ok(count)
    }
}

#[async_trait]
impl Receipts for SealedStore {
    async fn record_receipts(&self, receipts: Vec<NewReceipt>) -> Vec<StoreResult<ReceiptResult>> {
        let mut answers = Vec::with_capacity(receipts.len());
        for answer in self.inner.record_receipts(receipts).await {
            answers.push(match answer {
                Ok(ReceiptResult::Recorded { before, delivery }) => {
                    let opened = self.open_delivery(*delivery).await;
                    opened.map(|opened| ReceiptResult::Recorded {
                        before,
                        delivery: Box::new(opened),
                    })
                }
                answer => answer,
            });
        }
        answers
    }
}

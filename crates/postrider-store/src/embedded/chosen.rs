//! The dead letters that an operator chose, oldest first. A filter is read a chunk at a time, so that ten million
//! of them take no more memory than a thousand.

use std::collections::VecDeque;

use postrider_core::ports::store::{DeliveryFilter, Ledger, Selection};

use super::sql::prelude::*;
use crate::embedded::EmbeddedStore;
use crate::embedded::ledger_page::{LedgerRows, range, read_page};
use crate::embedded::operator::CHUNK;
use crate::embedded::shared::StoreShared;

pub(crate) struct ChosenDeadLetters<'a> {
    store: &'a EmbeddedStore,
    ids: VecDeque<DeliveryId>,
    /// What is still to be read.
    rest: Option<FilteredRest>,
}

struct FilteredRest {
    filter: DeliveryFilter,
    /// Sequences that are still to be read.
    range: (u64, u64),
    /// No more than these are chosen.
    most: usize,
}

impl EmbeddedStore {
    pub(crate) async fn choose(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
    ) -> StoreResult<ChosenDeadLetters<'_>> {
        let mut chosen = ChosenDeadLetters { store: self, ids: VecDeque::new(), rest: None };
        match which {
            Selection::Ids(mut ids) => {
                ids.sort_unstable();
                ids.dedup();
                for id in ids {
                    chosen.ids.extend(self.delivery(tenant, id).await?.map(|delivery| delivery.id));
                }
            }
            Selection::Filter(filter) => chosen.rest = self.choose_matching(tenant, filter).await?,
        }
        Ok(chosen)
    }

    async fn choose_matching(
        &self,
        tenant: Option<&TenantId>,
        mut filter: DeliveryFilter,
    ) -> StoreResult<Option<FilteredRest>> {
        match (tenant, &filter.tenant) {
            (Some(ours), Some(asked)) if ours != asked => return Ok(None),
            (Some(ours), _) => filter.tenant = Some(ours.clone()),
            (None, _) => {}
        }
        let asked = filter.clone();
        let (mut from, mut before) = self.shared.read(move |conn, _| range(conn, &asked)).await?;
        // What is accepted from now on is not meant.
        before = before.min(self.shared.ids().last() + 1);
        let most = if filter.limit == 0 { usize::MAX } else { filter.limit };
        if most < usize::MAX {
            from = from.max(self.first_of_newest(&filter, (from, before), most).await?);
        }
        Ok(Some(FilteredRest { filter, range: (from, before), most }))
    }

    /// Where the newest matching dead letters begin, so many of them.
    async fn first_of_newest(
        &self,
        filter: &DeliveryFilter,
        (from, mut before): (u64, u64),
        most: usize,
    ) -> StoreResult<u64> {
        let mut left = most;
        loop {
            let filter = DeliveryFilter { limit: CHUNK.min(left), ..filter.clone() };
            let read = move |conn: &Connection, shared: &StoreShared| {
                read_page(conn, shared, &filter, LedgerRows::DeadLetters, (from, before))
            };
            let page = self.shared.read(read).await?;
            left -= page.items.len();
            match (page.next, page.items.last()) {
                (_, Some(last)) if left == 0 => return Ok(order_key(last.id.0)),
                (Some(next), _) => before = order_key(next.0),
                (None, _) => return Ok(from),
            }
        }
    }
}

impl ChosenDeadLetters<'_> {
    /// The next ones; `None` at the end.
    pub(crate) async fn next_chunk(&mut self) -> StoreResult<Option<Vec<DeliveryId>>> {
        while self.ids.is_empty() && self.rest.is_some() {
            self.read_some().await?;
        }
        let some: Vec<_> = self.ids.drain(..self.ids.len().min(CHUNK)).collect();
        Ok(Some(some).filter(|some| !some.is_empty()))
    }

    async fn read_some(&mut self) -> StoreResult<()> {
        let Some(mut rest) = self.rest.take() else { return Ok(()) };
        let (range, limit) = (rest.range, CHUNK.min(rest.most));
        let filter = DeliveryFilter { limit, ..rest.filter.clone() };
        let read = move |conn: &Connection, shared: &StoreShared| {
            read_page(conn, shared, &filter, LedgerRows::DeadLettersOldestFirst, range)
        };
        let page = self.store.shared.read(read).await?;
        rest.most -= page.items.len();
        self.ids.extend(page.items.iter().map(|delivery| delivery.id));
        if let Some(last) = page.next.filter(|_| rest.most > 0) {
            rest.range.0 = order_key(last.0) + 1;
            self.rest = Some(rest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use postrider_core::model::decision::Decision;
    use postrider_core::ports::store::{AddressLearning, Settlement};
    use postrider_core::{Clock, DeadReason};

    use super::*;
    use crate::conformance::WorkingStore;
    use crate::conformance::message;
    use crate::embedded::StoreOptions;
    use crate::{ManualClock, conformance};

    async fn store_with_dead_letters(count: usize) -> (tempfile::TempDir, WorkingStore) {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
        store.accept((0..count).map(|_| message("acme", 1)).collect()).await.unwrap();
        let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
        let leased = store.lease(lane, count, Duration::from_secs(60)).await.unwrap();
        let bury = |leased: postrider_core::ports::store::LeasedDelivery| Settlement {
            delivery: leased.delivery,
            token: leased.token,
            attempts: vec![conformance::success(1, clock.now())],
            decision: Decision::DeadLetter(DeadReason::Permanent),
            learned: AddressLearning::default(),
        };
        store.settle(leased.into_iter().map(bury).collect()).await.unwrap();
        (dir, store)
    }

    #[tokio::test]
    async fn however_many_are_chosen_only_a_chunk_is_in_memory() {
        let count = 3 * CHUNK + 7;
        let (_dir, store) = store_with_dead_letters(count).await;
        for limit in [0, 10, CHUNK + 1, count + 1] {
            let filter = DeliveryFilter { limit, ..DeliveryFilter::default() };
            let mut chosen = store.choose(None, Selection::Filter(filter)).await.unwrap();
            let mut all = Vec::new();
            while let Some(some) = chosen.next_chunk().await.unwrap() {
                assert!(some.len() <= CHUNK && chosen.ids.is_empty());
                all.extend(some);
            }
            assert!(all.is_sorted(), "oldest first");
            let expected = if limit == 0 { count } else { limit.min(count) };
            assert_eq!(all.len(), expected);
            let newest = DeliveryFilter { limit: 1, ..DeliveryFilter::default() };
            let newest = store.dead_letters(newest).await.unwrap().items.remove(0).id;
            assert_eq!(all.last(), Some(&newest), "the newest ones are chosen");
        }
    }
}

//! The reference model: ordered maps behind one mutex. A reader can see that it is right, and every other
//! store must behave like it. Keeps nothing across a restart.

mod audit;
mod documents;
mod entries;
mod held;
mod holdings;
mod intake;
mod ledger;
mod queue;
mod receipts;
mod registry;
mod rollups;
mod rows;
mod strikes;
mod suspects;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use postrider_core::Clock;
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::rate_slice::RateSlice;
use postrider_core::ports::store::{Consumer, DocumentVersion, Shares, Store, StoreResult};

use crate::documents::DocumentSignal;
use crate::holder::{HolderLine, QueueConsumer};
use crate::ids::IdGenerator;
use crate::shared_rates::SharedRates;
use crate::work_signal::WorkSignal;
use queue::MemoryQueue;
use rows::MemoryTables;

/// A store in memory.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    work: Arc<WorkSignal>,
    documents: DocumentSignal,
    rows: Arc<Mutex<MemoryTables>>,
    ids: Mutex<IdGenerator>,
    holders: Arc<HolderLine>,
    rates: SharedRates,
}

impl MemoryStore {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            work: Arc::new(WorkSignal::new(clock.clone())),
            documents: DocumentSignal::new(DocumentVersion::NONE),
            clock,
            rows: Arc::default(),
            ids: Mutex::new(IdGenerator::above(0)),
            holders: Arc::default(),
            rates: SharedRates::default(),
        }
    }

    fn rows(&self) -> MutexGuard<'_, MemoryTables> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ids(&self) -> MutexGuard<'_, IdGenerator> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Shares for MemoryStore {
    async fn grant(&self, limit: &str, rate: Rate, want: u32) -> StoreResult<RateSlice> {
        Ok(self.rates.grant(limit, rate, want, self.clock.now()))
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    async fn consumer(&self, node: &str) -> StoreResult<Arc<dyn Consumer>> {
        let (clock, work, rows) = (self.clock.clone(), self.work.clone(), self.rows.clone());
        let queue = MemoryQueue { clock, work, rows };
        Ok(Arc::new(QueueConsumer::join(queue, self.holders.clone(), node).await?))
    }

    async fn close(&self) {}
}

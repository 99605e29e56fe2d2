//! The reference model: ordered maps behind one mutex. A reader can see that it is right, and every other
//! store must behave like it. Keeps nothing across a restart.

mod held;
mod ledger;
mod queue;
mod registry;
mod rows;
mod strikes;
mod suspects;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::Clock;

use crate::ids::IdGenerator;
use crate::work_signal::WorkSignal;
use rows::MemoryTables;

/// A store in memory.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    work: WorkSignal,
    rows: Mutex<MemoryTables>,
    ids: Mutex<IdGenerator>,
}

impl MemoryStore {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            work: WorkSignal::new(clock.clone()),
            clock,
            rows: Mutex::default(),
            ids: Mutex::new(IdGenerator::above(0)),
        }
    }

    /// Does what a crash does to a durable store: forgets every lease and marks its delivery.
    pub fn forget_leases(&self) {
        self.rows().forget_leases();
    }

    fn rows(&self) -> MutexGuard<'_, MemoryTables> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ids(&self) -> MutexGuard<'_, IdGenerator> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The classification table in force, which an operator may change while calls are under way. Every
//! answer is judged by the table of its moment.

use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::policy::classify::Table;

pub struct Tables(RwLock<Arc<Table>>);

impl Tables {
    pub fn new(table: Table) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(table))))
    }

    pub fn now(&self) -> Arc<Table> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn replace(&self, table: Table) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }
}

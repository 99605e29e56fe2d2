//! The built-in rows of all channels, which `build.rs` compiles from the sheets of answers in the channels' folders.
//! Answers are matched and interpreted by [`postrider_core::policy::classify`].

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use postrider_core::policy::classify::{AnswerRow, AnswerTable, CodePattern, Meaning, StatusRange};
use postrider_core::{Scope, StrikeKind};

include!(concat!(env!("OUT_DIR"), "/answers.rs"));

/// The table without rows of a user.
pub fn built_in() -> AnswerTable {
    with_user_rows(Vec::new())
}

/// The built-in table with a user's rows on top.
pub fn with_user_rows(rows: Vec<AnswerRow>) -> AnswerTable {
    AnswerTable::new(rows, CHANNELS.iter().copied().flatten().cloned())
}

/// The names of all services that have rows, for `[[classify]]`.
pub fn services() -> Vec<&'static str> {
    let mut names: Vec<_> = CHANNELS.iter().copied().flatten().map(|row| &*row.service).collect();
    names.dedup();
    names
}

/// The table in use, which an operator may change while calls are under way. Each answer is interpreted by the table
/// of the moment at which it comes.
pub struct CurrentAnswerTable(RwLock<Arc<AnswerTable>>);

impl CurrentAnswerTable {
    pub fn new(table: AnswerTable) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(table))))
    }

    pub fn current(&self) -> Arc<AnswerTable> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn replace(&self, table: AnswerTable) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }
}

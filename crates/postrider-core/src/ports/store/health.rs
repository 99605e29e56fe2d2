//! What is wrong in a store while it goes on. What stops it is an error instead.

use crate::model::time::Timestamp;

/// The state of a store, for metrics and operators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// The engine, where that is more than a part of this process.
    pub engine: Option<EngineStatus>,
    /// Bytes of the journal on disk; 0 if the engine has none.
    pub journal_bytes: u64,
    /// Deliveries that are set aside in this run because they cannot be read or settled.
    pub quarantined: u64,
    /// When the last backup was taken, if the engine knows.
    pub backup_at: Option<Timestamp>,
    /// What needs an operator, by code.
    pub problems: Vec<StoreProblem>,
}

/// Which engine a store has, and what it promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineStatus {
    /// Such as `PostgreSQL 15.4`.
    pub name: String,
    /// What an acknowledged message survives, by the engine's present settings.
    pub promise: String,
}

/// Something that an operator should look at. It ends by itself once its cause is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreProblem {
    /// A short name such as `journal_blocked`.
    pub code: &'static str,
    pub since: Timestamp,
    /// What was found and what helps.
    pub what: String,
}

//! The port that every store implements: small traits with batched calls and no engine's type in any
//! signature. Signatures take durations, because each store has its own clock.

mod audit;
mod consumer;
mod documents;
mod entries;
mod health;
mod held;
mod holdings;
mod intake;
mod ledger;
mod receipts;
mod registry;
mod retention;
mod rollups;
mod shares;
mod transfer;
mod work;

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;

pub use audit::*;
pub use consumer::*;
pub use documents::*;
pub use entries::*;
pub use health::*;
pub use held::*;
pub use holdings::*;
pub use intake::*;
pub use ledger::*;
pub use receipts::*;
pub use registry::*;
pub use retention::*;
pub use rollups::*;
pub use shares::*;
pub use transfer::*;
pub use work::*;

use crate::model::region::RegionNumber;
use crate::model::time::Clock;

/// What caused a [`StoreError`], as the engine reports it.
pub type StoreCause = Arc<dyn Error + Send + Sync>;

/// Why a store could not do what it was asked. The text of a cause is part of `what`, so it is printed once:
/// the cause is no `source` as well.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is no room. New work is refused, and stored work is kept. Heals when there is room again.
    #[error("the store is full: {what}")]
    Full { what: String, cause: Option<StoreCause> },
    #[error("the store cannot write or read: {what}")]
    Io { what: String, cause: Option<StoreCause> },
    #[error("the store's content is damaged: {what}")]
    Corrupt { what: String, cause: Option<StoreCause> },
    #[error("another process holds the store: {what}")]
    Locked { what: String },
    #[error(
        "the store has layout {found}, and this version of Postrider knows layouts up to {known}: \
         a newer version wrote it; run that version, or restore a backup from before the upgrade"
    )]
    NewerLayout { found: u32, known: u32 },
    /// It can be read, but must not be used so.
    #[error("{what}")]
    Unusable { what: String },
    #[error("the store is shutting down")]
    Closed,
}

impl StoreError {
    pub fn full(what: &str, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Full { what: format!("{what}: {cause}"), cause: Some(Arc::new(cause)) }
    }

    pub fn io(what: &str, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Io { what: format!("{what}: {cause}"), cause: Some(Arc::new(cause)) }
    }
}

pub type StoreResult<T> = Result<T, StoreError>;

/// A whole store, as every node has it.
#[async_trait]
pub trait Store:
    Intake
    + Ledger
    + Receipts
    + Registry
    + Documents
    + Entries
    + HeldDeliveries
    + Shares
    + AuditLog
    + Rollups
{
    /// The clock that all times of the store are of. Whoever compares with them uses this one.
    fn clock(&self) -> Arc<dyn Clock>;

    /// A new consumer for the worker with this name. It takes over at once what an older consumer of the same name
    /// held, and what nobody holds; what another one holds, when that one ends.
    async fn consumer(&self, node: &str) -> StoreResult<Arc<dyn Consumer>>;

    /// The same for a worker of one of so many regions. It also holds what is pinned to its own, and nothing that is
    /// pinned to another one. A store that one server has alone knows no regions.
    async fn consumer_in(
        &self,
        node: &str,
        _region: Option<RegionNumber>,
        _regions: usize,
    ) -> StoreResult<Arc<dyn Consumer>> {
        self.consumer(node).await
    }

    /// The regions of the workers that live now, where workers share the store.
    async fn worker_regions(&self) -> StoreResult<Vec<RegionNumber>> {
        Ok(Vec::new())
    }

    /// Writes everything and ends. Later calls answer [`StoreError::Closed`].
    async fn close(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let error = StoreError::io("cannot open the file", std::io::Error::other("no luck"));
        let text = "the store cannot write or read: cannot open the file: no luck";
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_none(), "a chain of causes would print it again");
    }
}

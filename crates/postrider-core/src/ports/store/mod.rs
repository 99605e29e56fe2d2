//! The port that every store implements: three small traits over one home, all batched, with no
//! engine's type in any signature. Signatures take durations: each store owns its clock.

mod ledger;
mod queue;
mod registry;

pub use ledger::*;
pub use queue::*;
pub use registry::*;

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No room: new work is refused, what is there is kept, and it heals when there is room again.
    #[error("the store is full: {0}")]
    Full(String),
    #[error("the store cannot write or read: {0}")]
    Io(String),
    #[error("the store's content is damaged: {0}")]
    Corrupt(String),
    #[error("another process holds the store: {0}")]
    Locked(String),
    #[error("the store is shutting down")]
    Closed,
}

pub type StoreResult<T> = Result<T, StoreError>;

/// A whole store.
pub trait Store: Queue + Ledger + Registry {}

impl<T: Queue + Ledger + Registry> Store for T {}

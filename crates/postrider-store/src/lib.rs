//! Stores: a reference model in memory, the embedded store on SQLite, PostgreSQL, Redis, and one conformance suite
//! that all pass. Decides nothing about deliveries; the dispatcher does.

pub mod clock;
pub mod conformance;
pub mod embedded;
pub mod memory;
pub mod migrate;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod sealed;

mod audit_pages;
mod documents;
mod entry_pages;
mod history;
mod holder;
mod holdings;
mod ids;
mod progress;
mod rollup_pages;
mod settled_before;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod sharded;
mod shared_rates;
mod view;
mod work_signal;

pub use clock::{ManualClock, SteadyClock, SystemClock};
pub use embedded::{EmbeddedStore, FolderReport, StoreFailure, StoreOptions, backup, fsck};
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "redis")]
pub use redis::{RedisOptions, RedisStore};
pub use sealed::SealedStore;

//! The audit log: who did what, from where, and with what outcome. Entries are a hash chain in one order, over all
//! servers of a store. Knows nothing of routes; the API says what happened.

mod chain;
mod draft;
mod entry;
mod refusals;
mod trail;

pub(crate) use chain::{ChainCheck, ChainLink};
pub(crate) use draft::{ActingKey, AuditDraft, collected, with_draft};
pub use entry::AuditEntry;
pub(crate) use entry::{ChainedEntry, NewAuditEntry};
pub use trail::AuditTrail;

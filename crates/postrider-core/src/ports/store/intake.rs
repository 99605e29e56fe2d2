//! The way in: new work becomes durable. Any node has it.

use async_trait::async_trait;

use super::{Admission, DedupKey, Load, NewMessage, StoreResult};
use crate::model::message::TenantId;

#[async_trait]
pub trait Intake: Send + Sync {
    /// Accepts messages: message, deliveries and dedup key, atomic per message. One answer each, in order; `Ok` is
    /// durable. A key repeated within the batch is a repeat, too. An error says that the message was refused, or that
    /// the store could not find out what became of it: a message with a key can be sent in again without a double.
    async fn accept(&self, messages: Vec<NewMessage>) -> Vec<StoreResult<Admission>>;

    /// What `accept` would answer to a message with each of these keys: a duplicate, a conflict, or `None`
    /// for a new key. Accepts nothing; costs about as much as an accept.
    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>>;

    /// An error if new work is refused at present.
    fn takes_work(&self) -> StoreResult<()> {
        Ok(())
    }

    /// What is pending, of one tenant or of all: at most a second old, exact where one process has the store.
    /// Costs nothing, because it is kept up to date.
    fn load(&self, tenant: Option<&TenantId>) -> Load;
}

//! Receipts of deliveries: what the far end says after the provider accepted them. Checks no token.

use async_trait::async_trait;

use super::StoreResult;
use crate::model::delivery::{Delivery, State};
use crate::model::id::DeliveryId;
use crate::model::receipt::ReceiptKind;
use crate::model::time::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewReceipt {
    pub delivery: DeliveryId,
    pub kind: ReceiptKind,
    /// When it happened, as the far end says. A time that cannot be is replaced.
    pub at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ReceiptResult {
    /// The history has it now; the delivery is as it is afterwards.
    Recorded { before: State, delivery: Box<Delivery> },
    /// The same was recorded before, and nothing changes.
    Repeated,
    /// The delivery is still pending: the receipt came before the result of the attempt. Nothing is written, and it can
    /// be recorded a little later.
    Early,
    /// There is no such delivery, or no longer.
    Unknown,
}

#[async_trait]
pub trait Receipts: Send + Sync {
    /// Records receipts, one after the other, each by itself; durable on return. One answer each, in order. A receipt
    /// only moves a state forward (see [`ReceiptStep`](crate::model::receipt::ReceiptStep)): any order and any repeats
    /// end in the same state.
    async fn record_receipts(&self, receipts: Vec<NewReceipt>) -> Vec<StoreResult<ReceiptResult>>;
}

//! Receipts: they share transactions with results, and change the rows of deliveries that ended.

use async_trait::async_trait;
use postrider_core::ports::store::{NewReceipt, ReceiptResult, Receipts, StoreResult};

use super::EmbeddedStore;
use super::requests::WriterRequest;
use super::sql::receipts::ReceiptRow;

#[async_trait]
impl Receipts for EmbeddedStore {
    async fn record_receipts(&self, receipts: Vec<NewReceipt>) -> Vec<StoreResult<ReceiptResult>> {
        let rows = receipts.into_iter().map(|receipt| Ok(ReceiptRow(receipt)));
        self.writer.write(rows, WriterRequest::Receipt).await
    }
}

//! The model's receipts.

use async_trait::async_trait;
use postrider_core::model::receipt::ReceiptStep;
use postrider_core::ports::store::{NewReceipt, ReceiptResult, Receipts, StoreResult};

use super::MemoryStore;
use crate::history::{receipt_record, received};

#[async_trait]
impl Receipts for MemoryStore {
    async fn record_receipts(&self, receipts: Vec<NewReceipt>) -> Vec<StoreResult<ReceiptResult>> {
        receipts.iter().map(|receipt| Ok(self.record(receipt))).collect()
    }
}

impl MemoryStore {
    fn record(&self, receipt: &NewReceipt) -> ReceiptResult {
        let now = self.clock.now();
        let mut rows = self.rows();
        let Some(row) = rows.deliveries.get_mut(&receipt.delivery) else {
            return ReceiptResult::Unknown;
        };
        let before = row.progress.state;
        if before.is_pending() {
            return ReceiptResult::Early;
        }
        let Some(step) = ReceiptStep::of(before, &row.receipts, receipt.kind) else {
            return ReceiptResult::Repeated;
        };
        row.receipts.extend(step.is_new.then(|| receipt_record(receipt, now)));
        row.progress = received(&row.progress, step, now);
        let delivery = rows.deliveries.get(&receipt.delivery);
        match delivery.map(|row| rows.view(receipt.delivery, row, now)) {
            Some(delivery) => ReceiptResult::Recorded { before, delivery: Box::new(delivery) },
            None => ReceiptResult::Unknown,
        }
    }
}

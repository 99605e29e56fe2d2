//! Writes receipts into the histories of deliveries that ended.

use postrider_core::Delivery;
use postrider_core::ports::store::{NewReceipt, ReceiptResult};

use super::prelude::*;
use super::rows::{self, ONE_DELIVERY};
use crate::embedded::requests::SharedRow;
use crate::history::RecordedReceipt;
use crate::progress::StoredProgress;

pub(crate) struct ReceiptRow(pub(crate) NewReceipt);

impl SharedRow for ReceiptRow {
    type Answer = ReceiptResult;

    fn write(rows: &[Self], writer: &mut Writer) -> StoreResult<Vec<ReceiptResult>> {
        rows.iter().map(|row| writer.record_receipt(&row.0)).collect()
    }
}

/// A delivery as it is stored, and as the ledger shows it.
struct EndedDelivery {
    lane: u32,
    progress: StoredProgress,
    log: Option<String>,
    view: Delivery,
}

impl Writer {
    fn record_receipt(&mut self, receipt: &NewReceipt) -> StoreResult<ReceiptResult> {
        let seq = order_key(receipt.delivery.0);
        let found = first_row(&self.conn, ONE_DELIVERY, [seq as i64], |row| self.ended(row))?;
        let Some(old) = found.filter(|found| found.view.id == receipt.delivery) else {
            return Ok(ReceiptResult::Unknown);
        };
        let before = old.progress.state;
        if before.is_pending() {
            return Ok(ReceiptResult::Early);
        }
        let now = self.shared.now();
        let recorded = RecordedReceipt::of(&old.progress, old.log.as_deref(), receipt, now);
        let recorded = recorded.map_err(|_| damaged("a delivery's history is not readable"))?;
        let Some(RecordedReceipt { progress, log, record }) = recorded else {
            return Ok(ReceiptResult::Repeated);
        };
        let update = "UPDATE delivery SET state = ?2, changed = ?3, log = ?4 WHERE seq = ?1";
        let values = params![seq as i64, progress.state.code(), progress.changed.0, log];
        run(&self.conn, update, values)?;
        if progress.state != before {
            self.list_if_passed(seq, progress.changed)?;
            let tenant = self.tenant_of(old.lane)?;
            let count = self.effects.counts_of(tenant);
            count.add(before, -1);
            count.add(progress.state, 1);
        }
        let mut view = old.view;
        (view.state, view.changed_at) = (progress.state, progress.changed);
        view.receipts.extend(record);
        Ok(ReceiptResult::Recorded { before, delivery: Box::new(view) })
    }

    fn ended(&self, row: &Row<'_>) -> StoreResult<EndedDelivery> {
        let lane: u32 = get(row, "lane")?;
        let key = self.shared.index().lane_key(lane).cloned();
        let key = key.ok_or_else(|| damaged("a delivery's lane"))?;
        let (progress, log) = (rows::progress(row)?, get(row, "log")?);
        Ok(EndedDelivery { lane, progress, log, view: rows::delivery(row, &key)? })
    }
}

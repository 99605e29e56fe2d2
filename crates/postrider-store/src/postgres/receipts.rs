//! Receipts: they change rows of the ledger and of the dead letters, some in one transaction.

use std::collections::BTreeMap;

use async_trait::async_trait;
use postrider_core::ports::store::{NewReceipt, ReceiptResult, Receipts, StoreError, StoreResult};

use super::PostgresStore;
use super::failure::{PgFailure, PgResult};
use super::operator::CHUNK;
use super::rows::StoredRow;
use super::session::PgSession;
use super::settle_one::count_stored_move;
use super::shared::PgShared;
use super::tally::TallyChanges;
use super::value::{PgId, get, ids};
use crate::history::RecordedReceipt;

#[async_trait]
impl Receipts for PostgresStore {
    async fn record_receipts(&self, receipts: Vec<NewReceipt>) -> Vec<StoreResult<ReceiptResult>> {
        let mut answers = Vec::with_capacity(receipts.len());
        for chunk in receipts.chunks(CHUNK) {
            match self.shared.record_some_receipts(chunk).await {
                Ok(some) => answers.extend(some.into_iter().map(Ok)),
                Err(failure) => {
                    let error = StoreError::from(failure);
                    answers.extend(chunk.iter().map(|_| Err(error.clone())));
                }
            }
        }
        answers
    }
}

const ENDED: [&str; 2] = [
    "SELECT * FROM ledger WHERE id = ANY($1) ORDER BY id FOR UPDATE",
    "SELECT * FROM dead WHERE id = ANY($1) ORDER BY id FOR UPDATE",
];
const UPDATES: [&str; 2] = [
    "UPDATE ledger l SET state = u.state, changed = u.changed, log = u.log \
     FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::text[]) AS u (id, state, changed, log) \
     WHERE l.id = ANY($1) AND l.id = u.id",
    "UPDATE dead d SET log = u.log \
     FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::text[]) AS u (id, state, changed, log) \
     WHERE d.id = ANY($1) AND d.id = u.id",
];

impl PgShared {
    /// In one transaction.
    async fn record_some_receipts(&self, receipts: &[NewReceipt]) -> PgResult<Vec<ReceiptResult>> {
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        let asked = ids(receipts.iter().map(|receipt| receipt.delivery.0));
        // First, because deliveries go from here to the other tables.
        let waiting = session.rows("SELECT id FROM queue WHERE id = ANY($1)", &[&asked]).await?;
        let waiting: Vec<_> =
            waiting.iter().map(|row| Ok(get::<PgId>(row, "id")?.0)).collect::<PgResult<_>>()?;
        let mut rows: BTreeMap<u128, (usize, StoredRow)> = BTreeMap::new();
        for (table, select) in ENDED.iter().enumerate() {
            for row in session.rows(select, &[&asked]).await? {
                let row = StoredRow::read(&row)?;
                rows.insert(row.id, (table, row));
            }
        }
        let (mut answers, mut tally) = (Vec::new(), TallyChanges::default());
        let mut changed = [Vec::new(), Vec::new()];
        for receipt in receipts {
            answers.push(match rows.get_mut(&receipt.delivery.0) {
                Some((table, row)) => {
                    let answer =
                        self.record_receipt(&mut session, row, receipt, &mut tally).await?;
                    if matches!(answer, ReceiptResult::Recorded { .. }) {
                        changed[*table].push(row.id);
                    }
                    answer
                }
                None if waiting.contains(&receipt.delivery.0) => ReceiptResult::Early,
                None => ReceiptResult::Unknown,
            });
        }
        for (update, mut changed) in UPDATES.iter().zip(changed) {
            changed.sort_unstable();
            changed.dedup();
            let rows = changed.iter().filter_map(|id| rows.get(id)).map(|(_, row)| row);
            write_rows(&mut session, update, rows).await?;
        }
        tally.write(&mut session).await?;
        session.commit().await?;
        Ok(answers)
    }

    /// Changes the row, but does not write it.
    async fn record_receipt(
        &self,
        session: &mut PgSession,
        row: &mut StoredRow,
        receipt: &NewReceipt,
        tally: &mut TallyChanges,
    ) -> PgResult<ReceiptResult> {
        let now = self.clock.now();
        let recorded = RecordedReceipt::of(&row.progress, row.log.as_deref(), receipt, now);
        let recorded = recorded.map_err(|_| PgFailure::damaged("a delivery's history"))?;
        let Some(RecordedReceipt { progress, log, .. }) = recorded else {
            return Ok(ReceiptResult::Repeated);
        };
        let before = row.progress.state;
        if progress.state != before {
            count_stored_move(tally, row, &progress);
        }
        (row.progress, row.log) = (progress, Some(log));
        let lane = self.lane_of(session, row.lane).await?;
        let delivery = Box::new(row.view(&lane, None, now.0)?);
        Ok(ReceiptResult::Recorded { before, delivery })
    }
}

async fn write_rows(
    session: &mut PgSession,
    update: &'static str,
    rows: impl Iterator<Item = &StoredRow>,
) -> PgResult<()> {
    let (mut of, mut states, mut changed, mut logs) = (vec![], vec![], vec![], vec![]);
    for row in rows {
        of.push(PgId(row.id));
        states.push(i16::from(row.progress.state.code()));
        changed.push(row.progress.changed.0);
        logs.push(row.log.as_deref());
    }
    if of.is_empty() {
        return Ok(());
    }
    session.run(update, &[&of, &states, &changed, &logs]).await.map(drop)
}

//! Everything in the store as records of the port, for another store. Reads and writes rows as they are.

mod export;
mod import;

use async_trait::async_trait;
use postrider_core::ports::store::*;

use super::EmbeddedStore;
use super::sql::documents;
use super::sql::prelude::*;

#[async_trait]
impl StoreTransfer for EmbeddedStore {
    async fn export(
        &self,
        kind: RecordKind,
        after: Option<&str>,
        limit: usize,
        over_by: Timestamp,
    ) -> StoreResult<RecordPage> {
        let (after, limit) = (after.map(str::to_owned), limit.max(1));
        let after = after.as_deref();
        match kind {
            RecordKind::Document => {
                let all = self.documents("").await?.into_iter();
                Ok(whole(all.filter_map(|document| {
                    let Document { name, json, expires_at, .. } = document;
                    Some(StoreRecord::Document(DocumentRecord { name, json: json?, expires_at }))
                })))
            }
            RecordKind::Lane => {
                let index = self.shared.index();
                Ok(whole(index.named_lanes().map(|(_, key)| StoreRecord::Lane(key.clone()))))
            }
            RecordKind::IdempotencyKey => {
                let from = export::key_after(after)?;
                self.run_task(move |writer| export::keys(writer, from, limit, over_by)).await
            }
            RecordKind::Address | RecordKind::Message | RecordKind::Delivery => {
                let after = export::number(after)?;
                self.shared
                    .read(move |conn, shared| export::by_number(conn, shared, kind, after, limit))
                    .await
            }
            RecordKind::Audit => crate::audit_pages::export(self, after, limit).await,
            RecordKind::Entry => crate::entry_pages::export(self, after, limit).await,
            RecordKind::Rollup => crate::rollup_pages::export(self, after, limit).await,
            RecordKind::GoneMark | RecordKind::Strike => {
                let after = export::address_key(after)?;
                self.shared.read(move |conn, _| export::by_address(conn, kind, after, limit)).await
            }
        }
    }

    async fn import(&self, records: Vec<StoreRecord>) -> StoreResult<()> {
        self.run_task(move |writer| {
            writer.import(&records)?;
            writer.shared.documents.changed(documents::newest(&writer.conn)?);
            Ok(())
        })
        .await
    }
}

/// A page with everything: there is little of it.
fn whole(records: impl Iterator<Item = StoreRecord>) -> RecordPage {
    RecordPage { records: records.collect(), next: None }
}

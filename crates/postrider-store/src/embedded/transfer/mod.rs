//! Everything in the store as records of the port, for another store. Reads and writes rows as they are.

mod export;
mod import;

use async_trait::async_trait;
use postrider_core::ports::store::*;

use super::EmbeddedStore;
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
            RecordKind::Setting => {
                let all = self.settings().await?;
                Ok(whole(all.into_iter().map(|(name, json)| StoreRecord::Setting { name, json })))
            }
            RecordKind::ApiKey => {
                Ok(whole(self.api_keys().await?.into_iter().map(StoreRecord::ApiKey)))
            }
            RecordKind::SigningKey => {
                Ok(whole(self.signing_keys().await?.into_iter().map(StoreRecord::SigningKey)))
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
            RecordKind::GoneMark | RecordKind::Strike => {
                let after = export::address_key(after)?;
                self.shared.read(move |conn, _| export::by_address(conn, kind, after, limit)).await
            }
        }
    }

    async fn import(&self, records: Vec<StoreRecord>) -> StoreResult<()> {
        self.run_task(move |writer| writer.import(&records)).await
    }
}

/// A page with everything: there is little of it.
fn whole(records: impl Iterator<Item = StoreRecord>) -> RecordPage {
    RecordPage { records: records.collect(), next: None }
}

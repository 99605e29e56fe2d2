//! Rollups: one table, written by tasks of the writer. They never use the reserve of a full disk.

use async_trait::async_trait;
use postrider_core::Timestamp;
use postrider_core::ports::store::*;

use super::EmbeddedStore;
use super::sql::rollups;

#[async_trait]
impl Rollups for EmbeddedStore {
    async fn put_rollups(&self, parts: Vec<RollupPart>) -> StoreResult<()> {
        if parts.is_empty() {
            return Ok(());
        }
        self.run_task(move |writer| {
            writer.transact(|writer| parts.iter().try_for_each(|part| writer.put_rollup(part)))
        })
        .await
    }

    async fn rollups(&self, filter: RollupFilter) -> StoreResult<Vec<RollupPart>> {
        self.shared.read(move |conn, _| rollups::parts(conn, &filter)).await
    }

    async fn rollups_behind(
        &self,
        after: Option<RollupName>,
        limit: usize,
    ) -> StoreResult<Vec<RollupPart>> {
        let read = move |conn: &_, _: &_| rollups::parts_behind(conn, after.as_ref(), limit);
        self.shared.read(read).await
    }

    async fn prune_rollups(&self, span: RollupSpan, before: Timestamp) -> StoreResult<u64> {
        let mut deleted = 0;
        loop {
            let step = self.run_task(move |writer| {
                writer.transact(|writer| writer.prune_rollups(span, before))
            });
            match step.await? {
                0 => return Ok(deleted),
                some => deleted += some,
            }
        }
    }
}

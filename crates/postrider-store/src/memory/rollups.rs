//! The model's rollups.

use std::ops::Bound;

use async_trait::async_trait;
use postrider_core::Timestamp;
use postrider_core::ports::store::*;

use super::MemoryStore;

fn part((name, text): (&RollupName, &String)) -> RollupPart {
    RollupPart { name: name.clone(), text: text.clone() }
}

#[async_trait]
impl Rollups for MemoryStore {
    async fn put_rollups(&self, parts: Vec<RollupPart>) -> StoreResult<()> {
        self.rows().rollups.extend(parts.into_iter().map(|part| (part.name, part.text)));
        Ok(())
    }

    async fn rollups(&self, filter: RollupFilter) -> StoreResult<Vec<RollupPart>> {
        let rows = self.rows();
        let is_asked = |(name, _): &(&RollupName, &String)| {
            name.span == filter.span
                && (filter.from..filter.until).contains(&name.at)
                && filter.of.has(name.tenant.as_ref())
        };
        Ok(rows.rollups.iter().filter(is_asked).map(part).collect())
    }

    async fn rollups_behind(
        &self,
        after: Option<RollupName>,
        limit: usize,
    ) -> StoreResult<Vec<RollupPart>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.rows();
        Ok(rows.rollups.range((from, Bound::Unbounded)).take(limit).map(part).collect())
    }

    async fn prune_rollups(&self, span: RollupSpan, before: Timestamp) -> StoreResult<u64> {
        let rollups = &mut self.rows().rollups;
        let count = rollups.len();
        rollups.retain(|name, _| name.span != span || name.at >= before);
        Ok((count - rollups.len()) as u64)
    }
}

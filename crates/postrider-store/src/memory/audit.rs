//! The model's audit log.

use async_trait::async_trait;
use postrider_core::ports::store::*;

use super::MemoryStore;

#[async_trait]
impl AuditLog for MemoryStore {
    async fn append_audit(&self, records: Vec<AuditRecord>) -> StoreResult<bool> {
        let audit = &mut self.rows().audit;
        let Some(first) = records.first() else { return Ok(true) };
        let last = audit.last_key_value().map_or(0, |(number, _)| *number);
        if first.number != last + 1 {
            return Ok(audit.get(&first.number) == Some(first));
        }
        audit.extend(records.into_iter().map(|record| (record.number, record)));
        Ok(true)
    }

    async fn audit_records(&self, filter: AuditFilter) -> StoreResult<Vec<AuditRecord>> {
        let rows = self.rows();
        let end = filter.before.unwrap_or(u64::MAX).max(filter.after + 1);
        let range = rows.audit.range(filter.after + 1..end).map(|(_, record)| record);
        let is_asked = |record: &&AuditRecord| {
            filter.tenant.as_ref().is_none_or(|tenant| Some(tenant) == record.tenant.as_ref())
        };
        let asked = range.filter(is_asked);
        Ok(match filter.newest_first {
            true => asked.rev().take(filter.limit).cloned().collect(),
            false => asked.take(filter.limit).cloned().collect(),
        })
    }

    async fn prune_audit(&self, upto: u64) -> StoreResult<u64> {
        let audit = &mut self.rows().audit;
        let last = audit.last_key_value().map_or(0, |(number, _)| *number);
        let before = audit.len();
        audit.retain(|number, _| *number > upto || *number == last);
        Ok((before - audit.len()) as u64)
    }
}

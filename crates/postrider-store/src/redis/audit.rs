//! The audit log. It is in one slot: the entries by number, the numbers in order, and the numbers of each tenant.

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{TenantId, Timestamp};

use super::RedisStore;
use super::failure::{RedisFailure, RedisResult};
use super::link::words;
use super::pack::{byte_list, int, text_int};
use super::scripts::AUDIT;
use super::shared::RedisShared;

/// Entries that are deleted at once.
const PRUNED_AT_ONCE: usize = 500;

/// The time, whether there is a tenant, its name, a zero byte, the text.
fn encode(record: &AuditRecord) -> Vec<u8> {
    let mut bytes = record.at.0.to_be_bytes().to_vec();
    bytes.push(u8::from(record.tenant.is_some()));
    bytes.extend_from_slice(record.tenant.as_ref().map_or("", |tenant| tenant.as_str()).as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(record.text.as_bytes());
    bytes
}

fn decode(number: u64, bytes: &[u8]) -> RedisResult<AuditRecord> {
    let damaged = || RedisFailure::damaged("an entry of the audit log");
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| damaged());
    let (at, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
    let (has_tenant, rest) = rest.split_first().ok_or_else(damaged)?;
    let end = rest.iter().position(|byte| *byte == 0).ok_or_else(damaged)?;
    let tenant = text(&rest[..end])?;
    Ok(AuditRecord {
        number,
        at: Timestamp(i64::from_be_bytes(*at)),
        tenant: (*has_tenant == 1).then(|| TenantId(tenant.into())),
        text: text(&rest[end + 1..])?,
    })
}

impl RedisShared {
    fn audit_keys(&self) -> [String; 2] {
        ["audit", "audit_numbers"].map(|name| self.names.common(name))
    }

    /// The numbers of one tenant, or of what concerns the whole server.
    fn audit_tenant_key(&self, tenant: Option<&TenantId>) -> String {
        match tenant {
            Some(tenant) => self.names.common(&format!("audit_of:{tenant}")),
            None => self.names.common("audit_of_server"),
        }
    }

    async fn append_audit(&self, first: u64, records: &[AuditRecord]) -> RedisResult<bool> {
        let mut keys = self.audit_keys().to_vec();
        keys.extend(records.iter().map(|record| self.audit_tenant_key(record.tenant.as_ref())));
        let texts: Vec<_> = records.iter().map(encode).collect();
        let first = first.to_string();
        let mut arguments = vec![first.as_bytes()];
        arguments.extend(texts.iter().map(Vec::as_slice));
        let written = self.link.call_durably(&AUDIT, &keys, &arguments).await?;
        Ok(int(&written)? == 1)
    }

    /// Writes an entry as it is.
    pub(super) async fn import_audit(&self, record: &AuditRecord) -> RedisResult<()> {
        let [entries, numbers] = self.audit_keys();
        let own = self.audit_tenant_key(record.tenant.as_ref());
        let (number, entry) = (record.number.to_string(), encode(record));
        let number = number.as_bytes();
        self.link.ask(&words(&[b"HSET", entries.as_bytes(), number, &entry])).await?;
        for key in [&numbers, &own] {
            self.link.ask(&words(&[b"ZADD", key.as_bytes(), number, number])).await?;
        }
        Ok(())
    }

    async fn audit_records(&self, filter: &AuditFilter) -> RedisResult<Vec<AuditRecord>> {
        let [entries, all] = self.audit_keys();
        let numbers = match &filter.tenant {
            Some(tenant) => self.audit_tenant_key(Some(tenant)),
            None => all,
        };
        let low = format!("({}", filter.after);
        let high = filter.before.map_or_else(|| "+inf".to_owned(), |before| format!("({before}"));
        let (command, from, to): (&[u8], _, _) = match filter.newest_first {
            true => (b"ZREVRANGEBYSCORE", &high, &low),
            false => (b"ZRANGEBYSCORE", &low, &high),
        };
        let limit = filter.limit.to_string();
        let asked: [&[u8]; 7] = [
            command,
            numbers.as_bytes(),
            from.as_bytes(),
            to.as_bytes(),
            b"LIMIT",
            b"0",
            limit.as_bytes(),
        ];
        let found = byte_list(self.link.ask(&words(&asked)).await?)?;
        let numbers: Vec<_> = found.into_iter().flatten().collect();
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let mut asked: Vec<&[u8]> = vec![b"HMGET", entries.as_bytes()];
        asked.extend(numbers.iter().map(Vec::as_slice));
        let texts = byte_list(self.link.ask(&words(&asked)).await?)?;
        let pairs = numbers.iter().zip(texts);
        // One that is missing was deleted meanwhile.
        let there = pairs.filter_map(|(number, text)| Some((number, text?)));
        there.map(|(number, text)| decode(text_int(number)? as u64, &text)).collect()
    }

    async fn prune_audit(&self, upto: u64) -> RedisResult<u64> {
        let [entries, numbers] = self.audit_keys();
        let last = self.audit_records(&AuditFilter::last()).await?;
        let last = last.first().map_or(0, |record| record.number);
        let mut deleted = 0;
        loop {
            let filter = AuditFilter {
                before: Some(last.min(upto.saturating_add(1))),
                ..AuditFilter::behind(0, PRUNED_AT_ONCE)
            };
            let old = self.audit_records(&filter).await?;
            if old.is_empty() {
                return Ok(deleted);
            }
            for record in &old {
                let (number, own) =
                    (record.number.to_string(), self.audit_tenant_key(record.tenant.as_ref()));
                let number = number.as_bytes();
                self.link.ask(&words(&[b"ZREM", own.as_bytes(), number])).await?;
                self.link.ask(&words(&[b"ZREM", numbers.as_bytes(), number])).await?;
                self.link.ask(&words(&[b"HDEL", entries.as_bytes(), number])).await?;
                deleted += 1;
            }
        }
    }
}

#[async_trait]
impl AuditLog for RedisStore {
    async fn append_audit(&self, records: Vec<AuditRecord>) -> StoreResult<bool> {
        let Some(first) = records.first() else { return Ok(true) };
        Ok(self.shared.append_audit(first.number, &records).await?)
    }

    async fn audit_records(&self, filter: AuditFilter) -> StoreResult<Vec<AuditRecord>> {
        Ok(self.shared.audit_records(&filter).await?)
    }

    async fn prune_audit(&self, upto: u64) -> StoreResult<u64> {
        Ok(self.shared.prune_audit(upto).await?)
    }
}

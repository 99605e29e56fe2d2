//! Entries. Those of a tenant are in one slot: a hash with their texts, and a sorted list of their names.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::TenantId;
use postrider_core::ports::store::*;

use super::RedisStore;
use super::failure::{RedisFailure, RedisResult};
use super::link::words;
use super::pack::{byte_list, int, text_int};
use super::scripts::ENTRIES;
use super::shared::RedisShared;
use crate::entry_pages::page;
use crate::sharded::{SHARDS, ShardId};

/// Writes of one script.
const AT_ONCE: usize = 500;

fn shard(tenant: &TenantId) -> ShardId {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = tenant.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, add);
    ((hash >> 20) % u64::from(SHARDS)) as ShardId
}

/// The kind comes first, as a digit.
fn name(kind: EntryKind, key: &str) -> String {
    format!("{}{key}", kind.code())
}

fn damaged<E>(_: E) -> RedisFailure {
    RedisFailure::damaged("an entry")
}

/// An entry from its name and what is stored under it.
fn entry(tenant: &TenantId, name: &[u8], value: &[u8]) -> RedisResult<StoredEntry> {
    let name = std::str::from_utf8(name).map_err(damaged)?;
    let value = std::str::from_utf8(value).map_err(damaged)?;
    let wrong = || RedisFailure::damaged("an entry");
    let kind = name.chars().next().and_then(|digit| digit.to_digit(10)).ok_or_else(wrong)?;
    let kind = u8::try_from(kind).ok().and_then(EntryKind::from_code).ok_or_else(wrong)?;
    let (version, json) = value.split_once(':').ok_or_else(wrong)?;
    Ok(StoredEntry {
        key: EntryKey::new(tenant, kind, &name[1..]),
        version: EntryVersion(version.parse().map_err(damaged)?),
        json: json.into(),
    })
}

impl RedisShared {
    /// Its entries, their names in order, and the tenants that have entries.
    fn entry_keys(&self, tenant: &TenantId) -> [String; 3] {
        let shard = shard(tenant);
        let of = |name: &str| self.names.of(shard, name);
        [of(&format!("en:{tenant}")), of(&format!("eo:{tenant}")), of("et")]
    }

    async fn read_entries(&self, keys: Vec<EntryKey>) -> RedisResult<Vec<Option<StoredEntry>>> {
        let mut found = vec![None; keys.len()];
        let mut tenants: Vec<_> = keys.iter().map(|key| &key.tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        for tenant in tenants {
            let own = keys.iter().enumerate().filter(|(_, key)| key.tenant == *tenant);
            let (places, names): (Vec<_>, Vec<_>) =
                own.map(|(place, key)| (place, name(key.kind, &key.key))).unzip();
            let values = self.entry_values(tenant, &names).await?;
            for ((place, name), value) in places.into_iter().zip(&names).zip(values) {
                if let Some(value) = value {
                    found[place] = Some(entry(tenant, name.as_bytes(), &value)?);
                }
            }
        }
        Ok(found)
    }

    async fn entry_values(
        &self,
        tenant: &TenantId,
        names: &[String],
    ) -> RedisResult<Vec<Option<Vec<u8>>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let [hash, ..] = self.entry_keys(tenant);
        let mut asked: Vec<&[u8]> = vec![b"HMGET", hash.as_bytes()];
        asked.extend(names.iter().map(|name| name.as_bytes()));
        byte_list(self.link.ask(&words(&asked)).await?)
    }

    /// All of one tenant.
    async fn write_some(&self, writes: &[&EntryWrite]) -> RedisResult<Vec<EntryResult>> {
        let Some(first) = writes.first() else { return Ok(Vec::new()) };
        let tenant = &first.key.tenant;
        let mut texts = vec![tenant.to_string(), self.clock.now().0.to_string()];
        for EntryWrite { key, json, expected } in writes {
            texts.push(name(key.kind, &key.key));
            texts.push(expected.map(|expected| expected.0.to_string()).unwrap_or_default());
            texts.push(if json.is_some() { "1" } else { "0" }.to_owned());
            texts.push(json.as_deref().unwrap_or_default().to_owned());
        }
        let arguments: Vec<_> = texts.iter().map(String::as_bytes).collect();
        let keys = self.entry_keys(tenant);
        let answer = byte_list(self.link.call_durably(&ENTRIES, &keys, &arguments).await?)?;
        let result = |answer: Option<Vec<u8>>| {
            let answer = answer.unwrap_or_default();
            let (said, version) = answer.split_first().ok_or_else(|| damaged(()))?;
            let version = EntryVersion(text_int(version)?.unsigned_abs());
            Ok(match said {
                b'c' => EntryResult::Conflict(version),
                _ => EntryResult::Written(version),
            })
        };
        answer.into_iter().map(result).collect()
    }

    async fn write_entries(&self, writes: Vec<EntryWrite>) -> RedisResult<Vec<EntryResult>> {
        let mut results = vec![EntryResult::Conflict(EntryVersion::NONE); writes.len()];
        let mut tenants: Vec<_> = writes.iter().map(|write| write.key.tenant.clone()).collect();
        tenants.sort_unstable();
        tenants.dedup();
        for tenant in tenants {
            let own = writes.iter().enumerate().filter(|(_, write)| write.key.tenant == tenant);
            let (places, own): (Vec<_>, Vec<_>) = own.unzip();
            for (places, some) in places.chunks(AT_ONCE).zip(own.chunks(AT_ONCE)) {
                for (place, result) in places.iter().zip(self.write_some(some).await?) {
                    results[*place] = result;
                }
            }
        }
        Ok(results)
    }

    /// Names of a tenant's entries from an edge to another one.
    async fn entry_names(
        &self,
        tenant: &TenantId,
        from: &str,
        to: &str,
        limit: usize,
    ) -> RedisResult<Vec<StoredEntry>> {
        let [_, order, _] = self.entry_keys(tenant);
        let limit = limit.to_string();
        let asked: [&[u8]; 7] = [
            b"ZRANGEBYLEX",
            order.as_bytes(),
            from.as_bytes(),
            to.as_bytes(),
            b"LIMIT",
            b"0",
            limit.as_bytes(),
        ];
        let names = byte_list(self.link.ask(&words(&asked)).await?)?.into_iter().flatten();
        let names: Vec<_> =
            names.map(|name| String::from_utf8(name).map_err(damaged)).collect::<Result<_, _>>()?;
        let values = self.entry_values(tenant, &names).await?;
        let found = names.iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
        found.map(|(name, value)| entry(tenant, name.as_bytes(), &value)).collect()
    }

    /// In order.
    pub(super) async fn tenants_with_entries(&self) -> RedisResult<Vec<TenantId>> {
        let mut tenants = Vec::new();
        for answer in self.of_each_shard("SMEMBERS", "et", &[]).await? {
            for name in byte_list(answer)?.into_iter().flatten() {
                tenants.push(TenantId(String::from_utf8(name).map_err(damaged)?.into()));
            }
        }
        tenants.sort_unstable();
        Ok(tenants)
    }

    pub(super) async fn count_entries(&self, tenant: &TenantId) -> RedisResult<u64> {
        let [hash, ..] = self.entry_keys(tenant);
        let count = self.link.ask(&words(&[b"HLEN", hash.as_bytes()])).await?;
        Ok(u64::try_from(int(&count)?).unwrap_or(0))
    }

    async fn behind(
        &self,
        after: Option<&EntryKey>,
        limit: usize,
    ) -> RedisResult<Vec<StoredEntry>> {
        let mut found = Vec::new();
        for tenant in self.tenants_with_entries().await? {
            if after.is_some_and(|after| after.tenant > tenant) || found.len() >= limit {
                continue;
            }
            let last = after.filter(|after| after.tenant == tenant);
            let from =
                last.map_or("-".to_owned(), |last| format!("({}", name(last.kind, &last.key)));
            found.extend(self.entry_names(&tenant, &from, "+", limit - found.len()).await?);
        }
        Ok(found)
    }

    pub(super) async fn import_entry(&self, record: &EntryRecord) -> RedisResult<()> {
        let EntryRecord { tenant, kind, key, json, .. } = record;
        let key = EntryKey { tenant: tenant.clone(), kind: *kind, key: key.clone() };
        let write = EntryWrite { key, json: Some(json.clone()), expected: None };
        self.write_some(&[&write]).await.map(drop)
    }
}

#[async_trait]
impl Entries for RedisStore {
    async fn entries(&self, keys: Vec<EntryKey>) -> StoreResult<Vec<Option<StoredEntry>>> {
        Ok(self.shared.read_entries(keys).await?)
    }

    async fn write_entries(&self, writes: Vec<EntryWrite>) -> StoreResult<Vec<EntryResult>> {
        Ok(self.shared.write_entries(writes).await?)
    }

    async fn entries_behind(
        &self,
        after: Option<EntryKey>,
        limit: usize,
    ) -> StoreResult<Vec<StoredEntry>> {
        Ok(self.shared.behind(after.as_ref(), limit).await?)
    }

    async fn list_entries(&self, filter: EntryFilter) -> StoreResult<Page<StoredEntry, Arc<str>>> {
        let EntryFilter { tenant, kind, after, limit } = filter;
        let from = match after {
            Some(after) => format!("({}", name(kind, &after)),
            None => format!("[{}", name(kind, "")),
        };
        let to = format!("({}", kind.code() + 1);
        Ok(page(self.shared.entry_names(&tenant, &from, &to, limit).await?, limit))
    }
}

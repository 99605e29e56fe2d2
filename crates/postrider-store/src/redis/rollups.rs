//! Rollups. They are in one slot: the times of each span, the tenants of each time, and for each time and tenant a hash
//! with the text of every writer.

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{TenantId, Timestamp};

use super::RedisStore;
use super::failure::{RedisFailure, RedisResult};
use super::link::{Patience, words};
use super::pack::{byte_list, list, pairs, text_int};
use super::scripts::{ROLLUPS, ROLLUPS_READ};
use super::shared::RedisShared;

/// Parts or hashes of one call.
const AT_ONCE: usize = 100;

/// A hash: its span, time and tenant; no tenant for all together.
type RollupHash = (RollupSpan, Timestamp, Option<TenantId>);

impl RedisShared {
    fn rollup_times(&self, span: RollupSpan) -> String {
        self.names.common(&format!("rollup_times:{}", span.code()))
    }

    fn rollup_tenants(&self, span: RollupSpan, at: Timestamp) -> String {
        self.names.common(&format!("rollup_tenants:{}:{}", span.code(), at.0))
    }

    fn rollup_hash(&self, (span, at, tenant): &RollupHash) -> String {
        let tenant = tenant.as_ref().map_or("", |tenant| tenant.as_str());
        self.names.common(&format!("rollup:{}:{}:{tenant}", span.code(), at.0))
    }

    pub(super) async fn put_rollups(&self, parts: &[RollupPart]) -> RedisResult<()> {
        for span in RollupSpan::ALL {
            let own: Vec<_> = parts.iter().filter(|part| part.name.span == span).collect();
            for some in own.chunks(AT_ONCE) {
                let mut keys = vec![self.rollup_times(span)];
                let mut values = Vec::new();
                for RollupPart { name, text } in some {
                    keys.push(self.rollup_tenants(span, name.at));
                    keys.push(self.rollup_hash(&(span, name.at, name.tenant.clone())));
                    let tenant = name.tenant.as_ref().map_or("", |tenant| tenant.as_str());
                    values.push([
                        name.at.0.to_string(),
                        tenant.to_owned(),
                        name.writer.to_string(),
                        text.clone(),
                    ]);
                }
                let arguments: Vec<_> =
                    values.iter().flatten().map(|text| text.as_bytes()).collect();
                self.link.call(Patience::Long, &ROLLUPS, &keys, &arguments).await?;
            }
        }
        Ok(())
    }

    /// The times of a span from one up to another, which is left out.
    async fn times_of_rollups(
        &self,
        span: RollupSpan,
        from: Timestamp,
        until: Timestamp,
    ) -> RedisResult<Vec<Timestamp>> {
        let (key, from, until) =
            (self.rollup_times(span), from.0.to_string(), format!("({}", until.0));
        let asked: [&[u8]; 4] =
            [b"ZRANGEBYSCORE", key.as_bytes(), from.as_bytes(), until.as_bytes()];
        let found = byte_list(self.link.ask(&words(&asked)).await?)?;
        found.iter().flatten().map(|at| text_int(at).map(Timestamp)).collect()
    }

    async fn tenants_of_rollups(
        &self,
        span: RollupSpan,
        at: Timestamp,
    ) -> RedisResult<Vec<Option<TenantId>>> {
        let key = self.rollup_tenants(span, at);
        let found = byte_list(self.link.ask(&words(&[b"SMEMBERS", key.as_bytes()])).await?)?;
        let damaged = |_| RedisFailure::damaged("a tenant of a rollup");
        let tenant = |name: Vec<u8>| {
            let name = String::from_utf8(name).map_err(damaged)?;
            Ok((!name.is_empty()).then(|| TenantId(name.into())))
        };
        found.into_iter().flatten().map(tenant).collect()
    }

    async fn read_rollups(&self, hashes: &[RollupHash]) -> RedisResult<Vec<RollupPart>> {
        let mut parts = Vec::new();
        for some in hashes.chunks(AT_ONCE) {
            let keys: Vec<_> = some.iter().map(|hash| self.rollup_hash(hash)).collect();
            let found = self.link.call(Patience::Long, &ROLLUPS_READ, &keys, &[]).await?;
            for ((span, at, tenant), found) in some.iter().zip(list(found)?) {
                for (writer, text) in pairs(found)? {
                    let damaged = |_| RedisFailure::damaged("the text of a rollup");
                    let name = RollupName {
                        span: *span,
                        at: *at,
                        tenant: tenant.clone(),
                        writer: text_int(&writer)? as u64,
                    };
                    parts
                        .push(RollupPart { name, text: String::from_utf8(text).map_err(damaged)? });
                }
            }
        }
        Ok(parts)
    }

    async fn rollups(&self, filter: &RollupFilter) -> RedisResult<Vec<RollupPart>> {
        let RollupFilter { span, from, until, of } = filter;
        let mut hashes = Vec::new();
        for at in self.times_of_rollups(*span, *from, *until).await? {
            match of {
                RollupOwner::Server => hashes.push((*span, at, None)),
                RollupOwner::Tenant(tenant) => hashes.push((*span, at, Some(tenant.clone()))),
                RollupOwner::Everybody => {
                    let tenants = self.tenants_of_rollups(*span, at).await?.into_iter();
                    hashes.extend(tenants.map(|tenant| (*span, at, tenant)));
                }
            }
        }
        self.read_rollups(&hashes).await
    }

    async fn rollups_behind(
        &self,
        after: Option<&RollupName>,
        limit: usize,
    ) -> RedisResult<Vec<RollupPart>> {
        let mut found = Vec::new();
        for span in RollupSpan::ALL {
            let from = match after {
                Some(after) if after.span > span => continue,
                Some(after) if after.span == span => after.at,
                _ => Timestamp(i64::MIN),
            };
            for at in self.times_of_rollups(span, from, Timestamp::MAX).await? {
                let tenants = self.tenants_of_rollups(span, at).await?.into_iter();
                let hashes: Vec<_> = tenants.map(|tenant| (span, at, tenant)).collect();
                let mut parts = self.read_rollups(&hashes).await?;
                parts.retain(|part| after.is_none_or(|after| part.name > *after));
                parts.sort_unstable_by(|a, b| a.name.cmp(&b.name));
                found.append(&mut parts);
                if found.len() >= limit {
                    found.truncate(limit);
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    async fn prune_rollups(&self, span: RollupSpan, before: Timestamp) -> RedisResult<u64> {
        let mut deleted = 0;
        for at in self.times_of_rollups(span, Timestamp(i64::MIN), before).await? {
            for tenant in self.tenants_of_rollups(span, at).await? {
                let hash = self.rollup_hash(&(span, at, tenant));
                let parts = self.link.ask(&words(&[b"HLEN", hash.as_bytes()])).await?;
                deleted += super::pack::int(&parts)? as u64;
                self.link.ask(&words(&[b"UNLINK", hash.as_bytes()])).await?;
            }
            let tenants = self.rollup_tenants(span, at);
            self.link.ask(&words(&[b"UNLINK", tenants.as_bytes()])).await?;
            let (times, at) = (self.rollup_times(span), at.0.to_string());
            self.link.ask(&words(&[b"ZREM", times.as_bytes(), at.as_bytes()])).await?;
        }
        Ok(deleted)
    }
}

#[async_trait]
impl Rollups for RedisStore {
    async fn put_rollups(&self, parts: Vec<RollupPart>) -> StoreResult<()> {
        Ok(self.shared.put_rollups(&parts).await?)
    }

    async fn rollups(&self, filter: RollupFilter) -> StoreResult<Vec<RollupPart>> {
        Ok(self.shared.rollups(&filter).await?)
    }

    async fn rollups_behind(
        &self,
        after: Option<RollupName>,
        limit: usize,
    ) -> StoreResult<Vec<RollupPart>> {
        Ok(self.shared.rollups_behind(after.as_ref(), limit).await?)
    }

    async fn prune_rollups(&self, span: RollupSpan, before: Timestamp) -> StoreResult<u64> {
        Ok(self.shared.prune_rollups(span, before).await?)
    }
}

//! Counts what tenants keep: from lists that Redis counts itself, and from counts of the shards.

use postrider_core::TenantId;
use postrider_core::ports::store::TenantHoldings;

use super::failure::RedisResult;
use super::pack::{int, pairs, text_int};
use super::shared::RedisShared;
use super::tally::{DEAD_BYTES, GONE_MARKS};
use crate::holdings::HoldingSums;

impl RedisShared {
    pub(super) async fn holdings(&self) -> RedisResult<Vec<TenantHoldings>> {
        let mut sums = HoldingSums::default();
        for answer in self.of_each_shard("HGETALL", "t", &[]).await? {
            for (field, count) in pairs(answer)? {
                let Ok(field) = String::from_utf8(field) else { continue };
                let Some((kind, tenant)) = field.split_once(':') else { continue };
                let count = u64::try_from(text_int(&count)?).unwrap_or(0);
                let own = sums.of(&TenantId::new(tenant));
                match kind {
                    DEAD_BYTES => own.dead_letter_bytes += count,
                    GONE_MARKS => own.gone_marks += count,
                    kind if kind.starts_with('d') => own.dead_letters += count,
                    _ => {}
                }
            }
        }
        for lane in self.lane_depths(None).await? {
            sums.of(&lane.key.tenant).lanes += u64::from(lane.pending + lane.in_flight > 0);
        }
        for (tenant, count) in self.numbered_lanes().await? {
            sums.note_numbered_lanes(&tenant, count);
        }
        for tenant in self.tenants_with_addresses().await? {
            sums.of(&tenant);
        }
        for tenant in self.tenants_with_entries().await? {
            sums.of(&tenant).entries = self.count_entries(&tenant).await?;
        }
        let mut list = sums.into_list();
        for each in &mut list {
            each.holdings.addresses = self.listed("ai", &each.tenant).await?;
            each.holdings.strikes = self.listed("si", &each.tenant).await?;
        }
        Ok(list)
    }

    /// Tenants that have registered addresses, found one after the other in the sorted lists.
    async fn tenants_with_addresses(&self) -> RedisResult<Vec<TenantId>> {
        let (mut found, mut from) = (Vec::new(), b"-".to_vec());
        while let Some((_, member)) = self.merged("ai", &from, b"+", 1).await?.pop() {
            let name: Vec<u8> = member.into_iter().take_while(|byte| *byte != 0).collect();
            from = [b"[", name.as_slice(), &[1]].concat();
            found.extend(String::from_utf8(name).ok().map(|name| TenantId::new(&name)));
        }
        Ok(found)
    }

    /// Members of a tenant in the sorted lists of all shards.
    async fn listed(&self, name: &str, tenant: &TenantId) -> RedisResult<u64> {
        let edge = |sign: &[u8], end: u8| [sign, tenant.as_str().as_bytes(), &[end]].concat();
        let (from, to) = (edge(b"[", 0), edge(b"(", 1));
        let mut sum = 0;
        for answer in self.of_each_shard("ZLEXCOUNT", name, &[&from, &to]).await? {
            sum += u64::try_from(int(&answer)?).unwrap_or(0);
        }
        Ok(sum)
    }
}

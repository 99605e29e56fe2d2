//! The numbers of lanes, which never change, and which lanes this node knows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::{ChannelKind, LaneKey, TenantId};
use redis::Value;

use super::failure::{RedisFailure, RedisResult};
use super::link::{Patience, words};
use super::pack::{int, list, pairs, text, text_int};
use super::scripts::LANES;
use super::shared::RedisShared;

/// Names of lanes that one call reads.
const COUNTED_AT_ONCE: u32 = 1_000;

/// The lanes that this node knows.
#[derive(Default)]
pub(super) struct RedisLanes(Mutex<LaneMaps>);

#[derive(Default)]
struct LaneMaps {
    numbers: HashMap<Arc<LaneKey>, u32>,
    keys: HashMap<u32, Arc<LaneKey>>,
    /// How many lanes of each tenant have a number, and the highest number that was counted. No lane is ever deleted,
    /// so only higher numbers are counted the next time.
    counted: (u32, HashMap<TenantId, u64>),
}

/// A lane's name on the server.
fn name(key: &LaneKey) -> String {
    [key.tenant.as_str(), key.channel.name(), &key.provider, &key.class].join("\0")
}

fn key(name: &str) -> RedisResult<LaneKey> {
    let damaged = || RedisFailure::damaged("a lane");
    let mut parts = name.split('\0');
    let mut part = || parts.next().ok_or_else(damaged);
    let (tenant, channel, provider, class) = (part()?, part()?, part()?, part()?);
    Ok(LaneKey {
        tenant: TenantId(tenant.into()),
        channel: ChannelKind::parse(channel).ok_or_else(damaged)?,
        provider: provider.into(),
        class: class.into(),
    })
}

impl RedisLanes {
    fn maps(&self) -> MutexGuard<'_, LaneMaps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn key(&self, number: u32) -> Option<Arc<LaneKey>> {
        self.maps().keys.get(&number).cloned()
    }

    /// The numbers of these lanes, if all are known.
    fn known(&self, keys: &[Arc<LaneKey>]) -> Option<Vec<u32>> {
        let maps = self.maps();
        keys.iter().map(|key| maps.numbers.get(key).copied()).collect()
    }

    fn note(&self, key: Arc<LaneKey>, number: u32) {
        let mut maps = self.maps();
        maps.numbers.insert(key.clone(), number);
        maps.keys.insert(number, key);
    }
}

impl RedisShared {
    /// The number of each lane. A new lane gets one.
    pub(super) async fn lane_numbers(&self, keys: &[Arc<LaneKey>]) -> RedisResult<Vec<u32>> {
        if let Some(numbers) = self.lanes.known(keys) {
            return Ok(numbers);
        }
        let names: Vec<_> = keys.iter().map(|key| name(key)).collect();
        let arguments: Vec<_> = names.iter().map(String::as_bytes).collect();
        let maps = [self.names.common("lanes"), self.names.common("lane_names")];
        let answer = self.link.call_durably(&LANES, &maps, &arguments).await?;
        let mut numbers = Vec::with_capacity(keys.len());
        for (key, number) in keys.iter().zip(list(answer)?) {
            let number = int(&number)? as u32;
            self.lanes.note(key.clone(), number);
            numbers.push(number);
        }
        Ok(numbers)
    }

    /// Reads lanes that are not known yet.
    pub(super) async fn learn(&self, numbers: &[u32]) -> RedisResult<()> {
        let mut unknown: Vec<_> =
            numbers.iter().copied().filter(|number| self.lanes.key(*number).is_none()).collect();
        unknown.sort_unstable();
        unknown.dedup();
        if unknown.is_empty() {
            return Ok(());
        }
        let names = self.names.common("lane_names");
        let fields: Vec<_> = unknown.iter().map(u32::to_string).collect();
        let mut parts: Vec<&[u8]> = vec![b"HMGET", names.as_bytes()];
        parts.extend(fields.iter().map(String::as_bytes));
        let found = list(self.link.ask(&words(&parts)).await?)?;
        for (number, found) in unknown.into_iter().zip(found) {
            if let Some(found) = text(found) {
                self.lanes.note(Arc::new(key(&found)?), number);
            }
        }
        Ok(())
    }

    pub(super) async fn lane_of(&self, number: u32) -> RedisResult<Arc<LaneKey>> {
        self.learn(&[number]).await?;
        self.lanes.key(number).ok_or_else(|| RedisFailure::damaged("a delivery's lane"))
    }

    /// How many lanes of each tenant have a number.
    pub(super) async fn numbered_lanes(&self) -> RedisResult<HashMap<TenantId, u64>> {
        let names = self.names.common("lane_names");
        let last = int(&self.link.ask(&words(&[b"HLEN", names.as_bytes()])).await?)? as u32;
        let (mut counted, mut counts) = self.lanes.maps().counted.clone();
        while counted < last {
            let until = last.min(counted + COUNTED_AT_ONCE);
            let fields: Vec<_> = (counted + 1..=until).map(|number| number.to_string()).collect();
            let mut parts: Vec<&[u8]> = vec![b"HMGET", names.as_bytes()];
            parts.extend(fields.iter().map(String::as_bytes));
            for found in list(self.link.ask(&words(&parts)).await?)? {
                let Some(found) = text(found) else { continue };
                *counts.entry(key(&found)?.tenant).or_default() += 1;
            }
            counted = until;
        }
        self.lanes.maps().counted = (counted, counts.clone());
        Ok(counts)
    }

    /// All lanes, by number.
    pub(super) async fn all_lanes(&self) -> RedisResult<Vec<Arc<LaneKey>>> {
        let names = self.names.common("lane_names");
        let asked = words(&[b"HGETALL", names.as_bytes()]);
        let answer: Value = self.link.ask_for(Patience::Short, &asked).await?;
        let mut found = Vec::new();
        for (number, name) in pairs(answer)? {
            let name = String::from_utf8(name).map_err(|_| RedisFailure::damaged("a lane"))?;
            found.push((text_int(&number)?, Arc::new(key(&name)?)));
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, key)| key).collect())
    }
}

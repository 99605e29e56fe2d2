//! The numbers of lanes. Rows name their lane by its number, so a lane is deleted only when no delivery is as old
//! as its last one. Then its number is free for another lane.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::id::order_key_at;
use postrider_core::{ChannelKind, LaneKey};

use super::prelude::*;
use crate::embedded::index::MemoryIndex;

/// The stored bound of a lane's deliveries is so far ahead, so that it is written once in that time.
const USED_AHEAD: Duration = Duration::from_secs(86_400);
/// Lanes that one transaction deletes.
const COLLECTED_AT_ONCE: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct LaneNumbers {
    numbers: HashMap<Arc<LaneKey>, u32>,
    /// By number: no delivery of the lane has a later sequence.
    used: Vec<u64>,
    free: Vec<u32>,
}

impl LaneNumbers {
    /// Also fills the names in the index.
    pub(crate) fn load(
        conn: &Connection,
        index: &mut MemoryIndex,
        last_id: u64,
    ) -> StoreResult<Self> {
        // Lanes of an earlier version, and those that a repair put in.
        run(conn, "UPDATE lane SET used = ?1 WHERE used = 0", [last_id.max(1) as i64])?;
        let select = "SELECT l.channel, l.provider, l.class, t.id, l.id, l.used FROM lane l \
                      JOIN tenant t ON t.name = l.tenant ORDER BY l.id";
        let mut lanes = Self::default();
        all_rows(conn, select, [], |row| {
            let text = |column: usize| get::<String>(row, column);
            let tenant: u32 = get(row, 3)?;
            let owner = index.tenants.get(tenant).ok_or_else(|| damaged("a lane's tenant"))?;
            let channel = ChannelKind::parse(&text(0)?);
            let key = Arc::new(LaneKey {
                tenant: owner.name.clone(),
                channel: channel.ok_or_else(|| damaged("a lane's channel"))?,
                provider: text(1)?.into(),
                class: text(2)?.into(),
            });
            let number: u32 = get(row, 4)?;
            lanes.free.extend(lanes.next()..number);
            lanes.put(key.clone(), number, unsigned(row, 5)?);
            index.name_lane(number, Some((key, tenant)));
            Ok(())
        })?;
        Ok(lanes)
    }

    /// The number behind the last one.
    fn next(&self) -> u32 {
        u32::try_from(self.used.len()).unwrap_or(u32::MAX)
    }

    fn put(&mut self, key: Arc<LaneKey>, number: u32, used: u64) {
        if self.used.len() <= number as usize {
            self.used.resize(number as usize + 1, 0);
        }
        self.used[number as usize] = used;
        self.numbers.insert(key, number);
    }

    /// The lane is not there any more: deleted, or never committed.
    pub(crate) fn remove(&mut self, key: &LaneKey) {
        self.free.extend(self.numbers.remove(key));
    }

    /// Takes back a bound that was not committed.
    pub(crate) fn restore(&mut self, number: u32, used: u64) {
        if let Some(bound) = self.used.get_mut(number as usize) {
            *bound = used;
        }
    }
}

impl Writer {
    /// The number of a lane that gets a delivery.
    pub(crate) fn lane(&mut self, key: &Arc<LaneKey>, seq: u64) -> StoreResult<u32> {
        let known = self.lanes.numbers.get(key).copied();
        let used = known.and_then(|lane| self.lanes.used.get(lane as usize)).copied();
        if let (Some(lane), Some(used)) = (known, used)
            && seq <= used
        {
            return Ok(lane);
        }
        let bound = order_key_at(self.shared.now() + USED_AHEAD).max(seq);
        if let Some(lane) = known {
            self.effects.lanes_used.push((lane, used.unwrap_or(0)));
            self.lanes.restore(lane, bound);
            let update = "UPDATE lane SET used = ?2 WHERE id = ?1";
            run(&self.conn, update, params![lane, bound as i64])?;
            return Ok(lane);
        }
        let tenant = self.tenant(&key.tenant)?;
        let lane = self.lanes.free.pop().unwrap_or_else(|| self.lanes.next());
        self.lanes.put(key.clone(), lane, bound);
        self.effects.new_lanes.push((lane, key.clone(), tenant));
        let insert = "INSERT INTO lane (id, tenant, channel, provider, class, used) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (tenant, channel) = (key.tenant.as_str(), key.channel.name());
        let row = params![lane, tenant, channel, &*key.provider, &*key.class, bound as i64];
        run(&self.conn, insert, row)?;
        Ok(lane)
    }

    /// Deletes lanes that no delivery needs. True if there are more.
    pub(crate) fn collect_lanes(&mut self) -> StoreResult<bool> {
        let oldest: Option<i64> = value(&self.conn, "SELECT min(seq) FROM delivery", [])?.flatten();
        let oldest = oldest.map_or_else(|| self.shared.ids().last(), |seq| seq as u64);
        let idle = self.lanes.numbers.iter().filter(|(_, lane)| {
            self.lanes.used.get(**lane as usize).is_some_and(|used| *used < oldest)
        });
        let idle: Vec<(Arc<LaneKey>, u32)> =
            idle.take(COLLECTED_AT_ONCE).map(|(key, lane)| (key.clone(), *lane)).collect();
        if idle.is_empty() {
            return Ok(false);
        }
        self.transact_surely(|writer| {
            for (_, lane) in &idle {
                run(&writer.conn, "DELETE FROM lane WHERE id = ?1", [lane])?;
            }
            Ok(())
        })?;
        let mut index = self.shared.index();
        for (key, lane) in &idle {
            self.lanes.remove(key);
            index.name_lane(*lane, None);
            index.lanes.resume(*lane, i64::MIN);
        }
        Ok(idle.len() == COLLECTED_AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Clock;
    use postrider_core::model::decision::Decision;
    use postrider_core::ports::store::{
        AddressLearning, Ledger, NewMessage, Retention, Settlement,
    };

    use super::*;
    use crate::ManualClock;
    use crate::conformance::WorkingStore;
    use crate::conformance::message;
    use crate::embedded::StoreOptions;

    const DAY: Duration = Duration::from_secs(86_400);

    fn to_host(number: u32) -> NewMessage {
        let mut new = message("acme", 1);
        let lane = LaneKey {
            provider: format!("https://host-{number}.example").into(),
            ..(*new.deliveries[0].lane).clone()
        };
        new.deliveries[0].lane = Arc::new(lane);
        new
    }

    async fn deliver_all(store: &WorkingStore, clock: &ManualClock) -> u64 {
        let mut done = 0;
        for lane in store.ready_lanes(10_000).await.unwrap() {
            for leased in store.lease(lane.id, 100, DAY).await.unwrap() {
                assert!(leased.target.as_json().len() > 2 && lane.due_at <= clock.now());
                let settlement = Settlement {
                    delivery: leased.delivery,
                    token: leased.token,
                    attempts: Vec::new(),
                    decision: Decision::Done,
                    learned: AddressLearning::default(),
                };
                store.settle(vec![settlement]).await.unwrap();
                done += 1;
            }
        }
        done
    }

    async fn numbers(store: &WorkingStore) -> (usize, usize) {
        let count = |writer: &mut Writer| Ok((writer.lanes.numbers.len(), writer.lanes.used.len()));
        store.run_task(count).await.unwrap()
    }

    #[tokio::test]
    async fn lanes_without_deliveries_are_collected_and_their_numbers_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let mut store =
            WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
        for week in 0..6 {
            let mut new: Vec<_> = (0..100).map(|n| to_host(1_000 * week + n)).collect();
            new.push(to_host(999_999));
            store.accept(new).await.unwrap();
            assert_eq!(deliver_all(&store, &clock).await, 101);
            let filter =
                postrider_core::ports::store::DeliveryFilter { limit: 200, ..Default::default() };
            let shown = store.deliveries(filter).await.unwrap().items;
            let host = format!("https://host-{}.example", 1_000 * week + 7);
            assert!(shown.iter().any(|delivery| *delivery.provider == *host));
            clock.advance(7 * DAY);
            store.prune(&Retention::of(3 * DAY)).await.unwrap();
            drop(store);
            store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
        }
        let (named, used) = numbers(&store).await;
        assert!(named <= 101 && used <= 202, "{named} lanes, {used} numbers");
    }
}

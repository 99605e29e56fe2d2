//! The numbers of lanes. Rows name their lane by its number, so a lane is deleted only when no row names it. Then its
//! number is free for another lane.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::id::order_key_at;
use postrider_core::{ChannelKind, LaneKey};

use super::prelude::*;
use crate::embedded::index::MemoryIndex;

/// The stored bound of a lane's deliveries is so far ahead, so that it is written once in that time.
const USED_AHEAD: Duration = Duration::from_secs(86_400);
/// Lanes that one transaction deletes, and deliveries that are looked at before it.
const COLLECTED_AT_ONCE: usize = 1_000;
/// Steps of one round. What is behind them waits until the deliveries before are deleted.
const STEPS_MAX: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct LaneNumbers {
    numbers: HashMap<Arc<LaneKey>, u32>,
    /// By number: no delivery of the lane has a later sequence.
    used: Vec<u64>,
    free: Vec<u32>,
    round: CollectionRound,
}

/// How far the oldest deliveries were looked at. Few are kept much longer than the others: dead letters, what is to be
/// sent in a year, what belongs to a tenant with a long retention. Their lanes stay, and later ones can go.
#[derive(Debug, Default)]
struct CollectionRound {
    /// All deliveries before this one were looked at.
    before: u64,
    /// The lanes of those.
    needed: HashSet<u32>,
    steps: usize,
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

    /// Deletes lanes that no delivery needs. True if there may be more.
    pub(crate) fn collect_lanes(&mut self) -> StoreResult<bool> {
        let done = self.look_at_oldest().and_then(|more| Ok((self.delete_idle_lanes()?, more)));
        let (deleted, more) = match done {
            Ok(done) => done,
            Err(error) => {
                self.lanes.round = CollectionRound::default();
                return Err(error);
            }
        };
        if deleted == COLLECTED_AT_ONCE || (more && self.may_collect_more()) {
            return Ok(true);
        }
        self.lanes.round = CollectionRound::default();
        Ok(false)
    }

    /// True if there are more.
    fn look_at_oldest(&mut self) -> StoreResult<bool> {
        let select = "SELECT seq, lane FROM delivery WHERE seq >= ?1 ORDER BY seq LIMIT ?2";
        let range = params![self.lanes.round.before as i64, COLLECTED_AT_ONCE as i64];
        let rows: Vec<(u64, u32)> =
            all_rows(&self.conn, select, range, |row| Ok((unsigned(row, 0)?, get(row, 1)?)))?;
        let round = &mut self.lanes.round;
        round.steps += 1;
        round.needed.extend(rows.iter().map(|(_, lane)| lane));
        let more = rows.len() == COLLECTED_AT_ONCE;
        round.before = match rows.last() {
            Some((last, _)) if more => last + 1,
            _ => order_key_at(self.shared.now()),
        };
        Ok(more)
    }

    fn may_collect_more(&self) -> bool {
        let (lanes, now) = (&self.lanes, order_key_at(self.shared.now()));
        let is_idle = |(number, used): (usize, &u64)| {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            (lanes.round.before..now).contains(used) && !lanes.round.needed.contains(&number)
        };
        lanes.round.steps < STEPS_MAX && lanes.used.iter().enumerate().any(is_idle)
    }

    /// How many it deleted.
    fn delete_idle_lanes(&mut self) -> StoreResult<usize> {
        // The order of the ledger has the earlier lane of a delivery that changed it.
        let changed: Option<i64> =
            value(&self.conn, "SELECT min(seq) FROM lane_change", [])?.flatten();
        let round = &self.lanes.round;
        let before = round.before.min(changed.map_or(u64::MAX, |seq| seq as u64));
        let is_idle = |lane: u32| {
            self.lanes.used.get(lane as usize).is_some_and(|used| *used < before)
                && !round.needed.contains(&lane)
        };
        let idle = self.lanes.numbers.iter().filter(|(_, lane)| is_idle(**lane));
        let idle: Vec<(Arc<LaneKey>, u32)> =
            idle.take(COLLECTED_AT_ONCE).map(|(key, lane)| (key.clone(), *lane)).collect();
        if idle.is_empty() {
            return Ok(0);
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
        Ok(idle.len())
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::model::decision::Decision;
    use postrider_core::ports::store::{
        AddressLearning, DeliveryFilter, Ledger, NewMessage, Retention, Settlement,
    };
    use postrider_core::{Clock, DeadReason};

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

    /// One dead letter that is kept for ever, and one delivery for next year.
    #[tokio::test]
    async fn what_is_kept_for_long_keeps_no_other_lane() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
        let mut later = to_host(2);
        later.send_at = Some(clock.now() + 300 * DAY);
        store.accept(vec![to_host(1), later]).await.unwrap();
        let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
        let leased = store.lease(lane, 1, DAY).await.unwrap().remove(0);
        let buried = Settlement {
            delivery: leased.delivery,
            token: leased.token,
            attempts: Vec::new(),
            decision: Decision::DeadLetter(DeadReason::Permanent),
            learned: AddressLearning::default(),
        };
        store.settle(vec![buried]).await.unwrap();
        for week in 1..5 {
            // More than one look at the oldest deliveries.
            let new = (0..1_500).map(|n| to_host(10_000 * week + n % 300)).collect();
            store.accept(new).await.unwrap();
            assert_eq!(deliver_all(&store, &clock).await, 1_500);
            clock.advance(7 * DAY);
            store.prune(&Retention::of(3 * DAY)).await.unwrap();
            assert_eq!(numbers(&store).await.0, 2, "week {week}");
        }
        let kept = store.deliveries(DeliveryFilter { limit: 9, ..Default::default() }).await;
        let hosts: Vec<_> =
            kept.unwrap().items.iter().map(|kept| kept.provider.to_string()).collect();
        assert_eq!(hosts, ["https://host-2.example", "https://host-1.example"]);
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
            let filter = DeliveryFilter { limit: 200, ..Default::default() };
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

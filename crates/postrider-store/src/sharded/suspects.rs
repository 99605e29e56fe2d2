//! Deliveries that were in flight at two crashes in a row: one at a time is leased in the whole store. The others wait
//! here until its turn ends. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use postrider_core::policy::decide::SUSPECT_CRASHES;

use super::{LanePlace, ShardId, shard_of};

#[derive(Default)]
pub(super) struct SuspectTurns {
    /// Of deliveries that were in flight at a crash, at how many.
    crashes: HashMap<u128, u32>,
    /// The suspect of this worker that has the turn, and until when.
    current: Option<(u128, i64)>,
    /// Suspects that are due and wait for their turn.
    waiting: BTreeMap<u128, HeldBack>,
    ends: BTreeSet<(i64, u128)>,
}

#[derive(Debug, Clone, Copy)]
struct HeldBack {
    lane: u32,
    until: i64,
}

impl SuspectTurns {
    pub(super) fn set_crashes(&mut self, id: u128, crashes: u32) {
        match crashes {
            0 => drop(self.crashes.remove(&id)),
            crashes => drop(self.crashes.insert(id, crashes)),
        }
    }

    pub(super) fn is_suspect(&self, id: u128) -> bool {
        self.crashes.get(&id).is_some_and(|crashes| *crashes >= SUSPECT_CRASHES)
    }

    /// Until when another suspect of this worker has the turn.
    pub(super) fn busy_until(&self, id: u128, now: i64) -> Option<i64> {
        self.current.filter(|(other, until)| *other != id && *until > now).map(|(_, until)| until)
    }

    pub(super) fn begin(&mut self, id: u128, until: i64) {
        self.current = Some((id, until));
    }

    pub(super) fn has_turn(&self, id: u128) -> bool {
        self.current.is_some_and(|(current, _)| current == id)
    }

    pub(super) fn hold_back(&mut self, lane: u32, id: u128, until: i64) {
        self.forget_held_back(id);
        self.waiting.insert(id, HeldBack { lane, until });
        self.ends.insert((until, id));
    }

    pub(super) fn is_held_back(&self, id: u128) -> bool {
        self.waiting.contains_key(&id)
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn forget_held_back(&mut self, id: u128) {
        if let Some(held) = self.waiting.remove(&id) {
            self.ends.remove(&(held.until, id));
        }
    }

    pub(super) fn forget(&mut self, id: u128) {
        self.crashes.remove(&id);
        self.forget_held_back(id);
    }

    /// Its turn ends if it has it. Answers whether.
    pub(super) fn end(&mut self, id: u128) -> bool {
        let had = self.has_turn(id);
        if had {
            self.current = None;
        }
        had
    }

    /// The turn is free: the next one is due. A lane that is suspended has no turn; if all are, the first suspect of
    /// each is due, and the lane that goes on first has the turn. Answers whether one can go on now.
    pub(super) fn pass_on(&mut self, now: i64, is_suspended: impl Fn(u32) -> bool) -> bool {
        let mut first = BTreeMap::new();
        for (id, held) in &self.waiting {
            first.entry(held.lane).or_insert(*id);
        }
        let free = first.iter().filter(|(lane, _)| !is_suspended(**lane)).map(|(_, id)| *id).min();
        let goes_on = free.is_some();
        let next = free.map_or_else(|| first.into_values().collect(), |next| vec![next]);
        for id in next {
            if let Some(held) = self.waiting.get_mut(&id) {
                self.ends.remove(&(held.until, id));
                held.until = now;
                self.ends.insert((now, id));
            }
        }
        goes_on
    }

    /// Those that wait no longer.
    pub(super) fn ended(&mut self, now: i64) -> Vec<(u32, LanePlace)> {
        let mut ended = Vec::new();
        while let Some((until, id)) = self.ends.first().copied().filter(|(at, _)| *at <= now) {
            self.ends.remove(&(until, id));
            if let Some(held) = self.waiting.remove(&id) {
                ended.push((held.lane, (until, id)));
            }
        }
        ended
    }

    pub(super) fn next_end(&self) -> Option<i64> {
        self.ends.first().map(|(until, _)| *until)
    }

    pub(super) fn retain(&mut self, is_held: impl Fn(ShardId) -> bool) {
        self.crashes.retain(|id, _| is_held(shard_of(*id)));
        self.waiting.retain(|id, _| is_held(shard_of(*id)));
        self.ends.retain(|(_, id)| is_held(shard_of(*id)));
        self.current = self.current.filter(|(id, _)| is_held(shard_of(*id)));
    }
}

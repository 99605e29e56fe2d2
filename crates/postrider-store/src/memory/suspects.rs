//! The model's rule for deliveries that were in flight at two crashes in a row: they are leased one at a time.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::policy::decide::SUSPECT_CRASHES;
use postrider_core::{DeliveryId, Timestamp};

use super::rows::MemoryTables;

#[derive(Default)]
pub(super) struct MemorySuspects {
    /// The suspect that was leased last.
    current: Option<DeliveryId>,
    /// Suspects that are due and wait for the end of the current one.
    waiting: BTreeSet<DeliveryId>,
}

impl MemoryTables {
    /// False if the delivery has to wait because it is a suspect and another one is leased.
    pub(super) fn admit_suspect(&mut self, id: DeliveryId, now: Timestamp) -> bool {
        let crashes = self.deliveries.get(&id).map_or(0, |row| row.mark.crashes);
        if crashes < SUSPECT_CRASHES {
            return true;
        }
        let other = self.suspects.current.filter(|other| *other != id);
        let other = other.and_then(|other| self.deliveries.get(&other));
        if let Some(lease) = other.and_then(|row| row.lease).filter(|lease| lease.until > now) {
            self.change(id, |row| row.held_until = Some(lease.until));
            self.suspects.waiting.insert(id);
            return false;
        }
        self.suspects.current = Some(id);
        self.suspects.waiting.remove(&id);
        true
    }

    /// If it was the suspect in flight, the next one is due. A lane that is suspended has no turn; if all are, the
    /// first suspect of each is due, and the lane that goes on first has the turn.
    pub(super) fn end_suspect(&mut self, id: DeliveryId, now: Timestamp) {
        if self.suspects.current != Some(id) {
            return;
        }
        self.suspects.current = None;
        let rows = &self.deliveries;
        let is_waiting = |id: &DeliveryId| {
            let row = rows.get(id);
            row.is_some_and(|row| row.held_until.is_some() && row.progress.state.is_pending())
        };
        self.suspects.waiting.retain(is_waiting);
        let mut first = BTreeMap::new();
        for id in &self.suspects.waiting {
            if let Some(row) = self.deliveries.get(id) {
                first.entry(row.lane).or_insert(*id);
            }
        }
        let free = first.iter().filter(|(lane, _)| !self.is_suspended(**lane, now));
        let free = free.map(|(_, id)| *id).min();
        self.has_new_work |= free.is_some();
        let next = free.map_or_else(|| first.into_values().collect(), |next| vec![next]);
        for next in next {
            self.suspects.waiting.remove(&next);
            self.change(next, |row| row.held_until = Some(now));
        }
    }

    /// As after a crash.
    pub(super) fn forget_suspects(&mut self) {
        self.suspects = MemorySuspects::default();
        let held = self.deliveries.iter().filter(|(_, row)| row.held_until.is_some());
        for id in held.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.change(id, |row| row.held_until = None);
        }
    }
}

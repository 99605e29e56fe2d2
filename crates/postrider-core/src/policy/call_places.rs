//! The calls under way to one origin. A call that takes long moves to a place of its own kind, so that long
//! calls leave the places of brisk ones free. Counts what it is told; reads no clock.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use crate::model::message::Priority;
use crate::model::time::Timestamp;
use crate::policy::fairness::places;

/// Long calls of one origin: at least so many, and as many as brisk ones. An origin that may have fewer
/// calls than this at all has no places beside them.
const LONG_MIN: usize = 128;
/// The least ceiling of an origin that has long places.
const CEILING_MIN: usize = 32;

#[derive(Debug, Clone, Default)]
pub struct CallPlaces {
    /// Calls in the order in which they began, as far as the first ones have not all ended.
    begun: VecDeque<BegunCall>,
    /// The number of the first of them.
    first: u64,
    /// Those before this number are overdue.
    looked: u64,
    /// Overdue calls that found no long place, oldest first.
    stuck: VecDeque<u64>,
    brisk: usize,
    /// Those of them that are not urgent.
    others: usize,
    /// The same by tenant: those that are not urgent, and those that are.
    brisk_of: HashMap<u64, [usize; 2]>,
    long: usize,
    /// Those of them that were long from the start.
    known_long: usize,
    /// Calls that take long, by tenant and by its address: overdue ones and those to slow addresses.
    overdue: HashMap<u64, usize>,
    overdue_all: usize,
    overdue_at: HashMap<(u64, u64), usize>,
}

#[derive(Debug, Clone, Copy)]
struct BegunCall {
    at: Timestamp,
    tenant: u64,
    target: u64,
    urgent: bool,
    /// Its length was unknown from the start.
    apart: bool,
    kind: PlaceKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceKind {
    Brisk,
    Long,
    Ended,
}

/// The place of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPlace {
    /// Brisk when it began; its number.
    Begun(u64),
    /// Long from the start, of this tenant and to this address.
    Long(u64, u64),
}

impl CallPlaces {
    pub fn in_flight(&self) -> usize {
        self.brisk + self.long
    }

    pub fn brisk(&self) -> usize {
        self.brisk
    }

    /// All but those that were known to be long when they began.
    pub fn not_known_long(&self) -> usize {
        self.in_flight() - self.known_long
    }

    pub fn long(&self) -> usize {
        self.long
    }

    /// Brisk calls of a tenant (a number that stands for it) that count together with those of this priority.
    pub fn brisk_of(&self, tenant: u64, priority: Priority) -> usize {
        let own = self.brisk_of.get(&tenant).copied().unwrap_or_default();
        own[usize::from(priority == Priority::High)]
    }

    /// How many more brisk calls of this priority there is room for. Where the origin stands still, long calls have
    /// no places of their own.
    pub fn free(&self, limit: usize, is_behind: bool, priority: Priority) -> usize {
        let long = if is_behind { self.long } else { 0 };
        let free = limit.saturating_sub(self.brisk + long);
        places(free, limit, self.others + long, priority)
    }

    /// How many long calls the origin may have beside `limit` brisk ones, if it may have `ceiling` of these.
    pub fn long_places(limit: usize, ceiling: usize, is_behind: bool) -> usize {
        if ceiling < CEILING_MIN || is_behind { 0 } else { limit.max(LONG_MIN) }
    }

    /// How many more long calls there is room for.
    pub fn free_long(&self, long_places: usize) -> usize {
        long_places.saturating_sub(self.long)
    }

    /// Whether a tenant (a number that stands for it) has so many calls that take long that others who
    /// share the origin would find no place: more than are left, and than twice its share among `tenants`,
    /// who are counted only where it matters.
    pub fn crowds(
        &self,
        tenant: u64,
        tenants: impl FnOnce() -> usize,
        limit: usize,
        long_places: usize,
    ) -> bool {
        let Some(own) = self.overdue.get(&tenant).copied() else { return false };
        let all = limit.max(long_places);
        own > all.saturating_sub(self.overdue_all) && own > 2 * all / tenants().max(1)
    }

    /// Calls of a tenant to an address that take long.
    pub fn overdue_at(&self, tenant: u64, target: u64) -> usize {
        self.overdue_at.get(&(tenant, target)).copied().unwrap_or(0)
    }

    /// How many calls of a tenant take long.
    pub fn overdue_of(&self, tenant: u64) -> usize {
        self.overdue.get(&tenant).copied().unwrap_or(0)
    }

    /// A call of a tenant to an address begins (numbers that stand for them), `apart` if its length is
    /// unknown.
    pub fn begin(
        &mut self,
        tenant: u64,
        target: u64,
        priority: Priority,
        apart: bool,
        now: Timestamp,
    ) -> CallPlace {
        let urgent = priority == Priority::High;
        self.brisk += 1;
        self.others += usize::from(!urgent);
        self.brisk_of.entry(tenant).or_default()[usize::from(urgent)] += 1;
        self.begun.push_back(BegunCall {
            at: now,
            tenant,
            target,
            urgent,
            apart,
            kind: PlaceKind::Brisk,
        });
        CallPlace::Begun(self.first + self.begun.len() as u64 - 1)
    }

    pub fn begin_long(&mut self, tenant: u64, target: u64) -> CallPlace {
        self.long += 1;
        self.known_long += 1;
        self.note_overdue(tenant, target);
        CallPlace::Long(tenant, target)
    }

    /// The call ends. True if it took long.
    pub fn end(&mut self, place: CallPlace) -> bool {
        let number = match place {
            CallPlace::Begun(number) => number,
            CallPlace::Long(tenant, target) => {
                self.long = self.long.saturating_sub(1);
                self.known_long = self.known_long.saturating_sub(1);
                self.no_longer_overdue(tenant, target);
                return true;
            }
        };
        let was_overdue = number < self.looked;
        let Some(begun) = self.begun_mut(number) else { return false };
        let BegunCall { tenant, target, urgent, kind, .. } = *begun;
        begun.kind = PlaceKind::Ended;
        match kind {
            PlaceKind::Brisk => self.leave_brisk(tenant, urgent),
            PlaceKind::Long => self.long = self.long.saturating_sub(1),
            PlaceKind::Ended => return false,
        }
        if was_overdue {
            self.no_longer_overdue(tenant, target);
        }
        while self.begun.front().is_some_and(|begun| begun.kind == PlaceKind::Ended) {
            self.begun.pop_front();
            self.first += 1;
        }
        self.looked = self.looked.max(self.first);
        was_overdue
    }

    /// Moves calls to long places that are under way for so long, as far as there is room. Returns the
    /// tenant of each call that turns out to be long.
    pub fn advance(
        &mut self,
        long_after: Duration,
        long_places: usize,
        now: Timestamp,
    ) -> Vec<u64> {
        let mut overdue = Vec::new();
        while let Some(begun) = self.begun_mut(self.looked).copied() {
            if now.since(begun.at) < long_after {
                break;
            }
            if begun.kind == PlaceKind::Brisk {
                self.note_overdue(begun.tenant, begun.target);
                overdue.extend((!begun.apart).then_some(begun.tenant));
                self.stuck.push_back(self.looked);
            }
            self.looked += 1;
        }
        while self.free_long(long_places) > 0 {
            let Some(number) = self.stuck.pop_front() else { break };
            let Some(begun) = self.begun_mut(number) else { continue };
            if begun.kind == PlaceKind::Brisk {
                begun.kind = PlaceKind::Long;
                let (tenant, urgent) = (begun.tenant, begun.urgent);
                self.leave_brisk(tenant, urgent);
                self.long += 1;
            }
        }
        overdue
    }

    /// When the next brisk call becomes a long one, if it lasts.
    pub fn next_long(&self, long_after: Duration, long_places: usize) -> Option<Timestamp> {
        let nth = usize::try_from(self.looked.checked_sub(self.first)?).ok()?;
        let next = self.begun.get(nth).filter(|_| self.free_long(long_places) > 0)?;
        Some(next.at + long_after)
    }

    fn begun_mut(&mut self, number: u64) -> Option<&mut BegunCall> {
        self.begun.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn leave_brisk(&mut self, tenant: u64, urgent: bool) {
        self.brisk -= 1;
        self.others -= usize::from(!urgent);
        if let Entry::Occupied(mut own) = self.brisk_of.entry(tenant) {
            own.get_mut()[usize::from(urgent)] -= 1;
            if *own.get() == [0; 2] {
                own.remove();
            }
        }
    }

    fn note_overdue(&mut self, tenant: u64, target: u64) {
        self.overdue_all += 1;
        *self.overdue.entry(tenant).or_default() += 1;
        *self.overdue_at.entry((tenant, target)).or_default() += 1;
    }

    fn no_longer_overdue(&mut self, tenant: u64, target: u64) {
        self.overdue_all = self.overdue_all.saturating_sub(1);
        count_down(&mut self.overdue, tenant);
        count_down(&mut self.overdue_at, (tenant, target));
    }
}

fn count_down<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const LONG_AFTER: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Timestamp {
        NOW + Duration::from_millis(ms)
    }

    #[test]
    fn a_call_that_lasts_leaves_its_brisk_place() {
        let mut places = CallPlaces::default();
        let slow = places.begin(1, 7, Priority::Normal, false, NOW);
        let quick = places.begin(1, 7, Priority::Normal, false, at(900));
        _ = places.advance(LONG_AFTER, LONG_MIN, at(1_000));
        assert_eq!((places.brisk(), places.long()), (1, 1));
        assert_eq!(places.next_long(LONG_AFTER, LONG_MIN), Some(at(1_900)));
        assert_eq!(places.brisk_of(1, Priority::Low), 1);
        places.end(slow);
        places.end(quick);
        assert_eq!((places.in_flight(), places.brisk_of.len()), (0, 0));
    }

    #[test]
    fn long_places_are_bounded_and_the_rest_stays_brisk() {
        let mut places = CallPlaces::default();
        let begun: Vec<_> =
            (0..200).map(|_| places.begin(1, 7, Priority::Normal, false, NOW)).collect();
        _ = places.advance(LONG_AFTER, LONG_MIN, at(5_000));
        assert_eq!((places.brisk(), places.long()), (200 - LONG_MIN, LONG_MIN));
        begun.into_iter().for_each(|place| _ = places.end(place));
        assert_eq!(places.in_flight(), 0);
    }

    #[test]
    fn an_origin_that_may_have_few_calls_has_no_long_ones_beside_them() {
        let long = |limit, ceiling| CallPlaces::long_places(limit, ceiling, false);
        assert_eq!((long(5, 5), long(8, 64), long(200, 256)), (0, LONG_MIN, 200));
    }

    #[test]
    fn long_calls_count_as_others_where_the_origin_stands_still() {
        let mut places = CallPlaces::default();
        let slow = places.begin_long(1, 7);
        assert_eq!(places.overdue_at(1, 7), 1);
        assert_eq!(CallPlaces::long_places(32, 256, true), 0);
        assert_eq!([false, true].map(|stands| places.free(4, stands, Priority::High)), [4, 3]);
        assert!(places.end(slow), "it took long");
        assert!(places.overdue.is_empty() && places.overdue_at.is_empty());
    }

    #[test]
    fn calls_end_in_any_order() {
        let mut places = CallPlaces::default();
        let mut begun: Vec<_> =
            (0..50).map(|n| places.begin(1, 7, Priority::Normal, false, at(n))).collect();
        _ = places.advance(Duration::from_millis(20), LONG_MIN, at(40));
        begun.push(places.begin_long(1, 7));
        (0..begun.len()).for_each(|n| _ = places.end(begun[(n * 7) % begun.len()]));
        assert_eq!((places.brisk(), places.long(), places.begun.len()), (0, 0, 0));
    }

    #[test]
    fn a_tenant_whose_calls_take_long_crowds_the_others_once_it_has_more_than_is_left() {
        let mut places = CallPlaces::default();
        let begin = |_| places.begin(1, 7, Priority::Normal, false, NOW);
        let begun: Vec<_> = (0..16).map(begin).collect();
        assert_eq!(places.advance(LONG_AFTER, 32, at(1_000)), [1; 16]);
        assert!(!places.crowds(1, || 4, 16, 32));
        let slow = places.begin_long(1, 7);
        assert!(places.crowds(1, || 4, 16, 32));
        assert!(!places.crowds(2, || 4, 16, 32), "others go on");
        assert!(!places.crowds(1, || 1, 16, 32), "nobody else is there");
        assert_eq!(places.overdue_at(1, 7), 17);
        assert!(places.end(slow), "it took long");
        assert!(!places.crowds(1, || 4, 16, 32));
        begun.into_iter().for_each(|place| _ = places.end(place));
        assert!(places.overdue.is_empty() && places.overdue_at.is_empty());
        assert_eq!(places.overdue_all, 0);
    }

    #[test]
    fn an_overdue_call_gets_the_next_long_place_that_becomes_free() {
        let mut places = CallPlaces::default();
        let begun: Vec<_> =
            (0..3).map(|_| places.begin(1, 7, Priority::Normal, false, NOW)).collect();
        _ = places.advance(LONG_AFTER, 1, at(1_000));
        assert_eq!((places.brisk(), places.long()), (2, 1));
        places.end(begun[0]);
        _ = places.advance(LONG_AFTER, 1, at(1_000));
        assert_eq!((places.brisk(), places.long()), (1, 1));
    }

    #[test]
    fn some_places_are_kept_for_urgent_calls() {
        let mut places = CallPlaces::default();
        (0..18).for_each(|_| _ = places.begin(1, 7, Priority::Normal, false, NOW));
        assert_eq!(places.free(20, false, Priority::Normal), 0);
        assert_eq!(places.free(20, false, Priority::High), 2);
    }
}

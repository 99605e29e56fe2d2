//! Counts of the present minute, and of earlier minutes that are not written yet. The number of lanes is bounded.
//! Writes nothing.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::policy::rollup::{OTHER, RollupFigures, RollupKey, RollupKind, RollupTable};
use postrider_core::ports::store::{RollupName, RollupPart, RollupSpan};
use postrider_core::{Clock, LaneKey, TenantId, Timestamp};

/// Minutes that wait to be written while the store fails. The oldest is dropped for a new one.
const MINUTES_MAX: usize = 15;
/// A lane that no check held for so long is not looked at any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

pub(crate) struct RollupCounter {
    clock: Arc<dyn Clock>,
    /// The number of this run among the writers of all rollups.
    writer: u64,
    lanes_max: usize,
    minutes: Mutex<CountedMinutes>,
    /// Lanes whose provider a check may hold, by tenant, channel and provider, with the cause.
    held: Mutex<HashMap<LaneKey, WatchedLane>>,
}

/// A lane that a check closed for.
#[derive(Clone, Copy)]
struct WatchedLane {
    cause: &'static str,
    /// When it was last held.
    last: Timestamp,
}

/// The last one is the present minute.
#[derive(Default)]
struct CountedMinutes(VecDeque<CountedMinute>);

#[derive(Default)]
struct CountedMinute {
    at: Timestamp,
    lanes: HashMap<LaneKey, LaneCounts>,
    /// How many of them have a row under their own name, by tenant.
    named: HashMap<TenantId, usize>,
    overhead: RollupFigures,
    /// Something was counted since the last write.
    has_news: bool,
}

/// Few outcomes, so that a list is the quickest.
#[derive(Default, Clone)]
struct LaneCounts {
    rows: Vec<(RollupKind, &'static str, RollupFigures)>,
    has_news: bool,
}

impl LaneCounts {
    fn row(&mut self, kind: RollupKind, outcome: &'static str) -> &mut RollupFigures {
        self.has_news = true;
        let known = self.rows.iter().position(|row| row.0 == kind && row.1 == outcome);
        let at = known.unwrap_or_else(|| {
            self.rows.push((kind, outcome, RollupFigures::default()));
            self.rows.len() - 1
        });
        &mut self.rows[at].2
    }
}

/// Whether a bounded table with so many entries, so many of them of one tenant, has room for another one of that
/// tenant: the last quarter is for tenants that have less than a quarter.
pub(crate) fn has_room(most: usize, all: usize, own: usize) -> bool {
    let quarter = (most / 4).max(1);
    all < most && (own < quarter || all < most.saturating_sub(quarter))
}

impl CountedMinute {
    /// Where a lane is counted. Beyond the bound, lanes share the provider `other`, and far beyond it they count for
    /// the whole server only.
    fn lane(&mut self, lane: &LaneKey, lanes_max: usize) -> &mut LaneCounts {
        self.has_news = true;
        if self.lanes.contains_key(lane) {
            return self.entry(lane.clone());
        }
        let named: usize = self.named.values().sum();
        let own = self.named.get(&lane.tenant).copied().unwrap_or(0);
        if has_room(lanes_max, named, own) {
            self.named.insert(lane.tenant.clone(), own + 1);
            return self.entry(lane.clone());
        }
        let other = LaneKey { provider: OTHER.into(), ..lane.clone() };
        if self.lanes.contains_key(&other) || self.lanes.len() < 2 * lanes_max {
            return self.entry(other);
        }
        self.entry(LaneKey { tenant: TenantId::new(""), ..other })
    }

    fn entry(&mut self, lane: LaneKey) -> &mut LaneCounts {
        self.lanes.entry(lane).or_default()
    }

    fn parts(&self, news_of: &HashSet<TenantId>, writer: u64) -> Vec<RollupPart> {
        let mut tables: BTreeMap<Option<TenantId>, RollupTable> = BTreeMap::new();
        for (lane, counts) in &self.lanes {
            for (kind, outcome, figures) in &counts.rows {
                let key = RollupKey {
                    kind: *kind,
                    channel: lane.channel.name().into(),
                    provider: lane.provider.clone(),
                    class: lane.class.clone(),
                    outcome: (*outcome).into(),
                };
                if news_of.contains(&lane.tenant) {
                    let own = tables.entry(Some(lane.tenant.clone())).or_default();
                    own.add(key.clone(), figures);
                }
                tables.entry(None).or_default().add(key, figures);
            }
        }
        if self.overhead.count > 0 {
            let [channel, provider, class, outcome] = ["", "", "", "taken_up"].map(Arc::from);
            let key = RollupKey { kind: RollupKind::Overhead, channel, provider, class, outcome };
            tables.entry(None).or_default().add(key, &self.overhead);
        }
        let part = |(tenant, table): (Option<TenantId>, RollupTable)| {
            let name = RollupName { span: RollupSpan::Minute, at: self.at, tenant, writer };
            RollupPart { name, text: table.to_text() }
        };
        tables.into_iter().map(part).collect()
    }
}

impl RollupCounter {
    /// `writer` is a number of this run alone.
    pub(crate) fn new(clock: Arc<dyn Clock>, writer: u64, lanes_max: usize) -> Self {
        Self {
            clock,
            // Stores keep it as a signed number, and 0 is for hours.
            writer: (writer >> 1).max(1),
            lanes_max: lanes_max.max(1),
            minutes: Mutex::default(),
            held: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CountedMinutes> {
        self.minutes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, count: impl FnOnce(&mut CountedMinute)) {
        let at = RollupSpan::Minute.begin(self.clock.now());
        let CountedMinutes(minutes) = &mut *self.lock();
        if minutes.back().is_none_or(|last| last.at < at) {
            if minutes.len() == MINUTES_MAX {
                minutes.pop_front();
                tracing::warn!("counts of an old minute are dropped, because the store takes none");
            }
            minutes.push_back(CountedMinute { at, ..CountedMinute::default() });
        }
        if let Some(last) = minutes.back_mut() {
            count(last);
        }
    }

    pub(super) fn note_attempt(
        &self,
        lane: &LaneKey,
        outcome: &'static str,
        latency_ms: u64,
        is_repeat: bool,
        is_bad_request: bool,
    ) {
        self.count(|minute| {
            let figures = minute.lane(lane, self.lanes_max).row(RollupKind::Attempts, outcome);
            figures.count += 1;
            figures.repeats += u64::from(is_repeat);
            figures.bad_requests += u64::from(is_bad_request);
            figures.times.note(latency_ms);
        });
    }

    pub(super) fn note_delivery(&self, lane: &LaneKey, outcome: &'static str, age_ms: u64) {
        self.count(|minute| {
            let figures = minute.lane(lane, self.lanes_max).row(RollupKind::Deliveries, outcome);
            figures.count += 1;
            figures.times.note(age_ms);
        });
    }

    pub(super) fn note_overhead(&self, late_ms: u64) {
        self.count(|minute| {
            minute.overhead.count += 1;
            minute.overhead.times.note(late_ms);
            minute.has_news = true;
        });
    }

    /// A check closed for this lane. [`Self::count_held`] looks at it from then on.
    pub(super) fn watch_held(&self, lane: &LaneKey, cause: &'static str) {
        let lane = LaneKey { class: "".into(), ..lane.clone() };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() < self.lanes_max || held.contains_key(&lane) {
            held.insert(lane, WatchedLane { cause, last: self.clock.now() });
        }
    }

    /// Counts a second for every lane that is held. `is_held` says by what, given the cause that was noted. A lane that
    /// was not held for a while is forgotten: a breaker that tries its provider is not held for a moment.
    pub(crate) fn count_held(
        &self,
        is_held: impl Fn(&LaneKey, &'static str) -> Option<&'static str>,
    ) {
        let watched = {
            let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.iter().map(|(lane, watched)| (lane.clone(), *watched)).collect::<Vec<_>>()
        };
        let now = self.clock.now();
        for (lane, watched) in watched {
            let by = is_held(&lane, watched.cause);
            if let Some(by) = by {
                self.count(|minute| {
                    minute.lane(&lane, self.lanes_max).row(RollupKind::Held, by).count += 1;
                });
            }
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            match held.get_mut(&lane) {
                Some(known) if by.is_some() => known.last = now,
                Some(known) if now.since(known.last) >= FORGOTTEN_AFTER => drop(held.remove(&lane)),
                _ => {}
            }
        }
    }

    /// What was counted since the last call. [`Self::forget_written`] or [`Self::write_again`] follows.
    pub(crate) fn news(&self) -> Vec<RollupPart> {
        let mut found = Vec::new();
        for minute in &mut self.lock().0 {
            if !std::mem::take(&mut minute.has_news) {
                continue;
            }
            let lanes = minute.lanes.iter_mut();
            let with_news = lanes.filter_map(|(lane, counts)| {
                let is_new = std::mem::take(&mut counts.has_news);
                (is_new && !lane.tenant.as_str().is_empty()).then(|| lane.tenant.clone())
            });
            let news_of: HashSet<TenantId> = with_news.collect();
            found.push((minute.copy(), news_of));
        }
        // Texts are made while others count.
        let parts = found.iter().flat_map(|(minute, news_of)| minute.parts(news_of, self.writer));
        parts.collect()
    }

    /// All news were written.
    pub(crate) fn forget_written(&self) {
        let CountedMinutes(minutes) = &mut *self.lock();
        let present = minutes.pop_back();
        minutes.retain(|minute| minute.has_news);
        minutes.extend(present);
    }

    /// These parts were not written.
    pub(crate) fn write_again(&self, parts: &[RollupPart]) {
        let CountedMinutes(minutes) = &mut *self.lock();
        let names: HashSet<_> =
            parts.iter().map(|part| (part.name.at, part.name.tenant.as_ref())).collect();
        for minute in minutes {
            minute.has_news |= names.contains(&(minute.at, None));
            for (lane, counts) in &mut minute.lanes {
                counts.has_news |= names.contains(&(minute.at, Some(&lane.tenant)));
            }
        }
    }
}

impl CountedMinute {
    fn copy(&self) -> Self {
        Self {
            at: self.at,
            lanes: self.lanes.clone(),
            named: self.named.clone(),
            overhead: self.overhead,
            has_news: self.has_news,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_store::ManualClock;

    fn lane(tenant: &str, host: usize) -> LaneKey {
        LaneKey {
            tenant: TenantId::new(tenant),
            channel: postrider_channels::webhook::KIND,
            provider: format!("https://h{host}").into(),
            class: "otp".into(),
        }
    }

    fn counter(lanes_max: usize) -> (Arc<ManualClock>, RollupCounter) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(600)));
        (clock.clone(), RollupCounter::new(clock, 7, lanes_max))
    }

    fn counts(parts: &[RollupPart], tenant: Option<&str>) -> Vec<(String, u64)> {
        let of = parts.iter().find(|part| part.name.tenant.as_ref().map(|t| t.as_str()) == tenant);
        let mut table = RollupTable::default();
        of.map(|part| table.add_text(&part.text)).transpose().unwrap();
        table.rows().map(|(key, figures)| (key.provider.to_string(), figures.count)).collect()
    }

    #[test]
    fn news_are_absolute_counts_of_the_tenants_that_changed_and_of_the_server() {
        let (clock, counter) = counter(10);
        counter.note_attempt(&lane("acme", 1), "accepted", 20, false, false);
        counter.note_attempt(&lane("shop", 1), "accepted", 20, false, false);
        let first = counter.news();
        counter.forget_written();
        assert_eq!(first.len(), 3);
        counter.note_attempt(&lane("acme", 1), "accepted", 20, true, false);
        let second = counter.news();
        assert_eq!(second.len(), 2, "shop has no news");
        assert_eq!(counts(&second, Some("acme")), [("https://h1".to_owned(), 2)]);
        assert_eq!(counts(&second, None), [("https://h1".to_owned(), 3)]);
        assert!(counter.news().is_empty());
        clock.advance(Duration::from_secs(60));
        counter.note_delivery(&lane("acme", 1), "sent", 5);
        let third = counter.news();
        assert!(third.iter().all(|part| part.name.at == Timestamp::from_secs(660)));
        assert_eq!(counts(&third, None), [("https://h1".to_owned(), 1)], "a minute of its own");
    }

    #[test]
    fn what_could_not_be_written_is_written_again_also_after_its_minute() {
        let (clock, counter) = counter(10);
        counter.note_attempt(&lane("acme", 1), "accepted", 20, false, false);
        let lost = counter.news();
        counter.write_again(&lost);
        clock.advance(Duration::from_secs(60));
        counter.note_attempt(&lane("shop", 1), "accepted", 20, false, false);
        let parts = counter.news();
        assert!(lost.iter().all(|part| parts.contains(part)));
        assert_eq!(parts.len(), 4);
        counter.forget_written();
        assert_eq!(counter.lock().0.len(), 1, "an old minute is forgotten once it is written");
    }

    #[test]
    fn lanes_beyond_the_bound_count_as_other_and_far_beyond_for_the_server_only() {
        let (_, counter) = counter(3);
        for tenant in ["a", "b", "c", "d", "e"] {
            for host in 0..4 {
                counter.note_attempt(&lane(tenant, host), "accepted", 1, false, false);
            }
        }
        let parts = counter.news();
        let all: u64 = counts(&parts, None).iter().map(|(_, count)| count).sum();
        assert_eq!(all, 20, "every attempt counts for the server");
        let (named, other) = ("https://h0".to_owned(), "other".to_owned());
        assert_eq!(counts(&parts, Some("a")).last(), Some(&(other.clone(), 2)));
        assert_eq!(counts(&parts, Some("b")), [(named, 1), (other.clone(), 3)]);
        assert_eq!(counts(&parts, Some("c")), [(other, 4)]);
        assert!(counts(&parts, Some("e")).is_empty());
        assert!(counter.lock().0.back().unwrap().lanes.len() <= 7);
    }

    #[test]
    fn a_tenant_with_endless_lanes_does_not_take_the_rows_of_others() {
        let (_, counter) = counter(100);
        for host in 0..1_000 {
            counter.note_attempt(&lane("greedy", host), "accepted", 1, false, false);
        }
        for host in 0..20 {
            counter.note_attempt(&lane("honest", host), "accepted", 1, false, false);
        }
        let parts = counter.news();
        assert_eq!(counts(&parts, Some("greedy")).len(), 75 + 1);
        assert_eq!(counts(&parts, Some("honest")).len(), 20, "each has a row of its own");
    }

    #[test]
    fn a_lane_is_counted_as_held_until_it_is_not() {
        let (clock, counter) = counter(3);
        counter.watch_held(&lane("acme", 1), "breaker");
        for second in 0..5 {
            counter.count_held(|_, cause| (second != 3).then_some(cause));
        }
        let held = |count| [("https://h1".to_owned(), count)];
        assert_eq!(counts(&counter.news(), Some("acme")), held(4), "it was tried for a moment");
        clock.advance(FORGOTTEN_AFTER);
        counter.count_held(|_, _| None);
        assert!(counter.held.lock().unwrap().is_empty());
    }
}

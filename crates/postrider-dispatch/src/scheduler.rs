//! Gives turns to the lanes that have something due. Knows which may go now, and which wait for a
//! provider that is full. The store lists a lane once; the scheduler keeps it until it has nothing more
//! to send. So a round costs what it sends and not what waits, and one tenant's many lanes do not hide
//! another's single lane. Asks no check and leases nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use postrider_core::model::message::Priority;
use postrider_core::policy::fairness::{Fairness, Turn, WeightPart, Weights};
use postrider_core::{LaneId, LaneKey, Timestamp};

use crate::lanes::ProviderKey;

/// Lanes kept at most; the store keeps the others until some of these are done.
pub(crate) const LANES_MAX: usize = 200_000;

#[derive(Default)]
pub(crate) struct LaneScheduler {
    /// Lanes that may go, as far as is known.
    open: Fairness<LaneCandidate>,
    /// Lanes that wait for a provider that is full.
    queues: HashMap<ProviderKey, ProviderQueue>,
    timers: BTreeSet<(Timestamp, ProviderKey)>,
    /// All lanes, and whether the store no longer lists them.
    lanes: HashMap<LaneId, bool>,
}

/// The rules by which turns are given.
#[derive(Clone, Copy)]
pub(crate) struct TurnTerms<'a> {
    pub(crate) weights: &'a Weights,
    pub(crate) now: Timestamp,
}

#[derive(Debug, Clone)]
pub(crate) struct LaneEntry {
    pub(crate) id: LaneId,
    pub(crate) key: Arc<LaneKey>,
    /// Where its next calls go: the lane's provider, or an account.
    pub(crate) provider: ProviderKey,
    pub(crate) priority: Priority,
    /// Does not wait for a provider that fails as a whole.
    pub(crate) impatient: bool,
    /// Before this time it had to wait by itself.
    pub(crate) free_since: Timestamp,
}

struct LaneCandidate {
    entry: LaneEntry,
    /// Its turn at the provider, if it shares that with other lanes.
    turn: Option<Turn>,
}

/// The lanes that wait for one provider.
#[derive(Default)]
struct ProviderQueue {
    waiting: Fairness<LaneEntry>,
    open_for: OpenFor,
    until: Option<Timestamp>,
    /// When it was last closed or reopened.
    changed_at: Timestamp,
    /// Whether a lane of each priority has its turn: at most one each.
    out: [bool; 3],
    /// An impatient lane may be among them.
    impatient: bool,
}

/// Which work a provider takes at this moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum OpenFor {
    #[default]
    All,
    /// The free slots are kept for urgent work.
    Urgent,
    Nobody,
}

/// The turn of a lane; to be [ended](LaneScheduler::end).
pub(crate) struct LaneTurn {
    pub(crate) entry: LaneEntry,
    here: Turn,
    at_provider: Option<Turn>,
    /// Since then, nothing but the work before it kept the lane waiting.
    pub(crate) free_since: Timestamp,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// The lane has more to send.
    More,
    /// The lane has nothing more, or has to wait by itself.
    LaneDone,
    /// Its tenant holds its part of the provider's places, and others wait.
    HoldsPart,
    /// Its provider takes no more, until that time if it is known; `shut` if it fails as a whole.
    /// `full` if only places are missing: some are kept for urgent work.
    ProviderFull { until: Option<Timestamp>, shut: bool, full: bool },
}

impl LaneTurn {
    pub(crate) fn allowance(&self) -> usize {
        let at_provider = self.at_provider.as_ref().map_or(usize::MAX, |turn| turn.allowance);
        self.here.allowance.min(at_provider)
    }

    /// The part of its tenant among those that wait for the provider.
    pub(crate) fn part_at(&self, provider: &ProviderKey) -> WeightPart {
        let turn = self.at_provider.as_ref().filter(|_| self.entry.provider == *provider);
        turn.map_or(WeightPart::WHOLE, Turn::part)
    }
}

impl LaneScheduler {
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Notes that the store need not list the lane any more. True if it still does.
    pub(crate) fn hide(&mut self, lane: LaneId) -> bool {
        self.lanes.get_mut(&lane).is_some_and(|hidden| !std::mem::replace(hidden, true))
    }

    /// Takes in a lane that has something due.
    pub(crate) fn join(&mut self, entry: LaneEntry, terms: TurnTerms<'_>) {
        if self.lanes.insert(entry.id, false).is_some() {
            return;
        }
        let provider = entry.provider.clone();
        match self.queues.get_mut(&provider).filter(|queue| !queue.is_passed_by(&entry)) {
            Some(queue) => {
                queue.join(entry);
                self.offer(&provider, terms);
            }
            None => self.let_go(entry, None),
        }
    }

    /// The next lane whose turn it is.
    pub(crate) fn next(&mut self, terms: TurnTerms<'_>) -> Option<LaneTurn> {
        loop {
            let (LaneCandidate { entry, turn }, here) =
                self.open.next(terms.weights, terms.now, |_| true)?;
            let provider = entry.provider.clone();
            let Some(queue) = self.queues.get_mut(&provider) else {
                let free_since = entry.free_since;
                return Some(LaneTurn { entry, here, at_provider: turn, free_since });
            };
            let lets = turn.is_some() && queue.open_for.lets(entry.priority);
            if lets || (turn.is_none() && queue.is_passed_by(&entry)) {
                let free_since = entry.free_since.max(queue.changed_at);
                return Some(LaneTurn { entry, here, at_provider: turn, free_since });
            }
            // Others wait for the same provider, or it has become full.
            self.open.end(here, 0, None);
            queue.back(entry, turn, 0);
            self.offer(&provider, terms);
        }
    }

    /// Ends a turn in which the lane sent `used` to this provider, or found it closed. True if the scheduler
    /// dropped the lane and the store has to list it again.
    pub(crate) fn end(
        &mut self,
        pick: LaneTurn,
        provider: ProviderKey,
        used: usize,
        rest: TurnEnd,
        terms: TurnTerms<'_>,
    ) -> bool {
        let mut hidden = false;
        let LaneTurn { mut entry, here, mut at_provider, .. } = pick;
        if entry.provider != provider {
            // It went through another account than when it joined.
            let former = std::mem::replace(&mut entry.provider, provider.clone());
            if let Some(turn) = at_provider.take() {
                self.queue(&former).left(entry.priority, turn, used);
            }
            self.offer(&former, terms);
        }
        let queue = self.queues.get(&provider);
        let shared = queue.is_some_and(|q| at_provider.is_some() || !q.is_passed_by(&entry));
        match rest {
            TurnEnd::More if !shared => {
                let stays = LaneCandidate { entry, turn: None };
                self.open.end(here, used, Some(stays));
                return false;
            }
            TurnEnd::More => self.queue(&provider).back(entry, at_provider, used),
            TurnEnd::HoldsPart => self.queue(&provider).pass(entry, at_provider),
            TurnEnd::LaneDone => {
                hidden = self.lanes.remove(&entry.id) == Some(true);
                if let Some(turn) = at_provider {
                    self.queue(&provider).left(entry.priority, turn, used);
                }
            }
            TurnEnd::ProviderFull { until, shut, full } => {
                let priority = entry.priority;
                let queue = self.queue(&provider);
                let earlier = queue.until;
                queue.back(entry, at_provider, used);
                queue.close(priority, until.or(earlier), shut, full);
                queue.changed_at = terms.now;
                earlier.map(|at| self.timers.remove(&(at, provider.clone())));
                self.timers.extend(until.or(earlier).map(|at| (at, provider.clone())));
                if shut {
                    self.release_impatient(&provider);
                }
            }
        }
        self.open.end(here, used, None);
        self.offer(&provider, terms);
        hidden
    }

    /// Ends a turn in which nothing could be leased; the lane keeps its place.
    pub(crate) fn put_back(&mut self, pick: LaneTurn) {
        let stays = LaneCandidate { entry: pick.entry, turn: pick.at_provider };
        self.open.end(pick.here, 0, Some(stays));
    }

    /// A provider takes calls again, or may.
    pub(crate) fn reopen(&mut self, provider: &ProviderKey, terms: TurnTerms<'_>) {
        if let Some(queue) = self.queues.get_mut(provider) {
            queue.open_for = OpenFor::All;
            queue.changed_at = terms.now;
            if let Some(until) = queue.until.take() {
                self.timers.remove(&(until, provider.clone()));
            }
            self.offer(provider, terms);
        }
    }

    pub(crate) fn reopen_all(&mut self, terms: TurnTerms<'_>) {
        let mut providers: Vec<_> = self.queues.keys().cloned().collect();
        providers.sort_unstable();
        providers.iter().for_each(|provider| self.reopen(provider, terms));
    }

    /// Reopens the providers whose time has come.
    pub(crate) fn wake(&mut self, terms: TurnTerms<'_>) {
        while let Some((until, _)) = self.timers.first() {
            if *until > terms.now {
                break;
            }
            if let Some((_, provider)) = self.timers.pop_first() {
                self.reopen(&provider, terms);
            }
        }
    }

    /// When the first provider reopens by itself.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.timers.first().map(|(until, _)| *until)
    }

    fn queue(&mut self, provider: &ProviderKey) -> &mut ProviderQueue {
        self.queues.entry(provider.clone()).or_default()
    }

    /// Lets lanes go that do not wait for a provider that fails: their class says what follows.
    fn release_impatient(&mut self, provider: &ProviderKey) {
        let Some(queue) = self.queues.get_mut(provider) else { return };
        if std::mem::take(&mut queue.impatient) {
            let going = queue.waiting.extract(|entry| entry.impatient);
            going.into_iter().for_each(|entry| self.let_go(entry, None));
        }
    }

    fn let_go(&mut self, entry: LaneEntry, turn: Option<Turn>) {
        let (key, priority) = (entry.key.clone(), entry.priority);
        self.open.join(LaneCandidate { entry, turn }, &key.tenant, priority);
    }

    /// Lets the next lanes of the provider go, and forgets a queue in which no lane waits.
    fn offer(&mut self, provider: &ProviderKey, terms: TurnTerms<'_>) {
        let Some(queue) = self.queues.get_mut(provider) else { return };
        if queue.waiting.is_empty() {
            if let Some(until) = queue.until {
                self.timers.remove(&(until, provider.clone()));
            }
            self.queues.remove(provider);
            return;
        }
        let mut offers = Vec::new();
        while let Some((entry, turn)) = queue.next(terms) {
            queue.out[entry.priority as usize] = true;
            offers.push((entry, turn));
        }
        offers.into_iter().for_each(|(entry, turn)| self.let_go(entry, Some(turn)));
    }
}

impl OpenFor {
    fn lets(self, priority: Priority) -> bool {
        match self {
            Self::All => true,
            Self::Urgent => priority == Priority::High,
            Self::Nobody => false,
        }
    }
}

impl ProviderQueue {
    /// Where no slot is free, urgent work may still find one that is kept for it.
    fn close(&mut self, priority: Priority, until: Option<Timestamp>, shut: bool, full: bool) {
        let all = shut || (until.is_some() && !full) || priority == Priority::High;
        self.open_for = if all { OpenFor::Nobody } else { OpenFor::Urgent };
        self.until = until;
    }

    /// An impatient lane does not wait for a closed provider: the checks say why it is closed.
    fn is_passed_by(&self, entry: &LaneEntry) -> bool {
        entry.impatient && !self.open_for.lets(entry.priority)
    }

    fn join(&mut self, entry: LaneEntry) {
        self.impatient |= entry.impatient;
        let key = entry.key.clone();
        self.waiting.join(entry.clone(), &key.tenant, entry.priority);
    }

    fn back(&mut self, entry: LaneEntry, turn: Option<Turn>, used: usize) {
        match turn {
            Some(turn) => {
                self.out[entry.priority as usize] = false;
                self.waiting.end(turn, used, Some(entry));
            }
            None => self.join(entry),
        }
    }

    fn pass(&mut self, entry: LaneEntry, turn: Option<Turn>) {
        match turn {
            Some(turn) => {
                self.out[entry.priority as usize] = false;
                self.waiting.pass(turn, entry);
            }
            None => self.join(entry),
        }
    }

    fn left(&mut self, priority: Priority, turn: Turn, used: usize) {
        self.out[priority as usize] = false;
        self.waiting.end(turn, used, None);
    }

    /// One lane at a time, and a more urgent one beside it.
    fn next(&mut self, terms: TurnTerms<'_>) -> Option<(LaneEntry, Turn)> {
        let most_urgent = [Priority::High, Priority::Normal, Priority::Low]
            .into_iter()
            .find(|priority| self.out[*priority as usize]);
        let open_for = self.open_for;
        match most_urgent {
            Some(slower) => {
                self.waiting.overtake(terms.weights, terms.now, |p| p > slower && open_for.lets(p))
            }
            None => self.waiting.next(terms.weights, terms.now, |p| open_for.lets(p)),
        }
    }
}

#[cfg(test)]
mod tests;

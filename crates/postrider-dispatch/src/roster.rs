//! The lanes that have something due, as the dispatcher goes through them: who may go now, and who
//! waits for a provider that does not take all that is for it. The store lists a lane once; from then on it
//! is here until it has nothing more to send, so that a round costs what it sends and not what waits,
//! and nobody's many lanes hide another's one. Asks no gate and leases nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use postrider_core::model::message::Priority;
use postrider_core::policy::fairness::{Fairness, Turn, Weights};
use postrider_core::{LaneId, LaneKey, Timestamp};

use crate::lanes::OriginKey;

/// Lanes kept here at most; more are left with the store until some of these are done.
pub(crate) const LANES_MAX: usize = 200_000;

#[derive(Default)]
pub(crate) struct Roster {
    /// Who may go, as far as is known.
    open: Fairness<Candidate>,
    /// Providers that do not take all that is for them.
    queues: HashMap<OriginKey, Queue>,
    timers: BTreeSet<(Timestamp, OriginKey)>,
    /// All of them, and whether the store no longer lists them.
    lanes: HashMap<LaneId, bool>,
}

/// By what turns are given.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) weights: &'a Weights,
    pub(crate) now: Timestamp,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) id: LaneId,
    pub(crate) key: Arc<LaneKey>,
    pub(crate) priority: Priority,
    /// Does not wait for a provider that fails as a whole.
    pub(crate) impatient: bool,
}

struct Candidate {
    entry: Entry,
    /// Where it has to share its provider with others.
    turn: Option<Turn>,
}

/// Those that wait for one provider.
#[derive(Default)]
struct Queue {
    waiting: Fairness<Entry>,
    door: Door,
    until: Option<Timestamp>,
    /// Whose turn it is, at most one of each priority.
    out: [bool; 3],
    /// Somebody impatient may be among them.
    impatient: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Door {
    #[default]
    Open,
    /// What is left is kept for urgent work.
    Urgent,
    Closed,
}

/// Whose turn it is; to be [ended](Roster::end).
pub(crate) struct Pick {
    pub(crate) entry: Entry,
    here: Turn,
    at_provider: Option<Turn>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// There is more.
    More,
    /// The lane has nothing more, or has to wait by itself.
    Left,
    /// Its provider takes no more, until that time if it is known; `shut` if it fails as a whole.
    Full { until: Option<Timestamp>, shut: bool },
}

impl Pick {
    pub(crate) fn allowance(&self) -> usize {
        let at_provider = self.at_provider.as_ref().map_or(usize::MAX, |turn| turn.allowance);
        self.here.allowance.min(at_provider)
    }
}

impl Entry {
    fn provider(&self) -> OriginKey {
        (self.key.channel, self.key.provider.clone())
    }
}

impl Roster {
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// True if the lane is here and the store still lists it: it need not any more.
    pub(crate) fn hide(&mut self, lane: LaneId) -> bool {
        self.lanes.get_mut(&lane).is_some_and(|hidden| !std::mem::replace(hidden, true))
    }

    /// A lane has something due.
    pub(crate) fn join(&mut self, entry: Entry, terms: Terms<'_>) {
        if self.lanes.insert(entry.id, false).is_some() {
            return;
        }
        let provider = entry.provider();
        match self.queues.get_mut(&provider).filter(|queue| !queue.is_passed_by(&entry)) {
            Some(queue) => {
                queue.join(entry);
                self.offer(&provider, terms);
            }
            None => self.enter(entry, None),
        }
    }

    /// Whose turn it is.
    pub(crate) fn next(&mut self, terms: Terms<'_>) -> Option<Pick> {
        loop {
            let (Candidate { entry, turn }, here) =
                self.open.next(terms.weights, terms.now, |_| true)?;
            let provider = entry.provider();
            let Some(queue) = self.queues.get_mut(&provider) else {
                return Some(Pick { entry, here, at_provider: turn });
            };
            let lets = turn.is_some() && queue.door.lets(entry.priority);
            if lets || (turn.is_none() && queue.is_passed_by(&entry)) {
                return Some(Pick { entry, here, at_provider: turn });
            }
            // Others wait for the same provider, or it takes no more since.
            self.open.end(here, 0, None);
            queue.back(entry, turn, 0);
            self.offer(&provider, terms);
        }
    }

    /// The lane has sent `used`. True if it is not here any more and the store has to list it again.
    pub(crate) fn end(&mut self, pick: Pick, used: usize, rest: Rest, terms: Terms<'_>) -> bool {
        let mut hidden = false;
        let Pick { entry, here, at_provider } = pick;
        let provider = entry.provider();
        let queue = self.queues.get(&provider);
        let shared = queue.is_some_and(|q| at_provider.is_some() || !q.is_passed_by(&entry));
        match rest {
            Rest::More if !shared => {
                let stays = Candidate { entry, turn: None };
                self.open.end(here, used, Some(stays));
                return false;
            }
            Rest::More => self.queue(&provider).back(entry, at_provider, used),
            Rest::Left => {
                hidden = self.lanes.remove(&entry.id) == Some(true);
                if let Some(turn) = at_provider {
                    self.queue(&provider).left(entry.priority, turn, used);
                }
            }
            Rest::Full { until, shut } => {
                let priority = entry.priority;
                let queue = self.queue(&provider);
                let earlier = queue.until;
                queue.back(entry, at_provider, used);
                queue.close(priority, until.or(earlier), shut);
                earlier.map(|at| self.timers.remove(&(at, provider.clone())));
                self.timers.extend(until.or(earlier).map(|at| (at, provider.clone())));
                if shut {
                    self.let_the_impatient_go(&provider);
                }
            }
        }
        self.open.end(here, used, None);
        self.offer(&provider, terms);
        hidden
    }

    /// Not now, for want of room in general.
    pub(crate) fn put_back(&mut self, pick: Pick) {
        let stays = Candidate { entry: pick.entry, turn: pick.at_provider };
        self.open.end(pick.here, 0, Some(stays));
    }

    /// A provider takes calls again, or may.
    pub(crate) fn reopen(&mut self, provider: &OriginKey, terms: Terms<'_>) {
        if let Some(queue) = self.queues.get_mut(provider) {
            queue.door = Door::Open;
            if let Some(until) = queue.until.take() {
                self.timers.remove(&(until, provider.clone()));
            }
            self.offer(provider, terms);
        }
    }

    pub(crate) fn reopen_all(&mut self, terms: Terms<'_>) {
        let mut providers: Vec<_> = self.queues.keys().cloned().collect();
        providers.sort_unstable();
        providers.iter().for_each(|provider| self.reopen(provider, terms));
    }

    /// Reopens the providers whose time has come.
    pub(crate) fn wake(&mut self, terms: Terms<'_>) {
        while let Some((until, _)) = self.timers.first() {
            if *until > terms.now {
                break;
            }
            if let Some((_, provider)) = self.timers.pop_first() {
                self.reopen(&provider, terms);
            }
        }
    }

    /// When the first of them does.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.timers.first().map(|(until, _)| *until)
    }

    fn queue(&mut self, provider: &OriginKey) -> &mut Queue {
        self.queues.entry(provider.clone()).or_default()
    }

    /// What they are told next is final.
    fn let_the_impatient_go(&mut self, provider: &OriginKey) {
        let Some(queue) = self.queues.get_mut(provider) else { return };
        if std::mem::take(&mut queue.impatient) {
            let going = queue.waiting.extract(|entry| entry.impatient);
            going.into_iter().for_each(|entry| self.enter(entry, None));
        }
    }

    fn enter(&mut self, entry: Entry, turn: Option<Turn>) {
        let (key, priority) = (entry.key.clone(), entry.priority);
        self.open.join(Candidate { entry, turn }, &key.tenant, priority);
    }

    /// Lets go whoever is next at the provider, and forgets a queue in which nobody waits.
    fn offer(&mut self, provider: &OriginKey, terms: Terms<'_>) {
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
        offers.into_iter().for_each(|(entry, turn)| self.enter(entry, Some(turn)));
    }
}

impl Door {
    fn lets(self, priority: Priority) -> bool {
        match self {
            Self::Open => true,
            Self::Urgent => priority == Priority::High,
            Self::Closed => false,
        }
    }
}

impl Queue {
    /// Where a place is wanting, urgent work may still find one that is kept for it.
    fn close(&mut self, priority: Priority, until: Option<Timestamp>, shut: bool) {
        let all = shut || until.is_some() || priority == Priority::High;
        self.door = if all { Door::Closed } else { Door::Urgent };
        self.until = until;
    }

    /// A closed door is no reason to wait for somebody impatient: asked, the gates say why.
    fn is_passed_by(&self, entry: &Entry) -> bool {
        entry.impatient && !self.door.lets(entry.priority)
    }

    fn join(&mut self, entry: Entry) {
        self.impatient |= entry.impatient;
        let key = entry.key.clone();
        self.waiting.join(entry.clone(), &key.tenant, entry.priority);
    }

    fn back(&mut self, entry: Entry, turn: Option<Turn>, used: usize) {
        match turn {
            Some(turn) => {
                self.out[entry.priority as usize] = false;
                self.waiting.end(turn, used, Some(entry));
            }
            None => self.join(entry),
        }
    }

    fn left(&mut self, priority: Priority, turn: Turn, used: usize) {
        self.out[priority as usize] = false;
        self.waiting.end(turn, used, None);
    }

    /// One at a time, and whoever is more urgent beside it.
    fn next(&mut self, terms: Terms<'_>) -> Option<(Entry, Turn)> {
        let most_urgent = [Priority::High, Priority::Normal, Priority::Low]
            .into_iter()
            .find(|priority| self.out[*priority as usize]);
        let door = self.door;
        match most_urgent {
            Some(slower) => {
                self.waiting.overtake(terms.weights, terms.now, |p| p > slower && door.lets(p))
            }
            None => self.waiting.next(terms.weights, terms.now, |p| door.lets(p)),
        }
    }
}

#[cfg(test)]
mod tests;

//! Judges what it sees of a run. Keeps a book of its own about every delivery, from what the store
//! durably did, what the dispatcher handed over and what the providers took; a promise that does not
//! hold by that book is a [`Violation`]. Steers nothing.

mod budget;
mod calls;
mod ends;
mod fairness;
mod gates;
mod leases;
mod pace;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use postrider_core::policy::ttl::expires_at;
use postrider_core::ports::store::{Admission, Alternative, NewMessage};
use postrider_core::{DeadReason, DeliveryId, MessageId, State, Timestamp};
use postrider_dispatch::DispatchLimits;

pub(crate) use calls::Handed;
pub(crate) use fairness::Fairness;
pub(crate) use gates::OriginGates;
pub(crate) use leases::name as decision_name;

use crate::plan::Plan;
use crate::world::Violation;

pub(crate) type Judged = Result<(), Violation>;

/// A violation, unless `holds`.
pub(crate) fn promise(
    holds: bool,
    invariant: &'static str,
    detail: impl FnOnce() -> String,
) -> Judged {
    if holds { Ok(()) } else { Err(Violation { invariant, detail: detail() }) }
}

/// What the book says about one delivery.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub id: DeliveryId,
    pub message: MessageId,
    pub tenant: usize,
    pub provider: usize,
    pub class: usize,
    pub address: u64,
    /// Where it may still go instead: provider and address.
    pub alternatives: Vec<(usize, u64)>,
    pub state: State,
    pub reason: Option<DeadReason>,
    pub attempts: u32,
    pub tries: u32,
    pub due: Timestamp,
    pub expires: Timestamp,
    pub held: Option<Held>,
    /// How often a provider got a request for it, and how often it then had it.
    pub reached: u32,
    pub taken: u32,
    /// Once: an answer that never came, a call that was cut off.
    pub in_doubt: bool,
    pub cancel_asked: bool,
    /// It was under way when that was asked: nothing of it is tried again.
    pub cancelled: bool,
    /// Durably noted that an attempt was about to leave, under a lease whose end is not known.
    pub started: bool,
    pub replays: u32,
    /// Ends of the process while it was leased, since an attempt of it came to an end.
    pub crashes: u32,
}

/// A lease, as the store gave it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub token: u64,
    pub since: Timestamp,
    pub until: Timestamp,
    /// When it was asked for: by then the lane's gates had been asked.
    pub asked: Moment,
    pub is_retry: bool,
    /// An attempt under an earlier lease was begun, and its end is not known.
    pub started: bool,
    pub calls: u32,
    pub accepted: bool,
}

/// A place in the order of events, and the wall clock there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub seq: u64,
    pub at: Timestamp,
}

/// What a caller was told about a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Accepted(MessageId),
    Refused(u16),
}

struct Key {
    message: MessageId,
    fingerprint: [u8; 16],
    expires: Timestamp,
}

pub(crate) struct Oracle {
    pub deliveries: Vec<Known>,
    index: HashMap<DeliveryId, usize>,
    messages: BTreeSet<MessageId>,
    keys: HashMap<[u8; 16], Key>,
    pub told: BTreeMap<usize, Told>,
    /// Addresses that a provider called gone, and since when.
    gone: BTreeMap<(usize, usize, u64), u64>,
    gates: Vec<OriginGates>,
    pace: pace::Pace,
    budgets: budget::Budgets,
    pub fairness: Fairness,
    limits: DispatchLimits,
    classes: Vec<postrider_core::Class>,
    in_flight: usize,
    seq: u64,
    /// Of the process that runs.
    pub life: u32,
}

impl Oracle {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            deliveries: Vec::new(),
            index: HashMap::new(),
            messages: BTreeSet::new(),
            keys: HashMap::new(),
            told: BTreeMap::new(),
            gone: BTreeMap::new(),
            gates: plan.providers.iter().map(|_| OriginGates::default()).collect(),
            pace: pace::Pace::new(plan),
            budgets: budget::Budgets::new(plan.limits.retry_budget),
            fairness: Fairness::new(plan),
            limits: plan.limits.clone(),
            classes: plan.classes.clone(),
            in_flight: 0,
            seq: 0,
            life: 0,
        }
    }

    /// The next place in the order of events.
    pub(crate) fn moment(&mut self, at: Timestamp) -> Moment {
        self.seq += 1;
        Moment { seq: self.seq, at }
    }

    /// A process starts: what the last one held or knew without the store is gone.
    pub(crate) fn new_life(&mut self) {
        self.life += 1;
        for known in &mut self.deliveries {
            if let Some(held) = known.held.take() {
                known.crashes += 1;
                known.in_doubt |= held.calls > 0;
            }
        }
        self.in_flight = 0;
        self.gates.iter_mut().for_each(|gates| *gates = OriginGates::default());
        self.pace.new_life();
        self.budgets.new_life();
    }

    /// The wall clock was set.
    pub(crate) fn jumped(&mut self, now: Timestamp) {
        self.budgets.jumped(now);
    }

    /// What the store durably took in.
    pub(crate) fn accepted(
        &mut self,
        new: &[NewMessage],
        answers: &[Admission],
        now: Timestamp,
    ) -> Judged {
        promise(new.len() == answers.len(), "every message gets its answer", || {
            format!("{} messages, {} answers", new.len(), answers.len())
        })?;
        new.iter().zip(answers).try_for_each(|(new, answer)| self.admitted(new, answer, now))
    }

    fn admitted(&mut self, new: &NewMessage, answer: &Admission, now: Timestamp) -> Judged {
        let key = new.dedup.as_ref();
        let seen = key.and_then(|k| self.keys.get(&k.key)).filter(|seen| seen.expires > now);
        let same =
            seen.zip(key).map(|(seen, key)| (seen.message, seen.fingerprint == key.fingerprint));
        const ONE: &str = "one message per key inside its window";
        match (answer, same) {
            (Admission::Accepted { message, deliveries }, None) => {
                self.register(new, *message, deliveries, now);
                Ok(())
            }
            (Admission::Duplicate { message, .. }, Some((first, true))) => {
                promise(*message == first, ONE, || {
                    "a repeat was answered with another message".into()
                })
            }
            (Admission::Conflict { message }, Some((first, false))) => {
                promise(*message == first, ONE, || "a conflict with another message".into())
            }
            (answer, same) => promise(false, ONE, || {
                let answer = match answer {
                    Admission::Accepted { .. } => "accepted",
                    Admission::Duplicate { .. } => "called a repeat",
                    Admission::Conflict { .. } => "called a conflict",
                };
                format!("the key was seen before: {same:?} (same content?); it was {answer}")
            }),
        }
    }

    fn register(
        &mut self,
        new: &NewMessage,
        id: MessageId,
        deliveries: &[DeliveryId],
        now: Timestamp,
    ) {
        if let Some(key) = &new.dedup {
            let (fingerprint, expires) = (key.fingerprint, now + key.window);
            self.keys.insert(key.key, Key { message: id, fingerprint, expires });
        }
        self.messages.insert(id);
        let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
        let number = |text: &str| digits(text).parse::<u64>().unwrap_or(u64::MAX);
        let class = self.classes.iter().position(|class| class.name == new.class);
        for (delivery, new_delivery) in deliveries.iter().zip(&new.deliveries) {
            let url = new_delivery.target.place();
            let part_of = |url: &str, n| number(url.split('/').nth(n).unwrap_or_default());
            let part = |n| part_of(url, n);
            let alternative = |other: &Alternative| {
                let url = other.target.place();
                (part_of(url, 2) as usize, part_of(url, 4))
            };
            self.index.insert(*delivery, self.deliveries.len());
            self.deliveries.push(Known {
                id: *delivery,
                message: id,
                tenant: part(3) as usize,
                provider: part(2) as usize,
                class: class.unwrap_or(0),
                address: part(4),
                alternatives: new_delivery.alternatives.iter().map(alternative).collect(),
                state: State::Queued,
                reason: None,
                attempts: 0,
                tries: 0,
                due: new.send_at.map_or(now, |at| at.max(now)),
                expires: expires_at(now, new.send_at, new.ttl_s),
                held: None,
                reached: 0,
                taken: 0,
                in_doubt: false,
                cancel_asked: false,
                cancelled: false,
                started: false,
                replays: 0,
                crashes: 0,
            });
            self.deliveries.last().into_iter().for_each(|known| self.fairness.arrived(known));
        }
    }

    /// What a caller was told; an acceptance must be in the book already.
    pub(crate) fn told(&mut self, letter: usize, told: Told) -> Judged {
        self.told.insert(letter, told);
        match told {
            Told::Accepted(message) => {
                promise(self.messages.contains(&message), "no 2xx before durability", || {
                    format!("letter {letter} was called accepted, and is not in the store")
                })
            }
            Told::Refused(_) => Ok(()),
        }
    }

    /// Of whom something is to be asked.
    pub(crate) fn chosen(&self, which: impl Fn(&Known) -> bool) -> Vec<(usize, DeliveryId)> {
        let all = self.deliveries.iter().enumerate();
        all.filter(|(_, known)| which(known)).map(|(index, known)| (index, known.id)).collect()
    }

    pub(crate) fn find(&self, id: DeliveryId) -> Option<usize> {
        self.index.get(&id).copied()
    }

    pub(crate) fn tenant_of(&self, delivery: usize) -> usize {
        self.deliveries[delivery].tenant
    }
}

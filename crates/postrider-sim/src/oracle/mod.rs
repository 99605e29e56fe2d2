//! Checks the invariants during a run. Keeps its own record of every delivery, from what the store
//! wrote, the dispatcher called and the providers accepted. Never influences the run.

mod budget;
mod calls;
mod ends;
mod fairness;
mod gates;
mod leases;
mod rates;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use postrider_core::policy::ttl::expires_at;
use postrider_core::ports::store::{Admission, Alternative, NewMessage};
use postrider_core::{DeadReason, DeliveryId, MessageId, State, Timestamp};
use postrider_dispatch::DispatchLimits;

pub(crate) use calls::SimCall;
pub(crate) use fairness::FairnessCheck;
pub(crate) use gates::ExpectedGates;
pub(crate) use leases::name as decision_name;

use crate::plan::SimPlan;
use crate::world::BrokenInvariant;

pub(crate) type CheckResult = Result<(), BrokenInvariant>;

/// An error that names the invariant, unless `holds`.
pub(crate) fn check(
    holds: bool,
    invariant: &'static str,
    detail: impl FnOnce() -> String,
) -> CheckResult {
    if holds { Ok(()) } else { Err(BrokenInvariant { invariant, detail: detail() }) }
}

/// The oracle's record of one delivery.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryRecord {
    pub id: DeliveryId,
    pub message: MessageId,
    pub tenant: usize,
    pub provider: usize,
    pub class: usize,
    pub address: u64,
    /// Fallbacks that are left: provider and address.
    pub alternatives: Vec<(usize, u64)>,
    pub state: State,
    pub reason: Option<DeadReason>,
    pub attempts: u32,
    pub tries: u32,
    pub due: Timestamp,
    pub expires: Timestamp,
    pub held: Option<HeldLease>,
    /// Requests that reached a provider, and those that it accepted.
    pub reached: u32,
    pub taken: u32,
    /// At least one call ended without an answer.
    pub in_doubt: bool,
    pub cancel_asked: bool,
    /// It was in flight when cancelled: no further attempt may follow.
    pub cancelled: bool,
    /// The store noted the start of an attempt whose end is unknown.
    pub started: bool,
    pub replays: u32,
    /// Process ends while it was leased, since its last finished attempt.
    pub crashes: u32,
    /// The token of the last settlement.
    pub settled_by: Option<u64>,
}

/// A lease from the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldLease {
    pub token: u64,
    pub since: Timestamp,
    pub until: Timestamp,
    /// When it was asked for; the lane's gates were checked before.
    pub asked: EventTime,
    pub is_retry: bool,
    /// An attempt under an earlier lease was started, and its end is unknown.
    pub started: bool,
    pub calls: u32,
    pub accepted: bool,
}

/// A position in the order of events, and the wall clock at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventTime {
    pub seq: u64,
    pub at: Timestamp,
}

/// The answer that a caller got for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallerAnswer {
    Accepted(MessageId),
    Refused,
}

struct SeenKey {
    message: MessageId,
    fingerprint: [u8; 16],
    expires: Timestamp,
}

pub(crate) struct Oracle {
    pub deliveries: Vec<DeliveryRecord>,
    index: HashMap<DeliveryId, usize>,
    messages: BTreeSet<MessageId>,
    keys: HashMap<[u8; 16], SeenKey>,
    pub caller_answers: BTreeMap<usize, CallerAnswer>,
    /// Addresses that a provider reported as gone, and since when.
    gone: BTreeMap<(usize, usize, u64), u64>,
    gates: Vec<ExpectedGates>,
    rates: rates::RateCheck,
    budget: budget::BudgetCheck,
    pub fairness: FairnessCheck,
    limits: DispatchLimits,
    classes: Vec<postrider_core::Class>,
    in_flight: usize,
    seq: u64,
    /// Number of process starts.
    pub process_starts: u32,
}

impl Oracle {
    pub(crate) fn new(plan: &SimPlan) -> Self {
        Self {
            deliveries: Vec::new(),
            index: HashMap::new(),
            messages: BTreeSet::new(),
            keys: HashMap::new(),
            caller_answers: BTreeMap::new(),
            gone: BTreeMap::new(),
            gates: plan.providers.iter().map(|_| ExpectedGates::default()).collect(),
            rates: rates::RateCheck::new(plan),
            budget: budget::BudgetCheck::new(plan.limits.retry_budget),
            fairness: FairnessCheck::new(plan),
            limits: plan.limits.clone(),
            classes: plan.classes.clone(),
            in_flight: 0,
            seq: 0,
            process_starts: 0,
        }
    }

    /// The next position in the order of events.
    pub(crate) fn next_event(&mut self, at: Timestamp) -> EventTime {
        self.seq += 1;
        EventTime { seq: self.seq, at }
    }

    /// A process starts: leases and memory of the last one are lost.
    pub(crate) fn process_started(&mut self) {
        self.process_starts += 1;
        self.worker_replaced();
    }

    /// Another worker has the work now: leases and memory of the last one are lost.
    pub(crate) fn worker_replaced(&mut self) {
        for record in &mut self.deliveries {
            if let Some(held) = record.held.take() {
                record.crashes += 1;
                record.in_doubt |= held.calls > 0;
            }
        }
        self.in_flight = 0;
        self.gates.iter_mut().for_each(|gates| *gates = ExpectedGates::default());
        self.rates.process_started();
        self.budget.process_started();
    }

    /// The wall clock was set.
    pub(crate) fn jumped(&mut self, now: Timestamp) {
        self.budget.jumped(now);
    }

    /// The store accepted messages durably.
    pub(crate) fn accepted(
        &mut self,
        new: &[NewMessage],
        answers: &[Admission],
        now: Timestamp,
    ) -> CheckResult {
        check(new.len() == answers.len(), "every message gets its answer", || {
            format!("{} messages, {} answers", new.len(), answers.len())
        })?;
        new.iter().zip(answers).try_for_each(|(new, answer)| self.admitted(new, answer, now))
    }

    fn admitted(&mut self, new: &NewMessage, answer: &Admission, now: Timestamp) -> CheckResult {
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
                check(*message == first, ONE, || {
                    "a repeat was answered with another message".into()
                })
            }
            (Admission::Conflict { message }, Some((first, false))) => {
                check(*message == first, ONE, || "a conflict with another message".into())
            }
            (answer, same) => check(false, ONE, || {
                let answer = match answer {
                    Admission::Accepted { .. } => "accepted",
                    Admission::Duplicate { .. } => "answered as a repeat",
                    Admission::Conflict { .. } => "answered as a conflict",
                    Admission::RepeatedMembers { .. } => "refused for some deliveries",
                };
                format!("seen before, with the same content: {same:?}; it was {answer}")
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
            let lasts = expires_at(now, new.send_at, new.ttl_s, new.now_or_never);
            let (fingerprint, expires) = (key.fingerprint, (now + key.window).max(lasts));
            self.keys.insert(key.key, SeenKey { message: id, fingerprint, expires });
        }
        self.messages.insert(id);
        let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
        let number = |text: &str| digits(text).parse::<u64>().unwrap_or(u64::MAX);
        let class = self.classes.iter().position(|class| class.name == new.class);
        for (delivery, new_delivery) in deliveries.iter().zip(&new.deliveries) {
            let url = crate::intake::url(&new_delivery.target);
            let part_of = |url: &str, n| number(url.split('/').nth(n).unwrap_or_default());
            let part = |n| part_of(url, n);
            let alternative = |other: &Alternative| {
                let url = crate::intake::url(&other.target);
                (part_of(url, 2) as usize, part_of(url, 4))
            };
            self.index.insert(*delivery, self.deliveries.len());
            self.deliveries.push(DeliveryRecord {
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
                expires: expires_at(now, new.send_at, new.ttl_s, new.now_or_never),
                held: None,
                reached: 0,
                taken: 0,
                in_doubt: false,
                cancel_asked: false,
                cancelled: false,
                started: false,
                replays: 0,
                crashes: 0,
                settled_by: None,
            });
            self.deliveries.last().into_iter().for_each(|record| self.fairness.arrived(record));
        }
    }

    /// A caller got its answer; an accepted message must be in the store already.
    pub(crate) fn caller_answered(&mut self, planned: usize, answer: CallerAnswer) -> CheckResult {
        self.caller_answers.insert(planned, answer);
        match answer {
            CallerAnswer::Accepted(message) => {
                check(self.messages.contains(&message), "no 2xx before durability", || {
                    format!("message {planned} was answered as accepted, but is not in the store")
                })
            }
            CallerAnswer::Refused => Ok(()),
        }
    }

    /// Numbers and ids of the deliveries that match.
    pub(crate) fn matching(
        &self,
        which: impl Fn(&DeliveryRecord) -> bool,
    ) -> Vec<(usize, DeliveryId)> {
        let all = self.deliveries.iter().enumerate();
        all.filter(|(_, record)| which(record)).map(|(index, record)| (index, record.id)).collect()
    }

    pub(crate) fn find(&self, id: DeliveryId) -> Option<usize> {
        self.index.get(&id).copied()
    }

    pub(crate) fn tenant_of(&self, delivery: usize) -> usize {
        self.deliveries[delivery].tenant
    }
}

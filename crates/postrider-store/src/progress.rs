//! What is stored of a message and its deliveries, and what a settlement changes. Pure; knows no store.

use std::time::Duration;

use postrider_core::model::id::order_key;
use postrider_core::policy::ttl::expires_at;
use postrider_core::ports::store::{Halt, NewMessage};
use postrider_core::{AttemptRecord, DeadReason, Decision, Message, MessageId, State, Timestamp};

/// A new message as it is stored.
pub(crate) fn stored_message(new: &NewMessage, id: MessageId, now: Timestamp) -> Message {
    Message {
        id,
        tenant: new.tenant.clone(),
        class: new.class.clone(),
        created_at: id.created_at(),
        expires_at: expires_at(now, new.send_at, new.ttl_s, new.now_or_never),
        ttl_s: new.ttl_s,
        envelope: new.envelope.clone(),
        content: new.content.clone(),
    }
}

/// The due time of a held delivery is its old one plus this: a time that never comes (the year 6429 and later).
pub(crate) const HELD_MS: i64 = 1 << 47;

pub(crate) fn is_held(due: Timestamp) -> bool {
    due.0 >= HELD_MS
}

/// The fields of a delivery that settlements change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredProgress {
    pub(crate) state: State,
    pub(crate) reason: Option<DeadReason>,
    /// When it is due; meaningless once it is final.
    pub(crate) due: Timestamp,
    pub(crate) attempts: u32,
    pub(crate) tries: u32,
    pub(crate) last_delay: Duration,
    pub(crate) changed: Timestamp,
}

impl StoredProgress {
    pub(crate) fn new(due: Timestamp, now: Timestamp) -> Self {
        Self {
            state: State::Queued,
            reason: None,
            due,
            attempts: 0,
            tries: 0,
            last_delay: Duration::ZERO,
            changed: now,
        }
    }

    /// A held delivery stays held as long as it is pending.
    pub(crate) fn settled(
        self,
        decision: &Decision,
        attempts: &[AttemptRecord],
        now: Timestamp,
    ) -> Self {
        let new = self.decided(decision, attempts, now);
        match is_held(self.due) && new.state.is_pending() {
            true => Self { state: State::Parked, due: self.due, ..new },
            false => new,
        }
    }

    fn decided(mut self, decision: &Decision, attempts: &[AttemptRecord], now: Timestamp) -> Self {
        for attempt in attempts {
            self.tries = self.tries.saturating_add(1);
            self.attempts = self.attempts.saturating_add(u32::from(attempt.counted));
        }
        match decision {
            Decision::Release | Decision::Again { .. } => return self,
            Decision::Retry { after, .. } => {
                self.state = State::Retrying;
                self.due = now + *after;
                self.last_delay = *after;
            }
            Decision::Park { after } => {
                self.state = State::Parked;
                self.due = now + *after;
            }
            Decision::FallBack => return self.replayed(now, now),
            ended => {
                self.state = ended.final_state().unwrap_or(self.state);
                self.reason = ended.dead_reason();
            }
        }
        self.changed = now;
        self
    }

    pub(crate) fn is_held(self) -> bool {
        self.state.is_pending() && is_held(self.due)
    }

    /// Parked until it is released; the due time stays known.
    pub(crate) fn held(self, now: Timestamp) -> Self {
        Self { state: State::Parked, due: Timestamp(HELD_MS + self.due.0), changed: now, ..self }
    }

    /// Goes on at its old due time, but not before `at_least`.
    pub(crate) fn released(self, at_least: Timestamp, now: Timestamp) -> Self {
        let state = if self.tries > 0 { State::Retrying } else { State::Queued };
        let due = Timestamp(self.due.0 - HELD_MS).max(at_least);
        Self { state, due, changed: now, ..self }
    }

    pub(crate) fn replayed(self, due: Timestamp, now: Timestamp) -> Self {
        Self { tries: self.tries, ..Self::new(due, now) }
    }
}

/// How long a delivery waits if it is redirected and has no alternative.
const NO_ALTERNATIVE_PAUSE: Duration = Duration::from_secs(60);

/// The decision that is stored. A delivery whose message was cancelled during its attempt is not tried
/// again.
pub(crate) fn effective_decision(
    decision: &Decision,
    cancelled: bool,
    has_alternative: bool,
) -> Decision {
    match decision {
        decision if cancelled && decision.final_state().is_none() => Decision::Cancel,
        Decision::FallBack if !has_alternative => Decision::Park { after: NO_ALTERNATIVE_PAUSE },
        decision => decision.clone(),
    }
}

/// What is stored of a few deliveries only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeliveryMark {
    /// How many crashes in a row found it in flight.
    pub(crate) crashes: u32,
    /// An attempt was started and its result is not known.
    pub(crate) started: bool,
    /// Its message was cancelled while it was in flight.
    pub(crate) cancelled: bool,
}

impl DeliveryMark {
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// What a settlement leaves of it. An attempt that ended clears the crashes, waiting does not.
    pub(crate) fn settled(self, decision: &Decision) -> Self {
        match decision {
            Decision::Park { .. } | Decision::Release | Decision::Again { .. } => {
                Self { crashes: self.crashes, ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    pub(crate) fn crashed(self) -> Self {
        Self { crashes: self.crashes.saturating_add(1), ..self }
    }

    pub(crate) fn halt(self, address: Option<AddressEnd>, message: MessageId) -> Option<Halt> {
        match self.cancelled {
            true => Some(Halt::Cancelled),
            false => address.and_then(|end| end.halt(message)),
        }
    }
}

/// Marks of deleted addresses are kept so long: as long as anything may wait that was accepted before.
pub(crate) const DELETED_MARKS_KEPT: Duration = Duration::from_secs(400 * 86_400);

/// Why deliveries to an address are not sent any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressEnd {
    /// Its provider called it gone.
    Gone,
    /// It was deleted: messages whose order key is below this one are not sent to it.
    DeletedBefore(u64),
}

impl AddressEnd {
    pub(crate) fn halt(self, message: MessageId) -> Option<Halt> {
        match self {
            Self::Gone => Some(Halt::AddressGone),
            Self::DeletedBefore(key) => {
                (order_key(message.0) < key).then_some(Halt::AddressDeleted)
            }
        }
    }

    /// As it is stored beside the mark: nothing for one that is gone.
    pub(crate) fn deleted_before(self) -> Option<u64> {
        match self {
            Self::Gone => None,
            Self::DeletedBefore(key) => Some(key),
        }
    }

    /// The inverse of [`deleted_before`](Self::deleted_before).
    pub(crate) fn of_mark(deleted_before: Option<u64>) -> Self {
        deleted_before.map_or(Self::Gone, Self::DeletedBefore)
    }

    /// The mark of an address that is registered again: what waited when it was deleted stays cancelled.
    pub(crate) fn when_registered(mark: Option<Self>) -> Option<Self> {
        mark.filter(|mark| *mark != Self::Gone)
    }

    /// The mark of an address that is deleted now.
    pub(crate) fn when_deleted(mark: Option<Self>, key: u64) -> Self {
        match mark {
            Some(Self::Gone) => Self::Gone,
            _ => Self::DeletedBefore(key),
        }
    }
}

/// Whether the body is still needed: for pending work, or for a dead letter that may be replayed. A prune
/// deletes only what does not need its body.
pub(crate) fn needs_body(state: State, discarded: bool) -> bool {
    state.is_pending() || (state == State::Failed && !discarded)
}

/// Whether a dead letter became one before a time, if that is asked for.
pub(crate) fn died_before(progress: &StoredProgress, time: Option<Timestamp>) -> bool {
    time.is_none_or(|time| progress.changed < time)
}

/// When the `index`-th replayed delivery is due at a given pace.
pub(crate) fn paced(now: Timestamp, index: u64, rate_per_s: Option<f64>) -> Timestamp {
    match rate_per_s {
        Some(rate) if rate > 0.0 => {
            now + Duration::from_millis((index as f64 * 1000.0 / rate).min(1e15) as u64)
        }
        _ => now,
    }
}

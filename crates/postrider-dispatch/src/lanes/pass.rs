//! The right to make calls of one lane, given by all its gates together. What is not used goes back.

use std::sync::Arc;

use postrider_core::model::message::Priority;
use postrider_core::{LaneKey, Timestamp};

use super::origin::{Epochs, Origin};
use super::rates::Rates;

/// Calls that may be made. Dropping it gives back those that were not begun.
pub(crate) struct Pass {
    ticket: Ticket,
    calls: usize,
    /// When they were permitted.
    at: Timestamp,
    /// Where they were paid for.
    paid: Option<Arc<Rates>>,
}

/// What a call that was begun has to show when it ends.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub(super) origin: Arc<Origin>,
    pub(super) lane: Arc<LaneKey>,
    pub(super) epochs: Epochs,
    pub(super) priority: Priority,
}

impl Pass {
    pub(super) fn new(
        origin: Arc<Origin>,
        lane: Arc<LaneKey>,
        calls: usize,
        epochs: Epochs,
        priority: Priority,
        at: Timestamp,
    ) -> Self {
        Self { ticket: Ticket { origin, lane, epochs, priority }, calls, at, paid: None }
    }

    /// The same for no more calls than the rate limits were paid for.
    pub(super) fn paced(mut self, calls: usize, rates: Arc<Rates>) -> Self {
        let surplus = self.calls.saturating_sub(calls);
        self.hand_back(surplus);
        self.calls -= surplus;
        self.paid = Some(rates);
        self
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// They weigh so much more than one each.
    pub(crate) fn charge(&self, surplus: usize) {
        if let Some(rates) = self.paid.as_ref().filter(|_| surplus > 0) {
            rates.charge(&self.ticket.lane, surplus, self.at);
        }
    }

    /// Begins `calls` of them; each is to be [ended](super::Lanes::ended) once.
    pub(crate) fn begin(mut self, calls: usize) -> Ticket {
        debug_assert!(calls <= self.calls, "no more calls than were permitted");
        self.calls -= calls.min(self.calls);
        self.ticket.origin.take(calls, self.ticket.priority);
        self.ticket.clone()
    }

    fn hand_back(&self, calls: usize) {
        if calls > 0 {
            let Ticket { origin, lane, epochs, .. } = &self.ticket;
            origin.gates().hand_back(&lane.tenant, calls, *epochs, self.at);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.hand_back(self.calls);
        if let Some(rates) = self.paid.take().filter(|_| self.calls > 0) {
            rates.refund(&self.ticket.lane, self.calls, self.at);
        }
    }
}

//! The right to make calls of one lane, given by all its gates together. What is not used goes back.

use std::sync::Arc;

use postrider_core::LaneKey;

use super::origin::{Epochs, Origin};

/// Calls that may be made. Dropping it gives back those that were not begun.
pub(crate) struct Pass {
    ticket: Ticket,
    calls: usize,
}

/// What a call that was begun has to show when it ends.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub(super) origin: Arc<Origin>,
    pub(super) lane: Arc<LaneKey>,
    pub(super) epochs: Epochs,
}

impl Pass {
    pub(super) fn new(
        origin: Arc<Origin>,
        lane: Arc<LaneKey>,
        calls: usize,
        epochs: Epochs,
    ) -> Self {
        Self { ticket: Ticket { origin, lane, epochs }, calls }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Begins `calls` of them; each is to be [ended](super::Lanes::ended) once.
    pub(crate) fn begin(mut self, calls: usize) -> Ticket {
        debug_assert!(calls <= self.calls, "no more calls than were permitted");
        self.calls -= calls.min(self.calls);
        self.ticket.origin.take(calls);
        self.ticket.clone()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.calls > 0 {
            let Ticket { origin, lane, epochs } = &self.ticket;
            origin.gates().hand_back(&lane.tenant, self.calls, *epochs);
        }
    }
}

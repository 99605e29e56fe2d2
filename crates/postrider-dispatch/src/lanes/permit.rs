//! The right to make calls of one lane, given by all its checks together. What is not used goes back.

use std::sync::Arc;

use postrider_core::model::message::Priority;
use postrider_core::{LaneKey, Timestamp};

use super::Lanes;
use super::checks::LaneContext;
use super::provider::{BreakerEpochs, LaneProvider};

/// Calls that may be made. Dropping it gives back those that were not begun.
pub(crate) struct LanePermit {
    pub(super) lanes: Arc<Lanes>,
    pub(super) call: CallPermit,
    pub(super) calls: usize,
    /// When they were permitted.
    pub(super) at: Timestamp,
}

/// What a call that was begun shows when it [ends](Lanes::ended).
#[derive(Clone)]
pub(crate) struct CallPermit {
    pub(super) provider: Arc<LaneProvider>,
    pub(super) lane: Arc<LaneKey>,
    pub(super) epochs: BreakerEpochs,
    pub(super) priority: Priority,
}

impl LanePermit {
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Charges the rate limits for calls that weigh more than one each.
    pub(crate) fn charge(&self, surplus: usize) {
        if surplus > 0 {
            self.lanes.rates.charge(&self.call.lane, surplus, self.at);
        }
    }

    /// Begins `calls` of them; each is to be [ended](Lanes::ended) once.
    pub(crate) fn begin(mut self, calls: usize) -> CallPermit {
        debug_assert!(calls <= self.calls, "no more calls than were permitted");
        self.calls -= calls.min(self.calls);
        self.call.provider.slots.take(calls, self.call.priority);
        self.call.clone()
    }
}

impl Drop for LanePermit {
    fn drop(&mut self) {
        if self.calls > 0 {
            let CallPermit { provider, lane, epochs, .. } = &self.call;
            let mut context = LaneContext::new(&self.lanes, lane, provider, self.at);
            context.epochs = *epochs;
            context.give_back(self.calls);
        }
    }
}

//! The right to make calls of one lane, given by all its checks together. What is not used goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_core::model::message::Priority;
use postrider_core::policy::call_limit::CallToken;
use postrider_core::policy::call_places::CallPlace;
use postrider_core::policy::served_addresses::ServedAddresses;
use postrider_core::{LaneKey, Timestamp};

use super::Lanes;
use super::call::{CallEffect, CallResult};
use super::checks::LaneContext;
use super::provider::{BreakerEpochs, LaneProvider, number};

/// Calls that may be made. Dropping it gives back those that were not begun.
pub(crate) struct LanePermit {
    pub(super) calls: usize,
    pub(super) call: Arc<CallPermit>,
    /// When they were permitted.
    pub(super) at: Timestamp,
}

/// Under which terms calls were permitted.
pub(crate) struct CallPermit {
    pub(super) lanes: Arc<Lanes>,
    pub(super) provider: Arc<LaneProvider>,
    /// The account, if the channel has accounts.
    pub(super) account: Option<Arc<str>>,
    pub(super) lane: Arc<LaneKey>,
    pub(super) epochs: BreakerEpochs,
    pub(super) priority: Priority,
}

/// One call that was begun. It ends once: with its result, or without one when this is dropped.
pub(crate) struct CallTicket {
    call: Arc<CallPermit>,
    pub(super) place: CallPlace,
    pub(super) target: u64,
    pub(super) token: CallToken,
    /// Nobody knows how long it takes.
    pub(super) is_apart: bool,
    freed: AtomicBool,
}

impl LanePermit {
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// The account that the calls go through, if the channel has accounts.
    pub(crate) fn account(&self) -> Option<&Arc<str>> {
        self.call.account.as_ref()
    }

    pub(crate) fn priority(&self) -> Priority {
        self.call.priority
    }

    /// Until when each of these addresses is left alone, where that is so.
    pub(crate) fn rests(&self, targets: impl Iterator<Item = u64>) -> Vec<Option<Timestamp>> {
        let CallPermit { lanes, provider, lane, .. } = &*self.call;
        lanes.rests(&lane.tenant, provider, targets)
    }

    /// The tenant's addresses that worked before, and those that were tried lately and did not work.
    pub(crate) fn probed(&self) -> (ServedAddresses, Vec<u64>) {
        let CallPermit { provider, lane, .. } = &*self.call;
        let gates = provider.gates();
        let Some(own) = gates.known_trouble(&lane.tenant) else { return Default::default() };
        (own.health.served, own.health.probed.into_iter().flatten().collect())
    }

    /// Whether the calls try if the provider works again.
    pub(crate) fn probes(&self) -> bool {
        self.call.epochs.probes
    }

    /// Charges the rate limits for calls that weigh more than one each.
    pub(crate) fn charge(&self, surplus: usize) {
        if surplus > 0 {
            self.call.lanes.rates.charge(&self.call.lane, surplus, self.at);
        }
    }

    /// Begins a call to each of these addresses, no more than were permitted.
    pub(crate) fn begin(mut self, targets: impl Iterator<Item = u64>) -> Vec<CallTicket> {
        let call = self.call.clone();
        let now = call.lanes.clock.now();
        let mut gates = call.provider.gates();
        let tenant = number(&call.lane.tenant);
        let begin = |target| {
            if call.epochs.probes {
                gates.note_probe(&call.lane.tenant, target);
            }
            let begun = gates.begin_call(&call.lane.tenant, tenant, target, call.priority, now);
            let (place, token, is_apart) = begun;
            call.lanes.global.begin(tenant, call.provider.number(), is_apart);
            CallTicket {
                call: call.clone(),
                place,
                target,
                token,
                is_apart,
                freed: AtomicBool::new(false),
            }
        };
        let tickets: Vec<_> = targets.map(begin).collect();
        drop(gates);
        debug_assert!(tickets.len() <= self.calls, "no more calls than were permitted");
        self.calls = self.calls.saturating_sub(tickets.len());
        tickets
    }
}

impl Drop for LanePermit {
    fn drop(&mut self) {
        if self.calls > 0 {
            let CallPermit { lanes, provider, lane, epochs, .. } = &*self.call;
            let mut context = LaneContext::new(lanes, lane, provider, self.at);
            context.epochs = *epochs;
            context.give_back(self.calls);
        }
    }
}

impl CallTicket {
    /// The call was answered.
    pub(crate) fn end(self, result: CallResult) -> CallEffect {
        self.call.lanes.ended(&self.call, &self, Some(result))
    }

    /// The place is free again; dropping the ticket frees nothing any more.
    pub(super) fn note_freed(&self) {
        self.freed.store(true, Ordering::Relaxed);
    }
}

impl Drop for CallTicket {
    fn drop(&mut self) {
        // Also if a panic ended what was learned from the answer.
        if !self.freed.load(Ordering::Relaxed) {
            self.call.lanes.ended(&self.call, self, None);
        }
    }
}

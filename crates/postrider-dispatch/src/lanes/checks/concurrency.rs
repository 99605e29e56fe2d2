//! Holds the lane while as many calls are under way as its provider seems to take. A place is taken when
//! a call begins and freed when it ends.

use std::time::Duration;

use postrider_core::policy::call_limit::LimitReason;
use postrider_core::{Gate, LaneState, Signal};

use super::{LaneCheck, LaneContext};
use crate::lanes::call::{CallEffect, CallResult};
use crate::lanes::global::OwnPlaces;
use crate::lanes::own_places::{OwnPlaceWait, ServerPlaceUse};
use crate::lanes::provider::number;
use crate::lanes::report::GateVerdict;

/// How soon a lane that waits for a place of ours asks again if nobody tells it.
const OWN_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct ConcurrencyCheck;

impl LaneCheck for ConcurrencyCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::Concurrency]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let (limit, places) = (&lane.gates.limit, &lane.gates.places);
        let limited = limit.limit(lane.now);
        let counted = places.brisk() + if limit.is_behind(lane.now) { places.long() } else { 0 };
        let mut detail = in_words(lane, counted, limited);
        if lane.own_wait.is_some() {
            detail.push_str(&format!("; {}", lane.own_places_in_words()));
        } else if counted < limited && lane.free_places == 0 {
            detail.push_str("; the other places are kept for urgent classes");
        }
        vec![GateVerdict::of(Gate::Concurrency, self.room(lane, 1).err(), detail)]
    }

    fn room(&self, lane: &LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let on = Gate::Concurrency;
        if lane.own_room == 0 {
            let until = lane.now + OWN_PAUSE.mul_f64(1.0 + lane.random);
            return Err(LaneState::Waiting { on, until });
        }
        match (lane.free_places, lane.gates.next_free_place(lane.now)) {
            (0, Some(until)) => Err(LaneState::Waiting { on, until }),
            (0, None) => Err(LaneState::Blocked { on }),
            (free, _) => Ok(want.min(free).min(lane.own_room)),
        }
    }

    fn learn(&self, lane: &mut LaneContext<'_>, call: &CallResult, effect: &mut CallEffect) {
        let (now, gates) = (lane.now, &mut *lane.gates);
        let in_flight = gates.places.brisk();
        let long_after = gates.limit.long_after().as_millis();
        if let Some(token) = lane.token {
            let signal = if effect.is_own_wish { Signal::Nothing } else { call.signal };
            gates.limit.end(token, signal, call.latency_ms, in_flight, now);
        }
        let is_long = u128::from(call.latency_ms) >= long_after && !call.unopened;
        let tenant = &lane.lane.tenant;
        gates.tenant(tenant, now).is_silent = call.signal.is_failure();
        match (is_long, gates.known_trouble_mut(tenant)) {
            (_, Some(own)) => own.health.addresses.took(call.target, is_long, now),
            (true, None) => {
                gates.trouble(tenant, now).health.addresses.took(call.target, true, now);
            }
            (false, None) => {}
        }
        if let Some(own) = gates.known_trouble_mut(tenant).filter(|_| is_long) {
            own.health.addresses.note_long(call.target, call.latency_ms);
        }
    }
}

/// The calls under way that count against the limit, and why the limit is as it is.
fn in_words(lane: &LaneContext<'_>, counted: usize, limited: usize) -> String {
    let (limit, long) = (&lane.gates.limit, lane.gates.places.long());
    let mut words = format!("{counted} of {limited} calls under way to the provider");
    match (long, limit.is_behind(lane.now)) {
        (0, _) => {}
        (_, false) => words.push_str(&format!(", {long} long ones beside them")),
        (_, true) => words.push_str(&format!(", {long} long ones among them")),
    }
    let reason = limit.reason(lane.now);
    match reason {
        LimitReason::Unproven if counted >= limited => words.push_str(&format!("; {reason}")),
        LimitReason::Unproven | LimitReason::Searching | LimitReason::AtCeiling => {}
        _ => words.push_str(&format!("; {reason}, at {}", limit.changed_at())),
    }
    words
}

impl LaneContext<'_> {
    /// Which of our own places it waits for, if it is one.
    pub(in crate::lanes) fn own_place_wait(&self) -> Option<OwnPlaceWait> {
        let limits = &self.lanes.policies.now().limits;
        match self.own_wait? {
            OwnPlaces::Any if limits.connections <= limits.concurrency => {
                Some(OwnPlaceWait::Connection)
            }
            OwnPlaces::Any => Some(OwnPlaceWait::Any),
            _ if self.gates.is_crowded_by(number(&self.lane.tenant), self.now) => None,
            OwnPlaces::Apart => Some(OwnPlaceWait::Long),
        }
    }

    /// Who holds the places that it waits for, if these are not the provider's.
    fn own_places_in_words(&self) -> String {
        let (all, tenant) =
            (self.lanes.policies.now().limits.concurrency, number(&self.lane.tenant));
        let (global, origin) = (&self.lanes.global, self.provider.number());
        match self.own_place_wait() {
            Some(OwnPlaceWait::Long) => {
                let is_silent = self.gates.is_silent(&self.lane.tenant);
                global.long_use(all, tenant, origin, is_silent).to_string()
            }
            Some(wait) => {
                let places = global.server_use(all, tenant, origin);
                let are_connections = wait == OwnPlaceWait::Connection;
                let (used, own) = (places.used, places.held);
                ServerPlaceUse { used, of: all, own, are_connections }.to_string()
            }
            None => {
                let own = self.gates.places.overdue_of(tenant);
                format!(
                    "{own} calls of this tenant take long and leave no places to other tenants there"
                )
            }
        }
    }
}

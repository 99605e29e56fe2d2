//! Holds the lane while as many calls are under way as its provider seems to take. A place is taken when
//! a call begins and freed when it ends.

use std::time::Duration;

use postrider_core::policy::call_limit::LimitReason;
use postrider_core::{Gate, LaneState, Signal};

use super::{LaneCheck, LaneContext};
use crate::lanes::call::{CallEffect, CallResult};
use crate::lanes::report::GateVerdict;

/// How soon a lane that waits for a place of ours asks again if nobody tells it.
const OWN_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct ConcurrencyCheck;

impl LaneCheck for ConcurrencyCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::Concurrency]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let (places, limit) = (&lane.gates.places, lane.gates.limit.limit(lane.now));
        let (brisk, long) = (places.brisk(), places.long());
        let mut detail = format!("{brisk} of {limit} calls under way to the provider");
        if long > 0 {
            detail.push_str(&format!(", {long} long ones beside them"));
        }
        let reason = lane.gates.limit.reason(lane.now);
        let tells = match reason {
            LimitReason::Unproven => brisk >= limit,
            LimitReason::Searching | LimitReason::AtCeiling => false,
            _ => true,
        };
        if tells {
            detail.push_str(&format!("; {reason}"));
        }
        if lane.own_room == 0 {
            detail.push_str("; the other places are for other tenants and urgent classes");
        } else if brisk < limit && lane.free_places == 0 {
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
    }
}

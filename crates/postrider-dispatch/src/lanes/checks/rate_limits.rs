//! Holds the lane to the rates that are configured for its provider, tenant and credential.

use postrider_core::policy::limiter::Rate;
use postrider_core::{Gate, LaneState, Timestamp};

use super::{LaneCheck, LaneContext};
use crate::lanes::report::GateVerdict;

pub(super) struct RateLimitsCheck;

impl LaneCheck for RateLimitsCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::RateLimit, Gate::TenantRateLimit, Gate::CredentialRateLimit]
    }

    /// Only those that are configured.
    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let rates = &lane.lanes.rates;
        let verdict = |(gate, rate, next): (Gate, Rate, Timestamp)| {
            let detail = format!("{} per second, {} at once", rate.per_s, rate.burst.max(1));
            GateVerdict::until(gate, Some(next).filter(|next| *next > lane.now), detail)
        };
        rates.next_calls(lane.lane, lane.now).into_iter().map(verdict).collect()
    }

    fn take(&self, lane: &mut LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        lane.lanes.rates.take(lane.lane, want, lane.now)
    }

    fn give_back(&self, lane: &mut LaneContext<'_>, calls: usize) {
        if !lane.begun {
            lane.lanes.rates.refund(lane.lane, calls, lane.now);
        }
    }
}

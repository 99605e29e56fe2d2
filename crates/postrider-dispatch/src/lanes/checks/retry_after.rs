//! Holds the lane while its provider wants to be left alone: by the tenant, or by all.

use std::time::Duration;

use postrider_core::policy::most_tenants::ActiveShare;
use postrider_core::policy::tenant_health::Wish;
use postrider_core::policy::throttle::reach;
use postrider_core::{Gate, LaneState, Scope, Signal, Timestamp};

use super::{LaneCheck, LaneContext};
use crate::lanes::call::{CallEffect, CallResult, LaneEvent};
use crate::lanes::report::GateVerdict;

pub(super) struct RetryAfterCheck;

impl LaneCheck for RetryAfterCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::RetryAfter]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let host = lane.gates.pause.until(lane.now);
        let until = paused_until(lane);
        let detail = until.map_or("it takes calls".into(), |until| match Some(until) == host {
            true => asked_of_all(lane, until),
            false => format!(
                "the provider asked this tenant to wait until {until}; other tenants are not affected"
            ),
        });
        vec![GateVerdict::until(Gate::RetryAfter, until, detail)]
    }

    fn room(&self, lane: &LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let hold = |until| Err(LaneState::Waiting { on: Gate::RetryAfter, until });
        paused_until(lane).map_or(Ok(want), hold)
    }

    fn learn(&self, lane: &mut LaneContext<'_>, call: &CallResult, effect: &mut CallEffect) {
        let now = lane.now;
        let is_busy = call.signal == Signal::Busy;
        let tenant = &lane.lane.tenant;
        let own = match is_busy || call.wait.is_some() {
            true => lane.gates.trouble(tenant, now),
            false => match lane.gates.known_trouble_mut(tenant) {
                Some(own) => own,
                None => return,
            },
        };
        let is_paced = own.pace.per_s().is_some();
        let wish = match is_busy {
            true => own.health.asked(call.target, is_paced, now),
            false => Wish::Unclear,
        };
        let of_target = call.wait.is_none_or(|(scope, _)| scope == Scope::Target);
        if wish == Wish::OfAddress && of_target {
            // It asks as a rule, while others do not: that is about this address alone.
            effect.is_own_wish = true;
            if let Some((_, wait)) = call.wait {
                own.health.addresses.pause(call.target, now + wait, now);
            }
            return;
        }
        let spread = &mut own.spread;
        if !call.is_retry {
            spread.count(call.signal, now);
        }
        // Without a scope, the answer applies to the whole host.
        effect.is_of_one_address = wish != Wish::OfMore && call.wait.is_some();
        if let Some((scope, wait)) = call.wait.filter(|(s, _)| is_busy || *s != Scope::Target) {
            let (scope, event) = leave_alone(lane, scope, wait, call.target);
            effect.is_of_one_address &= scope == Scope::Target;
            effect.event = event;
        }
    }
}

/// That many tenants were asked concerns those as well that were not.
fn asked_of_all(lane: &LaneContext<'_>, until: Timestamp) -> String {
    let ActiveShare { those, all } = lane.gates.share_paused(lane.now);
    match those {
        0 | 1 => format!("the provider asked to be left alone until {until}"),
        _ => format!(
            "the provider asked {those} of {all} tenants to wait, so nobody calls it until {until}"
        ),
    }
}

fn paused_until(lane: &LaneContext<'_>) -> Option<Timestamp> {
    let own = lane.gates.known_trouble(&lane.lane.tenant);
    lane.gates.pause.until(lane.now).max(own.and_then(|own| own.pause.until(lane.now)))
}

/// Says how far the wish turned out to reach: to the address, to all that the tenant sends there, or, if
/// several tenants were told the same, to the provider as a whole.
fn leave_alone(
    lane: &mut LaneContext<'_>,
    scope: Scope,
    after: Duration,
    target: u64,
) -> (Scope, Option<LaneEvent>) {
    let at_most = lane.lanes.policies.now().limits.retry_after_max;
    let (now, gates) = (lane.now, &mut *lane.gates);
    let own = gates.trouble(&lane.lane.tenant, now);
    let (scope, after) = reach(scope, after, target, &mut own.spread, at_most, now);
    let until = now + after;
    if scope == Scope::Target {
        // Where calls are too fast for the provider, it is not this address that complains.
        if own.pace.per_s().is_none() {
            own.health.addresses.pause(target, until, now);
        }
        return (scope, None);
    }
    let is_news = own.pause.until(now).is_none();
    own.pause.extend(until);
    own.pace.rest(until);
    let mut reached = Scope::Credential;
    if gates.is_paused_for_most(now) {
        reached = Scope::Host;
        let troubles = gates.tenants.values().filter_map(|own| own.trouble.as_deref());
        let shortest = troubles.filter_map(|own| own.pause.until(now)).min();
        gates.pause.extend(shortest.unwrap_or(until));
    }
    (reached, is_news.then_some(LaneEvent::LeftAlone { scope: reached, until }))
}

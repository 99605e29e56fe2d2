//! Holds the lane while its provider's breaker is open: the provider fails as a whole, or retries storm it.

use std::time::Duration;

use postrider_core::policy::breaker::{BreakerCause, BreakerChange, BreakerOverride, BreakerState};
use postrider_core::policy::most_tenants::ActiveShare;
use postrider_core::policy::probe_breaker::ProbeBreaker;
use postrider_core::policy::tenant_health::Condition;
use postrider_core::{Gate, LaneState, Signal, TenantId, Timestamp};

use super::{LaneCheck, LaneContext, held_by};
use crate::lanes::call::{BreakerScope, CallEffect, CallResult, LaneEvent};
use crate::lanes::provider::{BreakerEpochs, ProviderGates, TenantTrouble, number};
use crate::lanes::report::GateVerdict;

/// How soon a lane that is held to its successes asks again.
const THROTTLE_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct BreakerCheck;

impl LaneCheck for BreakerCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::Breaker]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let breaker = &lane.gates.breaker;
        let trouble = lane.gates.known_trouble(&lane.lane.tenant);
        let detail = match (lane.lanes.operator.forced(lane.provider.key()), trouble) {
            (Some((BreakerOverride::Open, order)), _) => format!("forced open {order}"),
            (Some((BreakerOverride::Closed, order)), _) => format!("forced closed {order}"),
            (None, Some(own)) if !breaker.is_probing() => own_words(own, lane.now),
            _ => words_for_all(&lane.gates, lane.now),
        };
        vec![GateVerdict::of(Gate::Breaker, self.room(lane, 1).err(), detail)]
    }

    fn room(&self, lane: &LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let held = |refusal| held_by(Gate::Breaker, refusal);
        lane.gates.breaker.may_pass(lane.now).map_err(held)?;
        if let Some(trouble) = own_breaker(&lane.gates, &lane.lane.tenant) {
            trouble.breaker.may_pass(lane.now).map_err(held)?;
            if trouble.throttled_until > lane.now {
                return Err(LaneState::Waiting {
                    on: Gate::Breaker,
                    until: trouble.throttled_until,
                });
            }
        }
        Ok(want)
    }

    fn take(&self, lane: &mut LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let held = |refusal| held_by(Gate::Breaker, refusal);
        let (now, random) = (lane.now, lane.random);
        let want = self.throttled(lane, want)?;
        let ended = lane.gates.breaker.end_round(now, random);
        lane.note_event(event(BreakerScope::Provider, lane.gates.breaker.cause(), ended));
        let permit = lane.gates.breaker.admit(want, now).map_err(held)?;
        lane.epochs.breaker = permit.epoch;
        lane.epochs.probes = lane.gates.breaker.is_probing();
        if own_breaker(&lane.gates, &lane.lane.tenant).is_none() {
            return Ok(permit.calls);
        }
        let Some(own) = lane.gates.known_trouble_mut(&lane.lane.tenant) else {
            return Ok(permit.calls);
        };
        let ended = own.breaker.end_round(now, random);
        let granted = own.breaker.admit(permit.calls, now);
        let (cause, probes) = (own.breaker.cause(), own.breaker.is_probing());
        lane.note_event(event(BreakerScope::Tenant, cause, ended));
        match granted {
            Ok(granted) => {
                lane.epochs.probes |= probes;
                lane.epochs.tenant = Some(granted.epoch);
                lane.gates.breaker.hand_back(permit.calls - granted.calls, permit.epoch);
                Ok(granted.calls)
            }
            Err(refusal) => {
                lane.gates.breaker.hand_back(permit.calls, permit.epoch);
                Err(held(refusal))
            }
        }
    }

    fn give_back(&self, lane: &mut LaneContext<'_>, calls: usize) {
        lane.gates.breaker.hand_back(calls, lane.epochs.breaker);
        let own = lane.epochs.tenant.zip(lane.gates.known_trouble_mut(&lane.lane.tenant));
        if let Some((epoch, own)) = own {
            own.breaker.hand_back(calls, epoch);
        }
    }

    fn learn(&self, lane: &mut LaneContext<'_>, call: &CallResult, effect: &mut CallEffect) {
        let (epochs, now, random) = (lane.epochs, lane.now, lane.random);
        let (gates, tenant) = (&mut *lane.gates, &lane.lane.tenant);
        let signal = call.signal_of_provider();
        let mut change = gates.breaker.report(signal, epochs.breaker, now, random);
        if call.unopened {
            let unreachable = gates.openings.failed(call.began(now), now);
            if unreachable && !gates.breaker.is_probing() {
                change = Some(gates.breaker.open(BreakerCause::Failures, now, random));
            }
        } else if signal != Signal::Nothing {
            gates.openings.opened();
        }
        if change == Some(BreakerChange::Closed) {
            gates.limit.recover(now);
        }
        let was_sick = |own: &TenantTrouble| own.health.addresses.is_sick(call.target);
        if signal == Signal::Well && gates.known_trouble(tenant).is_some_and(was_sick) {
            gates.sick_calls.succeeded(number(tenant), now);
        }
        let is_trouble = signal.is_failure() && !call.unopened || signal == Signal::Busy;
        let of_tenant = gates.tenant(tenant, now);
        if signal == Signal::Well && of_tenant.trouble.is_none() {
            of_tenant.recent.count(now);
            of_tenant.voters.note(call.target, now);
        }
        let own = match is_trouble {
            true => Some(gates.trouble(tenant, now)),
            false => gates.known_trouble_mut(tenant),
        };
        let own_change = own.and_then(|own| learn_of_tenant(own, call, epochs, now, random));
        if matches!(own_change, Some(BreakerChange::Opened { .. }))
            && !gates.breaker.is_probing()
            && gates.is_down_for_all(now)
        {
            change = Some(gates.breaker.open(BreakerCause::Failures, now, random));
        }
        let cause = gates.known_trouble(tenant).map(|own| own.breaker.cause());
        effect.tenant_event = event(BreakerScope::Tenant, cause.unwrap_or_default(), own_change);
        // That a breaker opened says more than that the provider wants to be left alone.
        let own = event(BreakerScope::Provider, gates.breaker.cause(), change);
        effect.event = own.or(effect.event);
        let eased = [change, own_change].into_iter().flatten().any(BreakerChange::is_easing);
        effect.eased |= eased;
        let own = gates.known_trouble(tenant);
        effect.excused = gates.breaker.excuses(signal)
            || own.is_some_and(|own| {
                own.breaker.excuses(signal)
                    || (signal.is_failure()
                        && !own.health.addresses.is_sick(call.target)
                        && own.health.condition(now) != Condition::Well)
            });
        if let Some(own) = gates.tenants.get_mut(tenant).filter(|_| signal == Signal::Well) {
            own.forget_trouble(now);
        }
    }
}

impl BreakerCheck {
    /// While some of the tenant's addresses fail, calls are held to what succeeds.
    fn throttled(&self, lane: &mut LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let now = lane.now;
        if lane.gates.breaker.state() == BreakerState::ForcedClosed {
            return Ok(want);
        }
        let Some(own) = lane.gates.known_trouble_mut(&lane.lane.tenant) else { return Ok(want) };
        if own.breaker.is_probing() || own.health.condition(now) == Condition::Well {
            return Ok(want);
        }
        match own.health.room(now) {
            0 => {
                own.throttled_until = now + THROTTLE_PAUSE;
                Err(LaneState::Waiting { on: Gate::Breaker, until: own.throttled_until })
            }
            room => Ok(want.min(room)),
        }
    }
}

/// The tenant's own breaker, unless an operator forced the provider's.
fn own_breaker<'a>(gates: &'a ProviderGates, tenant: &TenantId) -> Option<&'a TenantTrouble> {
    let is_forced = gates.breaker.state() == BreakerState::ForcedClosed;
    gates.known_trouble(tenant).filter(|_| !is_forced)
}

fn learn_of_tenant(
    own: &mut TenantTrouble,
    call: &CallResult,
    epochs: BreakerEpochs,
    now: Timestamp,
    random: f64,
) -> Option<BreakerChange> {
    let signal = call.signal_of_provider();
    own.health.report(&call.of_health(now), now, random);
    match signal.is_failure() {
        _ if !epochs.probes => {}
        true => own.health.note_probe(call.target),
        false => own.health.forget_probe(call.target),
    }
    let change = epochs.tenant.and_then(|epoch| own.breaker.report(signal, epoch, now, random));
    if change == Some(BreakerChange::Closed) {
        own.health.recovered();
        own.health.report(&call.of_health(now), now, random);
        own.storm.clear();
        return change;
    }
    let storms = own.storm.count(signal, call.is_retry, now) && !own.health.do_most_work(now);
    let is_down = signal.is_failure() && own.health.condition(now) == Condition::Down;
    if own.breaker.is_probing() || !(storms || is_down) {
        return change;
    }
    own.storm.clear();
    let cause = if is_down { BreakerCause::Failures } else { BreakerCause::Storm };
    Some(own.breaker.open(cause, now, random))
}

fn event(
    scope: BreakerScope,
    cause: BreakerCause,
    change: Option<BreakerChange>,
) -> Option<LaneEvent> {
    match change? {
        BreakerChange::Opened { until } if cause == BreakerCause::Storm => {
            Some(LaneEvent::RetryStorm { until })
        }
        BreakerChange::Opened { until } => Some(LaneEvent::BreakerOpened { scope, until }),
        BreakerChange::Closed => Some(LaneEvent::BreakerClosed { scope }),
        BreakerChange::Eased => None,
    }
}

/// The tenant's own breaker, or that some of its addresses fail.
fn own_words(own: &TenantTrouble, now: Timestamp) -> String {
    let votes = own.health.votes(now);
    let share = format!("{} of {} of the tenant's addresses there fail", votes.bad, votes.voters);
    match (own.breaker.is_probing(), own.health.condition(now)) {
        (true, _) => {
            let why = match own.breaker.cause() {
                BreakerCause::Storm => format!("its retries hardly succeed, and {share}"),
                _ => share,
            };
            format!(
                "{}; other tenants are not affected",
                open_words(&own.breaker, "this tenant", &why, now)
            )
        }
        (false, Condition::Degraded) => format!(
            "{share}; calls are held to twice the successes, failures do not count; other tenants are not affected"
        ),
        (false, _) => "closed: the provider works".into(),
    }
}

/// The breaker that holds all tenants.
fn words_for_all(gates: &ProviderGates, now: Timestamp) -> String {
    let breaker = &gates.breaker;
    if !breaker.is_probing() {
        return match breaker.state() {
            BreakerState::ForcedOpen => "forced open by an operator".into(),
            BreakerState::ForcedClosed => "forced closed by an operator".into(),
            _ => "closed: the provider works".into(),
        };
    }
    let why = match gates.openings.unreachable_after() {
        Some(failed) => format!("no connection could be opened {failed} times in a row"),
        None => {
            let ActiveShare { those, all } = gates.share_down(now);
            format!("{those} of {all} tenants fail there")
        }
    };
    format!("{}; other providers are not affected", open_words(breaker, "all tenants", &why, now))
}

/// For whom a breaker is not closed, since when and why, and when calls try again.
fn open_words(breaker: &ProbeBreaker, whom: &str, why: &str, now: Timestamp) -> String {
    let since = breaker.open_since().map_or(String::new(), |since| format!(" since {since}"));
    match breaker.state() {
        BreakerState::Open { until } if until > now => {
            format!("open for {whom}{since}: {why}; a few calls try again at {until}")
        }
        BreakerState::Open { .. } => {
            format!("open for {whom}{since}: {why}; the next calls try whether the provider works")
        }
        _ => format!(
            "half open for {whom}{since}: {why}; a few calls try whether the provider works"
        ),
    }
}

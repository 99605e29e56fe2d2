//! A lane as people are shown it: every gate's verdict at this moment, in words. Changes nothing.

use std::sync::Arc;

use postrider_core::model::message::Priority;
use postrider_core::policy::breaker::{
    BreakerCause, BreakerOverride, BreakerRefusal, BreakerState,
};
use postrider_core::{ChannelKind, Gate, LaneKey, LaneState, Timestamp};

use super::origin::TenantGates;
use super::{Lanes, OperatorOrder, Origin, OriginKey};

/// What one gate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateVerdict {
    pub gate: Gate,
    pub open: bool,
    pub until: Option<Timestamp>,
    pub detail: String,
}

/// How a lane stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneReport {
    pub state: LaneState,
    /// In the order in which they are asked.
    pub gates: Vec<GateVerdict>,
    pub breaker: BreakerState,
    /// Calls under way to the lane's provider, of all its lanes.
    pub provider_in_flight: usize,
    pub provider_limit: usize,
}

impl LaneReport {
    /// The first gate that does not let the lane pass.
    pub fn held_by(&self) -> Option<&GateVerdict> {
        self.gates.iter().find(|verdict| !verdict.open)
    }
}

impl Lanes {
    pub fn standing(&self, lane: &LaneKey) -> LaneReport {
        let now = self.clock.now();
        let key = (lane.channel, lane.provider.clone());
        let known = self.origins().get(&key).cloned();
        // Nobody looked at it yet: it stands as a new one would.
        let origin = known.unwrap_or_else(|| self.new_origin(lane));
        let mut gates = self.paused_verdicts(lane);
        let priority = self.policies.now().class_or_default(&lane.class).priority;
        gates.extend(verdicts(&origin, lane, priority, now));
        if let Some((forced, order)) = self.orders.forced(&key) {
            let breaker = gates.iter_mut().find(|verdict| verdict.gate == Gate::Breaker);
            let word = if forced == BreakerOverride::Open { "open" } else { "closed" };
            breaker.into_iter().for_each(|v| v.detail = format!("forced {word} {order}"));
        }
        let concurrency = gates.pop();
        gates.extend(pace_verdict(&origin, now));
        gates.extend(self.rate_verdicts(lane, now));
        gates.push(self.budget_verdict(lane, now));
        gates.extend(concurrency);
        let breaker = origin.gates().breaker.state();
        let held = gates.iter().find(|verdict| !verdict.open);
        let state = match held.map(|verdict| (verdict.gate, verdict.until)) {
            None => LaneState::Ready,
            Some((on, Some(until))) => LaneState::Waiting { on, until },
            Some((on, None)) => LaneState::Blocked { on },
        };
        LaneReport {
            state,
            gates,
            breaker,
            provider_in_flight: origin.in_flight(),
            provider_limit: origin.limit(),
        }
    }

    /// What providers seem to take per second, where they ever complained.
    pub fn paces(&self) -> Vec<(ChannelKind, Arc<str>, f64)> {
        let learned = |(key, origin): (&OriginKey, &Arc<Origin>)| {
            Some((key.0, key.1.clone(), origin.gates().pace.per_s()?))
        };
        self.origins().iter().filter_map(learned).collect()
    }

    fn rate_verdicts(&self, lane: &LaneKey, now: Timestamp) -> Vec<GateVerdict> {
        let levels = self.rates.look(lane, now).into_iter();
        levels
            .map(|(gate, next)| GateVerdict {
                gate,
                open: next <= now,
                until: Some(next).filter(|next| *next > now),
                detail: self.rates.of(lane, gate).map_or_else(String::new, |rate| {
                    format!("{} per second, {} at once", rate.per_s, rate.burst.max(1))
                }),
            })
            .collect()
    }

    fn budget_verdict(&self, lane: &LaneKey, now: Timestamp) -> GateVerdict {
        let (left, more_at) = self.budgets.left(lane, now).unzip();
        let spent = left == Some(0);
        GateVerdict {
            gate: Gate::RetryBudget,
            open: !spent,
            until: more_at.filter(|_| spent),
            detail: match left {
                None => "no retries lately".into(),
                Some(0) => "retries have taken their share of the lane's traffic".into(),
                Some(left) => format!("{left} retries left at this moment"),
            },
        }
    }

    fn paused_verdicts(&self, lane: &LaneKey) -> Vec<GateVerdict> {
        let (tenant, own) = self.orders.of(lane);
        let verdict = |gate, order: Option<OperatorOrder>| GateVerdict {
            gate,
            open: order.is_none(),
            until: None,
            detail: order.map_or("running".into(), |order| format!("paused {order}")),
        };
        vec![verdict(Gate::TenantPaused, tenant), verdict(Gate::Paused, own)]
    }
}

/// Only where something was learned.
fn pace_verdict(origin: &Origin, now: Timestamp) -> Option<GateVerdict> {
    let gates = origin.gates();
    let per_s = gates.pace.per_s()?;
    let until = gates.pace.next(now);
    let digits = usize::from(per_s < 10.0);
    let detail = format!("the provider seems to take {per_s:.digits$} calls per second");
    Some(GateVerdict { gate: Gate::Pace, open: until.is_none(), until, detail })
}

fn verdicts(
    origin: &Origin,
    lane: &LaneKey,
    priority: Priority,
    now: Timestamp,
) -> Vec<GateVerdict> {
    let gates = origin.gates();
    let own = gates.tenants.get(&lane.tenant);
    let host = gates.pause.until(now);
    let alone = host.max(own.and_then(|own| own.pause.until(now)));
    let whom = if alone == host { "" } else { " by this tenant's credential" };
    let breaker = gates.breaker.state();
    let (in_flight, limit) = (origin.in_flight(), origin.limit());
    let free = origin.places(priority);
    vec![
        GateVerdict {
            gate: Gate::RetryAfter,
            open: alone.is_none(),
            until: alone,
            detail: alone.map_or("it takes calls".into(), |until| {
                format!("the provider asked to be left alone{whom} until {until}")
            }),
        },
        GateVerdict {
            gate: Gate::Breaker,
            open: gates.breaker.may_pass(now).is_ok(),
            until: match breaker {
                BreakerState::Open { until } if until > now => Some(until),
                _ => None,
            },
            detail: in_words(breaker, gates.breaker.cause(), now),
        },
        credential_verdict(own, Gate::Credential, now),
        credential_verdict(own, Gate::MassGone, now),
        GateVerdict {
            gate: Gate::Concurrency,
            open: free > 0,
            until: None,
            detail: match in_flight < limit && free == 0 {
                true => format!(
                    "{in_flight} of {limit} calls under way to the provider; the other places are kept for urgent classes"
                ),
                false => format!("{in_flight} of {limit} calls under way to the provider"),
            },
        },
    ]
}

/// One breaker stands behind both gates of a credential: what opened it says which of them is shut.
fn credential_verdict(own: Option<&TenantGates>, gate: Gate, now: Timestamp) -> GateVerdict {
    let barred =
        own.filter(|own| own.gate() == gate).and_then(|own| own.credential.may_pass(now).err());
    let detail = match (gate, barred.is_some()) {
        (Gate::MassGone, false) => "addresses that are called gone are believed to be",
        (Gate::MassGone, true) => {
            "the provider calls so many of the tenant's addresses gone that it is not believed; none is erased"
        }
        (_, false) => "not refused",
        (_, true) => "the provider refused the tenant's credential",
    };
    GateVerdict {
        gate,
        open: barred.is_none(),
        until: match barred {
            Some(BreakerRefusal::Until(until)) => Some(until),
            _ => None,
        },
        detail: detail.into(),
    }
}

fn in_words(breaker: BreakerState, cause: BreakerCause, now: Timestamp) -> String {
    match breaker {
        BreakerState::Closed => "closed: the provider works".into(),
        BreakerState::Open { until } if until > now && cause == BreakerCause::Storm => {
            format!("open: retries hardly succeed; one call tries again at {until}")
        }
        BreakerState::Open { until } if until > now => {
            format!("open: the provider fails; one call tries again at {until}")
        }
        BreakerState::Open { .. } => "open: the next call tries whether the provider works".into(),
        BreakerState::Recovering { allowed: 1 } => {
            "half open: one call tries whether the provider works".into()
        }
        BreakerState::Recovering { allowed } => {
            format!("half open: the provider comes back, {allowed} calls at once")
        }
        BreakerState::ForcedOpen => "forced open by an operator".into(),
        BreakerState::ForcedClosed => "forced closed by an operator".into(),
    }
}

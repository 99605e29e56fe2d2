//! Draws how each provider behaves over time: healthy, with phases of faults.

use postrider_core::ChannelKind;

use super::PlanProfile;
use crate::intake::KINDS;
use crate::rng::SimRng;

#[derive(Debug, Clone)]
pub(crate) struct ProviderPlan {
    pub kind: ChannelKind,
    /// The name of the table that classifies its answers.
    pub service: &'static str,
    /// Latency of a normal answer.
    pub latency_ms: u64,
    pub phases: Vec<BehaviourPhase>,
}

#[derive(Debug, Clone)]
pub(crate) struct BehaviourPhase {
    pub from_ms: i64,
    pub to_ms: i64,
    pub behaviour: ProviderBehaviour,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ProviderBehaviour {
    Healthy,
    /// Answers requests beyond the rate with 429 (406 for WNS).
    Limited {
        per_s: u64,
        wait: RetryAfterForm,
    },
    /// Answers more concurrent requests than that with 503.
    Slots {
        at_once: usize,
    },
    /// Nothing works: 500, 503 with or without `Retry-After`, or no connection.
    Down {
        status: Option<u16>,
        wait: RetryAfterForm,
    },
    Slow {
        ms: u64,
    },
    /// Answers late, sometimes later than the end of the lease.
    Hanging {
        ms: u64,
    },
    /// Accepts or loses some requests and answers none of them.
    Losing {
        percent: u64,
    },
    /// That share of its addresses is gone.
    Gone {
        percent: u64,
    },
    /// Refuses some messages permanently.
    Refusing {
        percent: u64,
    },
    /// Answers that it did not process some requests.
    Reconnecting {
        percent: u64,
    },
    /// Calls some tokens stale.
    Stale {
        percent: u64,
    },
}

/// The form of `Retry-After`, if the provider sends one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RetryAfterForm {
    Absent,
    Seconds(u64),
    Date(u64),
}

impl ProviderPlan {
    pub(crate) fn behaviour_at(&self, ms: i64) -> ProviderBehaviour {
        let now = self.phases.iter().find(|phase| (phase.from_ms..phase.to_ms).contains(&ms));
        now.map_or(ProviderBehaviour::Healthy, |phase| phase.behaviour)
    }
}

/// Their 429s have different scopes: one address, one credential, the whole host.
const SERVICES: [&str; 5] = ["webhook", "http", "webpush.wns", "webpush.fcm", "webpush.mozilla"];

pub(super) fn draw(profile: PlanProfile, calm_at_ms: i64, rng: &mut SimRng) -> Vec<ProviderPlan> {
    let count = match profile {
        PlanProfile::Contention => 1,
        PlanProfile::Outage => rng.within(2, 3),
        _ => rng.magnitude(6),
    };
    let provider = |_| ProviderPlan {
        kind: *rng.pick(&KINDS),
        service: SERVICES[rng.index(SERVICES.len())],
        latency_ms: rng.within(5, 300),
        phases: phases(profile, calm_at_ms, rng),
    };
    (0..count).map(provider).collect()
}

fn phases(profile: PlanProfile, calm_at_ms: i64, rng: &mut SimRng) -> Vec<BehaviourPhase> {
    if profile == PlanProfile::Contention {
        return Vec::new();
    }
    let mut phases = Vec::new();
    let mut at = 0;
    while phases.len() < 8 {
        at += rng.within(0, calm_at_ms as u64 / 4) as i64;
        let longest = match profile {
            PlanProfile::Outage => 300_000,
            PlanProfile::Days => 7_200_000,
            _ => 60_000,
        };
        let to = at + rng.magnitude(longest) as i64;
        if to >= calm_at_ms {
            break;
        }
        let behaviour = if profile == PlanProfile::Outage && rng.chance(0.6) {
            down(rng)
        } else {
            behaviour(rng)
        };
        phases.push(BehaviourPhase { from_ms: at, to_ms: to, behaviour });
        at = to;
    }
    phases
}

fn behaviour(rng: &mut SimRng) -> ProviderBehaviour {
    let percent = rng.within(5, 100);
    match rng.below(11) {
        0 | 1 => ProviderBehaviour::Limited { per_s: rng.magnitude(20), wait: wait(rng) },
        2 => ProviderBehaviour::Slots { at_once: rng.within(1, 6) as usize },
        3 => down(rng),
        4 => ProviderBehaviour::Slow { ms: rng.within(500, 9_000) },
        5 => ProviderBehaviour::Hanging { ms: rng.within(5_000, 200_000) },
        6 => ProviderBehaviour::Losing { percent },
        7 => ProviderBehaviour::Gone { percent },
        8 => ProviderBehaviour::Refusing { percent },
        9 => ProviderBehaviour::Reconnecting { percent },
        _ => ProviderBehaviour::Stale { percent },
    }
}

fn down(rng: &mut SimRng) -> ProviderBehaviour {
    ProviderBehaviour::Down { status: *rng.pick(&[Some(500), Some(503), None]), wait: wait(rng) }
}

fn wait(rng: &mut SimRng) -> RetryAfterForm {
    match rng.below(3) {
        0 => RetryAfterForm::Absent,
        1 => RetryAfterForm::Seconds(rng.magnitude(600)),
        _ => RetryAfterForm::Date(rng.magnitude(600)),
    }
}

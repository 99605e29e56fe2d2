//! Draws what happens when: actions of an operator, crashes, clock jumps and disk faults.

use postrider_core::policy::breaker::BreakerOverride;

use super::{PlanProfile, SimPlan};
use crate::rng::SimRng;

#[derive(Debug, Clone)]
pub(crate) enum SimAction {
    /// One request with these messages, all of one tenant.
    Submit(Vec<usize>),
    /// Cancels that message, if it was accepted.
    Cancel(usize),
    /// Replays all dead letters.
    Replay {
        ttl_s: Option<u32>,
        rate_per_s: Option<f64>,
    },
    /// Pauses all lanes of a tenant, or resumes them.
    Pause(usize),
    Resume(usize),
    Force {
        provider: usize,
        forced: Option<BreakerOverride>,
    },
    /// Providers refuse a tenant's credential until it is renewed.
    CredentialLost(usize),
    CredentialRenewed(usize),
    /// The wall clock is set forward or back.
    Jump(i64),
    Disk(DiskFault),
    /// The process dies.
    Crash {
        how: PlannedCrash,
        down_ms: i64,
    },
    /// The process is stopped cleanly, with some time for running calls, and started again.
    Restart {
        drain_ms: u64,
        down_ms: i64,
    },
    /// The worker that has the work dies alone, and another one goes on.
    WorkerDies,
    /// It hands over instead, with some time for running calls.
    WorkerLeaves {
        drain_ms: u64,
    },
    /// Compares the store's counts with a recount.
    Recount,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskFault {
    pub for_ms: i64,
    /// Share of the calls that fail.
    pub share: f64,
    pub kind: DiskFaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskFaultKind {
    Slow {
        ms: u64,
    },
    /// An error; nothing is written.
    FailsBefore,
    /// An error, although the data is written.
    FailsAfter,
    /// New work is refused, settlements are written.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedCrash {
    /// After so many polls of the ready tasks.
    Soon { polls: u32 },
    /// At the nth write from now: nothing of it is on disk.
    BeforeWrite { nth: u32 },
    /// After the nth write: it is on disk, but nobody got the answer.
    AfterWrite { nth: u32 },
    /// A power cut: only a part of the nth write is on disk.
    TornWrite { nth: u32 },
}

pub(super) fn draw(plan: &mut SimPlan, rng: &mut SimRng) {
    if plan.profile == PlanProfile::Contention {
        return;
    }
    let when = |rng: &mut SimRng| rng.below(plan.calm_at_ms as u64) as i64;
    let mut actions = Vec::new();
    for _ in 0..rng.below(5) {
        actions.push((when(rng), SimAction::Crash { how: crash(rng), down_ms: down_ms(rng) }));
    }
    for _ in 0..rng.below(3) {
        let drain_ms = rng.magnitude(20_000);
        actions.push((when(rng), SimAction::Restart { drain_ms, down_ms: down_ms(rng) }));
    }
    if rng.chance(0.5) {
        for _ in 0..rng.below(4) {
            actions.push((when(rng), SimAction::Jump(jump(plan.profile, rng))));
        }
    }
    for _ in 0..rng.below(4) {
        actions.push((when(rng), SimAction::Disk(disk(rng))));
    }
    for _ in 0..rng.below(4) {
        actions.push((when(rng), SimAction::Cancel(rng.index(plan.messages.len()))));
        actions.push((when(rng), SimAction::Recount));
    }
    for _ in 0..rng.below(3) {
        let ttl_s = rng.chance(0.5).then(|| rng.magnitude(7_200) as u32);
        let rate_per_s = rng.chance(0.5).then(|| rng.within(1, 50) as f64);
        actions.push((when(rng), SimAction::Replay { ttl_s, rate_per_s }));
    }
    operate(plan, &mut actions, rng);
    plan.actions.extend(actions);
}

/// Some runs have several workers.
pub(super) fn draw_workers(plan: &mut SimPlan, rng: &mut SimRng) {
    if plan.profile == PlanProfile::Contention || rng.chance(0.5) {
        return;
    }
    plan.workers = rng.within(2, 3) as usize;
    for _ in 0..rng.within(1, 6) {
        let drain_ms = rng.magnitude(20_000);
        let dies = rng.chance(0.6);
        let action =
            if dies { SimAction::WorkerDies } else { SimAction::WorkerLeaves { drain_ms } };
        plan.actions.push((rng.below(plan.calm_at_ms as u64) as i64, action));
    }
}

/// Every action of the operator is undone before the calm phase.
fn operate(plan: &SimPlan, actions: &mut Vec<(i64, SimAction)>, rng: &mut SimRng) {
    let mut pair = |rng: &mut SimRng, first: SimAction, then: SimAction| {
        let from = rng.below(plan.calm_at_ms as u64);
        let to = rng.within(from, plan.calm_at_ms as u64);
        actions.push((from as i64, first));
        actions.push((to as i64, then));
    };
    if rng.chance(0.4) {
        let tenant = rng.index(plan.tenants.len());
        pair(rng, SimAction::Pause(tenant), SimAction::Resume(tenant));
    }
    for _ in 0..rng.below(3) {
        let tenant = rng.index(plan.tenants.len());
        pair(rng, SimAction::CredentialLost(tenant), SimAction::CredentialRenewed(tenant));
    }
    if rng.chance(0.3) {
        let provider = rng.index(plan.providers.len());
        let forced = Some(*rng.pick(&[BreakerOverride::Open, BreakerOverride::Closed]));
        pair(
            rng,
            SimAction::Force { provider, forced },
            SimAction::Force { provider, forced: None },
        );
    }
}

fn crash(rng: &mut SimRng) -> PlannedCrash {
    let nth = rng.magnitude(12) as u32;
    match rng.below(4) {
        0 => PlannedCrash::Soon { polls: rng.below(40) as u32 },
        1 => PlannedCrash::BeforeWrite { nth },
        2 => PlannedCrash::AfterWrite { nth },
        _ => PlannedCrash::TornWrite { nth },
    }
}

fn down_ms(rng: &mut SimRng) -> i64 {
    if rng.chance(0.5) { rng.below(500) as i64 } else { rng.magnitude(300_000) as i64 }
}

fn jump(profile: PlanProfile, rng: &mut SimRng) -> i64 {
    let longest = if profile == PlanProfile::Days { 14_400_000 } else { 300_000 };
    let ms = rng.magnitude(longest) as i64;
    if rng.chance(0.5) { ms } else { -ms }
}

fn disk(rng: &mut SimRng) -> DiskFault {
    let kind = match rng.below(5) {
        0 | 1 => DiskFaultKind::Slow { ms: rng.magnitude(5_000) },
        2 => DiskFaultKind::FailsBefore,
        3 => DiskFaultKind::FailsAfter,
        _ => DiskFaultKind::Full,
    };
    DiskFault { for_ms: rng.magnitude(40_000) as i64, share: *rng.pick(&[0.1, 0.5, 1.0]), kind }
}

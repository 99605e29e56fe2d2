//! What happens when: submissions, an operator's acts, and everything that breaks.

use postrider_core::policy::breaker::BreakerOverride;

use super::{Plan, Profile};
use crate::rng::Rng;

#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// One request with these letters, all of one tenant.
    Submit(Vec<usize>),
    /// Cancels the message of that letter, if it was accepted.
    Cancel(usize),
    /// Replays all dead letters.
    Replay {
        ttl_s: Option<u32>,
        rate_per_s: Option<f64>,
    },
    /// Pauses whatever lanes of a tenant there are, or lets them go on.
    Pause(usize),
    Resume(usize),
    Force {
        provider: usize,
        forced: Option<BreakerOverride>,
    },
    /// A provider no longer accepts a tenant's credential, until it is renewed.
    CredentialLost(usize),
    CredentialRenewed(usize),
    /// The wall clock is set forth or back.
    Jump(i64),
    Disk(DiskFault),
    /// The process dies.
    Crash {
        how: Crash,
        down_ms: i64,
    },
    /// It is stopped in order, with so long for calls under way, and started again.
    Restart {
        patience_ms: u64,
        down_ms: i64,
    },
    /// Compares what the store counts with a recount.
    Recount,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskFault {
    pub for_ms: i64,
    /// Share of the calls that it hits.
    pub share: f64,
    pub kind: DiskTrouble,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskTrouble {
    Slow {
        ms: u64,
    },
    /// An error, and nothing was written.
    FailsBefore,
    /// An error, although it was written.
    FailsAfter,
    /// New work is refused, settlements are written.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// After the tasks that are ready now were polled so many times.
    Soon { polls: u32 },
    /// At the so many-th write from now on: nothing of it is on disk.
    BeforeWrite { nth: u32 },
    /// It is on disk, nobody was told.
    AfterWrite { nth: u32 },
    /// The power goes: of the last write there is a part on disk.
    TornWrite { nth: u32 },
}

pub(super) fn draw(plan: &mut Plan, rng: &mut Rng) {
    if plan.profile == Profile::Contention {
        return;
    }
    let when = |rng: &mut Rng| rng.below(plan.calm_at_ms as u64) as i64;
    let mut acts = Vec::new();
    for _ in 0..rng.below(5) {
        acts.push((when(rng), Act::Crash { how: crash(rng), down_ms: down_ms(rng) }));
    }
    for _ in 0..rng.below(3) {
        let patience_ms = rng.magnitude(20_000);
        acts.push((when(rng), Act::Restart { patience_ms, down_ms: down_ms(rng) }));
    }
    if rng.chance(0.5) {
        for _ in 0..rng.below(4) {
            acts.push((when(rng), Act::Jump(jump(plan.profile, rng))));
        }
    }
    for _ in 0..rng.below(4) {
        acts.push((when(rng), Act::Disk(disk(rng))));
    }
    for _ in 0..rng.below(4) {
        acts.push((when(rng), Act::Cancel(rng.index(plan.letters.len()))));
        acts.push((when(rng), Act::Recount));
    }
    for _ in 0..rng.below(3) {
        let ttl_s = rng.chance(0.5).then(|| rng.magnitude(7_200) as u32);
        let rate_per_s = rng.chance(0.5).then(|| rng.within(1, 50) as f64);
        acts.push((when(rng), Act::Replay { ttl_s, rate_per_s }));
    }
    operate(plan, &mut acts, rng);
    plan.acts.extend(acts);
}

/// Whatever an operator does is undone before the calm.
fn operate(plan: &Plan, acts: &mut Vec<(i64, Act)>, rng: &mut Rng) {
    let mut pair = |rng: &mut Rng, first: Act, then: Act| {
        let from = rng.below(plan.calm_at_ms as u64);
        let to = rng.within(from, plan.calm_at_ms as u64);
        acts.push((from as i64, first));
        acts.push((to as i64, then));
    };
    if rng.chance(0.4) {
        let tenant = rng.index(plan.tenants.len());
        pair(rng, Act::Pause(tenant), Act::Resume(tenant));
    }
    for _ in 0..rng.below(3) {
        let tenant = rng.index(plan.tenants.len());
        pair(rng, Act::CredentialLost(tenant), Act::CredentialRenewed(tenant));
    }
    if rng.chance(0.3) {
        let provider = rng.index(plan.providers.len());
        let forced = Some(*rng.pick(&[BreakerOverride::Open, BreakerOverride::Closed]));
        pair(rng, Act::Force { provider, forced }, Act::Force { provider, forced: None });
    }
}

fn crash(rng: &mut Rng) -> Crash {
    let nth = rng.magnitude(12) as u32;
    match rng.below(4) {
        0 => Crash::Soon { polls: rng.below(40) as u32 },
        1 => Crash::BeforeWrite { nth },
        2 => Crash::AfterWrite { nth },
        _ => Crash::TornWrite { nth },
    }
}

fn down_ms(rng: &mut Rng) -> i64 {
    if rng.chance(0.5) { rng.below(500) as i64 } else { rng.magnitude(300_000) as i64 }
}

fn jump(profile: Profile, rng: &mut Rng) -> i64 {
    let longest = if profile == Profile::Days { 14_400_000 } else { 300_000 };
    let ms = rng.magnitude(longest) as i64;
    if rng.chance(0.5) { ms } else { -ms }
}

fn disk(rng: &mut Rng) -> DiskFault {
    let kind = match rng.below(5) {
        0 | 1 => DiskTrouble::Slow { ms: rng.magnitude(5_000) },
        2 => DiskTrouble::FailsBefore,
        3 => DiskTrouble::FailsAfter,
        _ => DiskTrouble::Full,
    };
    DiskFault { for_ms: rng.magnitude(40_000) as i64, share: *rng.pick(&[0.1, 0.5, 1.0]), kind }
}

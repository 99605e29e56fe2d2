//! Draws the traffic: which messages callers submit, when, and which they repeat.

use postrider_core::model::class::WhenOpen;

use super::{PlanProfile, SimAction, SimPlan};
use crate::rng::SimRng;

/// A message that a caller submits.
#[derive(Debug, Clone)]
pub(crate) struct PlannedMessage {
    pub tenant: usize,
    pub class: usize,
    pub provider: usize,
    /// Which of the tenant's addresses at that provider.
    pub address: u64,
    /// Fallback: a provider, and which address there.
    pub fallback: Option<(usize, u64)>,
    pub ttl_s: Option<u32>,
    /// Not before, in milliseconds from the start.
    pub send_at_ms: Option<i64>,
    pub key: Option<u64>,
    /// Number of its content. A repeat has the same content, a conflict another one.
    pub content: usize,
}

pub(super) fn draw(plan: &mut SimPlan, rng: &mut SimRng) {
    if plan.profile == PlanProfile::Contention {
        return contention(plan, rng);
    }
    let bursts = match plan.profile {
        PlanProfile::Days => rng.within(3, 12),
        _ => rng.within(2, 16),
    };
    let (small, large) = if plan.profile == PlanProfile::Outage { (8, 64) } else { (3, 48) };
    for _ in 0..bursts {
        let at = rng.below(plan.calm_at_ms as u64) as i64;
        let count = if rng.chance(0.3) { large } else { small };
        let messages: Vec<_> = (0..rng.magnitude(count)).map(|_| message(plan, at, rng)).collect();
        submit(plan, at, messages, rng);
    }
}

/// Backlogs from the start, one tenant with pauses, and a little urgent work.
fn contention(plan: &mut SimPlan, rng: &mut SimRng) {
    let sparing = plan.tenants.len() <= 3;
    for tenant in 1..plan.tenants.len() {
        let many = if sparing { rng.within(350, 500) } else { rng.within(40, 120) };
        backlog(plan, tenant, 0, many, rng);
    }
    if sparing {
        // First little, then a lot: a tenant cannot save up unused share.
        let mut at = 500;
        for _ in 0..rng.within(8, 16) {
            at += rng.within(300, 500) as i64;
            backlog(plan, 0, at, 1, rng);
        }
        backlog(plan, 0, at + 1_000, rng.within(250, 350), rng);
    } else {
        (0..4).for_each(|visit| backlog(plan, 0, visit * plan.calm_at_ms / 4, 40, rng));
    }
    let mut at = 1_000;
    while at < plan.calm_at_ms / 4 {
        at += rng.within(200, 5_000) as i64;
        let tenant = rng.index(plan.tenants.len());
        let urgent = plain(plan, tenant, 1, rng);
        submit(plan, at, vec![urgent], rng);
    }
}

fn backlog(plan: &mut SimPlan, tenant: usize, at: i64, many: u64, rng: &mut SimRng) {
    let messages = (0..many).map(|_| plain(plan, tenant, 0, rng)).collect();
    submit(plan, at, messages, rng);
}

fn plain(plan: &SimPlan, tenant: usize, class: usize, rng: &mut SimRng) -> PlannedMessage {
    PlannedMessage {
        tenant,
        class,
        provider: rng.index(plan.providers.len()),
        address: rng.below(1_000),
        fallback: None,
        ttl_s: None,
        send_at_ms: None,
        key: None,
        content: 0,
    }
}

fn message(plan: &SimPlan, at: i64, rng: &mut SimRng) -> PlannedMessage {
    let whole: u64 = plan.tenants.iter().map(|tenant| tenant.traffic).sum();
    let mut drawn = rng.below(whole);
    let mut tenant = 0;
    while drawn >= plan.tenants[tenant].traffic {
        drawn -= plan.tenants[tenant].traffic;
        tenant += 1;
    }
    let class = rng.index(plan.classes.len());
    let ahead = if plan.profile == PlanProfile::Days { 36_000_000 } else { 120_000 };
    PlannedMessage {
        address: rng.below(6),
        fallback: (plan.classes[class].when_open == WhenOpen::FallBack && rng.chance(0.7))
            .then(|| (rng.index(plan.providers.len()), 6 + rng.below(6))),
        ttl_s: rng.chance(0.2).then(|| *rng.pick(&[0, 2, 20, 300, 7_200, 172_800])),
        send_at_ms: rng.chance(0.1).then(|| at + rng.below(ahead) as i64),
        key: rng.chance(0.3).then(|| rng.below(1 << 40)),
        ..plain(plan, tenant, class, rng)
    }
}

/// Submits messages; repeats some of those with a key later, unchanged or changed.
fn submit(plan: &mut SimPlan, at: i64, messages: Vec<PlannedMessage>, rng: &mut SimRng) {
    let first = plan.messages.len();
    let mut batch = Vec::new();
    for mut message in messages {
        let index = plan.messages.len();
        message.content = index;
        plan.messages.push(message);
        batch.push(index);
    }
    for index in first..plan.messages.len() {
        if plan.messages[index].key.is_some() {
            repeat(plan, at, index, rng);
        }
    }
    // A request carries the messages of one tenant.
    batch.sort_by_key(|&index| plan.messages[index].tenant);
    let one_by_one = plan.profile != PlanProfile::Contention && rng.chance(0.5);
    for group in
        batch.chunk_by(|&a, &b| !one_by_one && plan.messages[a].tenant == plan.messages[b].tenant)
    {
        plan.actions.push((at, SimAction::Submit(group.to_vec())));
    }
}

fn repeat(plan: &mut SimPlan, at: i64, index: usize, rng: &mut SimRng) {
    let day = 86_400_000;
    for _ in 0..rng.below(4) {
        let later = match rng.below(4) {
            0 => rng.below(50),
            1 => rng.below(60_000),
            2 => rng.below(600_000),
            _ if plan.profile == PlanProfile::Days => rng.within(day - 3_600_000, day + 3_600_000),
            _ => rng.below(120_000),
        };
        let mut again = plan.messages[index].clone();
        if rng.chance(0.15) {
            again.content = plan.messages.len();
        }
        plan.messages.push(again);
        plan.actions.push((at + later as i64, SimAction::Submit(vec![plan.messages.len() - 1])));
    }
}

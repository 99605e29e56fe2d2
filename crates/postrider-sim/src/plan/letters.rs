//! The traffic: what callers hand in, when, and what they hand in twice.

use postrider_core::model::class::WhenOpen;

use super::{Act, Plan, Profile};
use crate::rng::Rng;

/// One message as its caller writes it.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub tenant: usize,
    pub class: usize,
    pub provider: usize,
    /// Which of the tenant's addresses at that provider.
    pub address: u64,
    /// Where else it may go: a provider, and which address there.
    pub fallback: Option<(usize, u64)>,
    pub ttl_s: Option<u32>,
    /// Not before, in milliseconds from the beginning.
    pub send_at_ms: Option<i64>,
    pub key: Option<u64>,
    /// What it says. A repeat says the same as the first; a conflict says something else.
    pub says: usize,
}

pub(super) fn draw(plan: &mut Plan, rng: &mut Rng) {
    if plan.profile == Profile::Contention {
        return contention(plan, rng);
    }
    let bursts = match plan.profile {
        Profile::Days => rng.within(3, 12),
        _ => rng.within(2, 16),
    };
    let (small, large) = if plan.profile == Profile::Outage { (8, 64) } else { (3, 48) };
    for _ in 0..bursts {
        let at = rng.below(plan.calm_at_ms as u64) as i64;
        let count = if rng.chance(0.3) { large } else { small };
        let letters: Vec<_> = (0..rng.magnitude(count)).map(|_| letter(plan, at, rng)).collect();
        submit(plan, at, letters, rng);
    }
}

/// Backlogs from the start, one tenant that comes and goes, and a trickle of urgent work.
fn contention(plan: &mut Plan, rng: &mut Rng) {
    let sparing = plan.tenants.len() <= 3;
    for tenant in 1..plan.tenants.len() {
        let many = if sparing { rng.within(350, 500) } else { rng.within(40, 120) };
        backlog(plan, tenant, 0, many, rng);
    }
    if sparing {
        // Little at a time, and then a lot: what it did not use before is not its to use now.
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

fn backlog(plan: &mut Plan, tenant: usize, at: i64, many: u64, rng: &mut Rng) {
    let letters = (0..many).map(|_| plain(plan, tenant, 0, rng)).collect();
    submit(plan, at, letters, rng);
}

fn plain(plan: &Plan, tenant: usize, class: usize, rng: &mut Rng) -> Letter {
    Letter {
        tenant,
        class,
        provider: rng.index(plan.providers.len()),
        address: rng.below(1_000),
        fallback: None,
        ttl_s: None,
        send_at_ms: None,
        key: None,
        says: 0,
    }
}

fn letter(plan: &Plan, at: i64, rng: &mut Rng) -> Letter {
    let whole: u64 = plan.tenants.iter().map(|tenant| tenant.traffic).sum();
    let mut drawn = rng.below(whole);
    let mut tenant = 0;
    while drawn >= plan.tenants[tenant].traffic {
        drawn -= plan.tenants[tenant].traffic;
        tenant += 1;
    }
    let class = rng.index(plan.classes.len());
    let ahead = if plan.profile == Profile::Days { 36_000_000 } else { 120_000 };
    Letter {
        address: rng.below(6),
        fallback: (plan.classes[class].when_open == WhenOpen::FallBack && rng.chance(0.7))
            .then(|| (rng.index(plan.providers.len()), 6 + rng.below(6))),
        ttl_s: rng.chance(0.2).then(|| *rng.pick(&[0, 2, 20, 300, 7_200, 172_800])),
        send_at_ms: rng.chance(0.1).then(|| at + rng.below(ahead) as i64),
        key: rng.chance(0.3).then(|| rng.below(1 << 40)),
        ..plain(plan, tenant, class, rng)
    }
}

/// Hands letters in, and some of those with a key again later: as they were, or changed.
fn submit(plan: &mut Plan, at: i64, letters: Vec<Letter>, rng: &mut Rng) {
    let first = plan.letters.len();
    let mut batch = Vec::new();
    for mut letter in letters {
        let index = plan.letters.len();
        letter.says = index;
        plan.letters.push(letter);
        batch.push(index);
    }
    for index in first..plan.letters.len() {
        if plan.letters[index].key.is_some() {
            repeat(plan, at, index, rng);
        }
    }
    // A request carries the messages of one tenant.
    batch.sort_by_key(|&index| plan.letters[index].tenant);
    let one_by_one = plan.profile != Profile::Contention && rng.chance(0.5);
    for group in
        batch.chunk_by(|&a, &b| !one_by_one && plan.letters[a].tenant == plan.letters[b].tenant)
    {
        plan.acts.push((at, Act::Submit(group.to_vec())));
    }
}

fn repeat(plan: &mut Plan, at: i64, index: usize, rng: &mut Rng) {
    let day = 86_400_000;
    for _ in 0..rng.below(4) {
        let later = match rng.below(4) {
            0 => rng.below(50),
            1 => rng.below(60_000),
            2 => rng.below(600_000),
            _ if plan.profile == Profile::Days => rng.within(day - 3_600_000, day + 3_600_000),
            _ => rng.below(120_000),
        };
        let mut again = plan.letters[index].clone();
        if rng.chance(0.15) {
            again.says = plan.letters.len();
        }
        plan.letters.push(again);
        plan.acts.push((at + later as i64, Act::Submit(vec![plan.letters.len() - 1])));
    }
}

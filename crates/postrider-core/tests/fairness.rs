//! What holds of the turns, whoever waits with whatever weight and however much each turn takes.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

use std::collections::HashSet;

use postrider_core::model::message::Priority;
use postrider_core::policy::fairness::{Fairness, QUANTUM_MAX, TIER_SHARES, Weights};
use postrider_core::{TenantId, Timestamp};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const PRIORITIES: [Priority; 3] = [Priority::Low, Priority::Normal, Priority::High];

fn tenant(n: usize) -> TenantId {
    TenantId::new(&format!("t{n}"))
}

fn weights(of: &[f64]) -> Weights {
    of.iter().enumerate().map(|(n, weight)| (tenant(n), *weight)).collect()
}

/// Gives turns to `fairness` until `total` was sent, each taking at most what `takes` says.
fn serve(
    fairness: &mut Fairness<usize>,
    weights: &Weights,
    lanes: usize,
    total: usize,
    takes: &[usize],
) -> Vec<usize> {
    let (mut had, mut sent) = (vec![0; lanes], 0);
    for take in takes.iter().cycle() {
        if sent >= total {
            break;
        }
        let (lane, turn) = fairness.next(weights, NOW, |_| true).unwrap();
        let used = turn.allowance.min(*take);
        had[lane] += used;
        sent += used;
        fairness.end(turn, used, Some(lane));
    }
    had
}

proptest! {
    #[test]
    fn whoever_always_has_work_gets_its_weighted_share(
        of in prop::collection::vec(prop::sample::select(vec![0.05, 0.5, 1.0, 2.0, 7.5]), 2..12),
        takes in prop::collection::vec(1usize..100, 1..20),
    ) {
        let mut fairness = Fairness::default();
        (0..of.len()).for_each(|n| fairness.join(n, &tenant(n), Priority::Normal));
        let had = serve(&mut fairness, &weights(&of), of.len(), 20_000, &takes);
        let per_weight: Vec<_> = had.iter().zip(&of).map(|(had, w)| *had as f64 / w).collect();
        let (least, most) = per_weight.iter().fold((f64::MAX, 0.0_f64), |(l, m), h| (l.min(*h), m.max(*h)));
        // One turn of difference, and what a turn leaves over.
        let smallest = of.iter().copied().fold(f64::MAX, f64::min);
        let bound = 2.0 * QUANTUM_MAX as f64 + 2.0 / smallest;
        prop_assert!(most - least <= bound, "{per_weight:?}");
    }

    #[test]
    fn nobody_waits_for_more_than_one_turn_of_each_other(
        others in 1usize..200,
        takes in prop::collection::vec(1usize..100, 1..20),
    ) {
        let mut fairness = Fairness::default();
        (0..others).for_each(|n| fairness.join(n, &tenant(n), Priority::Low));
        serve(&mut fairness, &Weights::new(), others, 1_000, &takes);
        fairness.join(others, &tenant(others), Priority::Low);
        let had = serve(&mut fairness, &Weights::new(), others + 1, (others + 1) * QUANTUM_MAX, &takes);
        prop_assert!(had[others] > 0, "{had:?}");
    }

    #[test]
    fn no_tier_gets_less_than_its_share_and_an_urgent_one_goes_first(
        tenants in 1usize..5,
        takes in prop::collection::vec(1usize..100, 1..20),
    ) {
        let mut fairness = Fairness::default();
        for n in 0..tenants * 3 {
            fairness.join(n, &tenant(n / 3), PRIORITIES[n % 3]);
        }
        let (first, turn) = fairness.next(&Weights::new(), NOW, |_| true).unwrap();
        prop_assert_eq!(PRIORITIES[first % 3], Priority::High);
        fairness.end(turn, 0, Some(first));
        let rounds = 50;
        let all: usize = TIER_SHARES.iter().sum::<usize>() * rounds;
        let had = serve(&mut fairness, &Weights::new(), tenants * 3, all, &takes);
        for (tier, share) in TIER_SHARES.iter().enumerate() {
            let tier_had: usize = had.iter().skip(tier).step_by(3).sum();
            let due = share * rounds;
            prop_assert!(tier_had.abs_diff(due) <= 48, "{tier}: {tier_had} of {due}");
        }
    }

    /// Lanes come and go in any order: each that waits is served once per life, none is lost or doubled.
    #[test]
    fn no_lane_is_lost_and_none_is_served_twice(steps in prop::collection::vec((0usize..30, 0usize..3, 0usize..40), 1..400)) {
        let (mut fairness, weights) = (Fairness::default(), weights(&[3.0, 0.2]));
        let mut waiting = HashSet::new();
        for (n, (who, tier, used)) in steps.into_iter().enumerate() {
            if used % 2 == 0 {
                fairness.join(n, &tenant(who), PRIORITIES[tier]);
                waiting.insert(n);
            } else if let Some((lane, turn)) = fairness.next(&weights, NOW, |_| true) {
                prop_assert!(waiting.remove(&lane));
                prop_assert!(turn.allowance > 0);
                let used = used.min(turn.allowance);
                fairness.end(turn, used, None);
            }
        }
        while let Some((lane, turn)) = fairness.next(&weights, NOW, |_| true) {
            prop_assert!(waiting.remove(&lane));
            fairness.end(turn, 1, None);
        }
        prop_assert!(waiting.is_empty() && fairness.is_empty());
    }
}

#[test]
fn a_hundred_thousand_tenants_cost_as_much_per_turn_as_ten() {
    let mut fairness = Fairness::default();
    (0..100_000).for_each(|n| fairness.join(n, &tenant(n), Priority::Normal));
    let had = serve(&mut fairness, &Weights::new(), 100_000, 100_000 * QUANTUM_MAX, &[64]);
    assert!(had.iter().all(|had| had.abs_diff(QUANTUM_MAX) <= QUANTUM_MAX), "equal to a turn");
}

//! Sick traffic costs healthy traffic nothing: worlds of random seeds, three runs each.

use postrider_sim::{harm, harm_seeds};

#[test]
fn sick_traffic_costs_healthy_traffic_nothing() {
    let failed = harm_seeds(1, 300, |report| {
        if !report.broken.is_empty() {
            println!("{report}");
        }
    });
    assert!(failed.is_empty(), "again: cargo run -p postrider-sim -- harm --seed {}", failed[0]);
}

#[test]
fn a_world_repeats_itself() {
    for seed in [1, 2, 3] {
        assert_eq!(harm(seed).to_string(), harm(seed).to_string());
    }
}

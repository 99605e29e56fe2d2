//! The worlds in which sick traffic could cost healthy traffic something.

use postrider_sim::harm;

#[test]
fn a_world_repeats_itself() {
    for seed in [1, 2, 3] {
        assert_eq!(harm(seed).to_string(), harm(seed).to_string());
    }
}

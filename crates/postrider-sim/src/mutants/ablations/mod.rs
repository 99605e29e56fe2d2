//! The rules that keep sick traffic from hurting healthy traffic, each with the smallest change that takes
//! it out. `docs/decisions/0029-what-each-rule-is-for.md` has what breaks without them.

mod health;
mod limit;
mod places;

use super::harm::RuleChange;
use super::tree::{MutantPatch, patch};

macro_rules! core {
    ($file:literal) => {
        concat!("crates/postrider-core/src/policy/", $file)
    };
}

macro_rules! dispatch {
    ($file:literal) => {
        concat!("crates/postrider-dispatch/src/", $file)
    };
}

macro_rules! lanes {
    ($file:literal) => {
        concat!("crates/postrider-dispatch/src/lanes/", $file)
    };
}

use {core, dispatch, lanes};

const fn rule(
    name: &'static str,
    rule: &'static str,
    patches: &'static [MutantPatch],
) -> RuleChange {
    RuleChange { name, rule, patches }
}

/// No rule is taken out, only chance is another: what breaks then shows how much of a count is chance.
const CHANCE: &[RuleChange] = &[rule(
    "chance",
    "no rule; only other random numbers, for comparison",
    &[patch(lanes!("mod.rs"), "random: JitterRng::new(seed),", "random: JitterRng::new(!seed),")],
)];

pub(super) fn ablations() -> impl Iterator<Item = &'static RuleChange> {
    [CHANCE, places::PLACES, health::HEALTH, limit::LIMIT].into_iter().flatten()
}

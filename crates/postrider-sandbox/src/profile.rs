//! Fault profiles: which request has which fault. The choice depends only on the seed, the correlation id, the target
//! and the number of the attempt (and, for storms, on the time since the start), so a run can be repeated.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::correlation::{mix, unit};
use super::fakes::FakeKind;
use super::fault::Fault;

/// Profiles by name, as TOML; a test reads all of them.
const BUILT_IN: [(&str, &str); 8] = [
    ("none", ""),
    ("mild", include_str!("profiles/mild.toml")),
    ("demo", include_str!("profiles/demo.toml")),
    ("storm", include_str!("profiles/storm.toml")),
    ("gone", include_str!("profiles/gone.toml")),
    ("slow", include_str!("profiles/slow.toml")),
    ("resets", include_str!("profiles/resets.toml")),
    ("chaos", include_str!("profiles/chaos.toml")),
];

/// The first rule that matches decides. Without a match the request is accepted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultProfile {
    #[serde(default, rename = "rule")]
    pub rules: Vec<FaultRule>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    pub fault: Fault,
    /// Share of what `per` counts, 0 to 1.
    #[serde(default = "whole")]
    pub share: f64,
    #[serde(default)]
    pub per: FaultScope,
    /// Only this many first attempts of each id; without it, all.
    #[serde(default)]
    pub attempts: Option<u32>,
    /// Only these receivers; empty means all.
    #[serde(default)]
    pub kinds: Vec<FakeKind>,
    /// Only receivers whose name contains this text; empty means all.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub window: Option<FaultWindow>,
}

/// Of what a rule takes its share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultScope {
    /// Each attempt is drawn on its own.
    #[default]
    Attempt,
    /// All attempts of an id have the fault, or none.
    Id,
    /// All requests to a target have the fault, or none.
    Target,
}

/// A repeated storm: active for `for_ms` out of every `every_ms`, first after `after_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultWindow {
    pub every_ms: u64,
    pub for_ms: u64,
    #[serde(default)]
    pub after_ms: u64,
}

/// What a profile looks at. The hashes already contain the seed.
#[derive(Debug, Clone, Copy)]
pub struct FaultInput<'a> {
    pub kind: FakeKind,
    /// Of the receiver.
    pub name: &'a str,
    pub id_hash: u64,
    pub target_hash: u64,
    /// Counted from 1.
    pub attempt: u32,
    pub since_start_ms: u64,
}

impl FaultProfile {
    /// A built-in name, or a TOML or JSON file.
    pub fn load(name_or_path: &str) -> anyhow::Result<Self> {
        if let Some(profile) = Self::built_in(name_or_path) {
            return Ok(profile);
        }
        let path = Path::new(name_or_path);
        let text = std::fs::read_to_string(path).with_context(|| {
            format!(
                "{name_or_path:?} is neither a fault profile ({}) nor a readable file",
                BUILT_IN.map(|(name, _)| name).join(", ")
            )
        })?;
        let parsed = if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json")) {
            serde_json::from_str(&text).map_err(anyhow::Error::from)
        } else {
            toml::from_str(&text).map_err(anyhow::Error::from)
        };
        parsed.with_context(|| format!("fault profile {name_or_path:?}"))
    }

    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        toml::from_str(text).ok()
    }

    pub fn fault_for(&self, input: &FaultInput<'_>) -> Fault {
        self.rules
            .iter()
            .enumerate()
            .find(|(index, rule)| rule.matches(*index, input))
            .map_or(Fault::Accept, |(_, rule)| rule.fault)
    }
}

impl FaultRule {
    fn matches(&self, index: usize, input: &FaultInput<'_>) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&input.kind))
            && input.name.contains(&self.name)
            && self.attempts.is_none_or(|max| input.attempt <= max)
            && self.window.is_none_or(|w| w.is_open(input.since_start_ms))
            && (self.share >= 1.0 || self.is_drawn(index, input))
    }

    fn is_drawn(&self, index: usize, input: &FaultInput<'_>) -> bool {
        let salt = mix(index as u64 + 1);
        let of = match self.per {
            FaultScope::Attempt => input.id_hash ^ mix(u64::from(input.attempt)),
            FaultScope::Id => input.id_hash,
            FaultScope::Target => input.target_hash,
        };
        unit(mix(of ^ salt)) < self.share
    }
}

impl FaultWindow {
    fn is_open(self, since_start_ms: u64) -> bool {
        since_start_ms
            .checked_sub(self.after_ms)
            .is_some_and(|t| t % self.every_ms.max(1) < self.for_ms)
    }
}

fn whole() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlation::hash;

    fn draw(id: u64, attempt: u32) -> FaultInput<'static> {
        FaultInput {
            kind: crate::fakes::http::ENTRY.kind,
            name: "shop-1",
            id_hash: hash(1, &id.to_be_bytes()),
            target_hash: hash(2, &(id % 100).to_be_bytes()),
            attempt,
            since_start_ms: 0,
        }
    }

    #[test]
    fn every_built_in_profile_is_valid() {
        for (name, _) in BUILT_IN {
            let profile = FaultProfile::built_in(name);
            assert!(profile.is_some(), "{name}");
            assert_eq!(profile.is_some_and(|p| p.rules.is_empty()), name == "none", "{name}");
        }
    }

    #[test]
    fn shares_are_kept_and_repeatable() {
        let profile: FaultProfile = toml::from_str("[[rule]]\nfault='503'\nshare=0.25").unwrap();
        let hits = || (0..8000).map(|i| profile.fault_for(&draw(i, 1))).collect::<Vec<_>>();
        let first = hits();
        assert_eq!(first, hits());
        let count = first.iter().filter(|f| **f != Fault::Accept).count();
        assert!((1_850..2_150).contains(&count), "{count}");
    }

    #[test]
    fn a_target_that_is_hit_is_hit_every_time() {
        let profile: FaultProfile =
            toml::from_str("[[rule]]\nfault='410'\nshare=0.3\nper='target'").unwrap();
        for id in 0..1000 {
            let now = profile.fault_for(&draw(id, 1));
            assert_eq!(now, profile.fault_for(&draw(id + 100, 4)));
        }
    }

    #[test]
    fn a_storm_opens_and_closes() {
        let window = FaultWindow { every_ms: 1000, for_ms: 300, after_ms: 500 };
        let open = [0, 499, 500, 799, 800, 1500].map(|t| window.is_open(t));
        assert_eq!(open, [false, false, true, true, false, true]);
    }

    #[test]
    fn later_attempts_are_spared_when_the_rule_says_so() {
        let profile: FaultProfile = toml::from_str("[[rule]]\nfault='429:1'\nattempts=2").unwrap();
        let seen = [1, 2, 3].map(|n| profile.fault_for(&draw(9, n)) == Fault::Accept);
        assert_eq!(seen, [false, false, true]);
    }

    #[test]
    fn a_rule_with_a_name_concerns_only_the_receivers_that_bear_it() {
        let profile: FaultProfile = toml::from_str("[[rule]]\nfault='503'\nname='shop-'").unwrap();
        let is_well = |name| profile.fault_for(&FaultInput { name, ..draw(1, 1) }) == Fault::Accept;
        assert_eq!(
            ["shop-1", "my-shop-2", "shop", "bank-1"].map(is_well),
            [false, false, true, true]
        );
    }
}

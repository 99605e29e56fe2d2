//! Where nothing depends on our load, fewer calls help nobody. So addresses that are slow cut no limit, and a
//! limit that was cut for another reason is soon restored.

use std::collections::HashMap;

use postrider_core::Gate;
use postrider_dispatch::lanes::LaneReport;

use crate::harm::bounds::BrokenBound;

pub(crate) const CUT_UNDONE: &str = "a cut that does not help is undone";
/// How long a limit may stay at half or less of what it was, while it is in use.
const CUT_MS: i64 = 20_000;
/// Where nothing was accepted for so long, there is nothing to be had from more calls.
const WORKS_MS: i64 = 5_000;

/// An origin where nothing depends on our load.
#[derive(Debug, Clone, Copy)]
pub(super) struct SteadyOrigin {
    pub origin: u32,
    /// An arrival whose lane is looked at.
    pub arrival: u32,
    /// Only some addresses are sick there, and none of them refuses calls.
    pub only_some: bool,
}

#[derive(Default)]
pub(super) struct LimitCuts(HashMap<u32, LimitSeen>);

#[derive(Default)]
struct LimitSeen {
    most: usize,
    /// Since when it is cut to half or less, how often that was seen, and how often it was in use then.
    cut_since: Option<i64>,
    looks: u32,
    in_use: u32,
}

impl LimitCuts {
    pub(super) fn look(
        &mut self,
        steady: SteadyOrigin,
        report: &LaneReport,
        accepted_at: Option<i64>,
        now: i64,
    ) -> Option<BrokenBound> {
        let verdict = report.gates.iter().find(|verdict| verdict.gate == Gate::Concurrency)?;
        let (origin, why) = (steady.origin, &verdict.detail);
        if steady.only_some && (why.contains("answers slowed") || why.contains("restored")) {
            let detail = format!("o{origin} at {now} ms: {why}");
            return Some(BrokenBound { bound: "slow addresses cut no limit", detail });
        }
        let seen = self.0.entry(origin).or_default();
        let limit = report.provider_limit;
        seen.most = seen.most.max(limit);
        let works = accepted_at.is_some_and(|at| now - at < WORKS_MS);
        if !works || limit * 2 > seen.most || !why.contains("cut because") {
            *seen = LimitSeen { most: seen.most, ..LimitSeen::default() };
            return None;
        }
        let since = *seen.cut_since.get_or_insert(now);
        seen.looks += 1;
        seen.in_use += u32::from(brisk_calls(why) * 2 >= limit);
        if now - since < CUT_MS || seen.in_use * 2 < seen.looks {
            return None;
        }
        let detail = format!("o{origin} from {since} to {now} ms: {why}; {} before", seen.most);
        Some(BrokenBound { bound: CUT_UNDONE, detail })
    }
}

/// Calls under way beside long ones, which the verdict begins with.
fn brisk_calls(verdict: &str) -> usize {
    verdict.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

//! The list of bugs. Each changes a few words; if both stores have the line, it is changed in both.

use super::tree::{MutantPatch, patch};

pub(super) struct SimMutant {
    pub(super) name: &'static str,
    pub(super) bug: &'static str,
    /// The stores with changed lines; the bug must be found over each of them.
    pub(super) stores: &'static [&'static str],
    pub(super) patches: &'static [MutantPatch],
}

pub(super) const MUTANTS: &[SimMutant] = &[
    SimMutant {
        name: "unfenced",
        bug: "settle without fencing",
        stores: &["memory", "embedded"],
        patches: &[
            patch(
                "crates/postrider-store/src/memory/queue.rs",
                "if row.lease.is_none_or(|lease| lease.token != token) {\n            return SettleResult::Fenced;",
                "if row.lease.is_none() && token == 0 {\n            return SettleResult::Fenced;",
            ),
            patch(
                "crates/postrider-store/src/embedded/index/mod.rs",
                "if lease.token != token || !matches!(lease.phase,",
                "if !matches!(lease.phase,",
            ),
        ],
    },
    SimMutant {
        name: "repeat",
        bug: "a repeated settlement is not recognised",
        stores: &["memory", "embedded"],
        patches: &[patch(
            "crates/postrider-store/src/settled_before.rs",
            "*place = token;",
            "*place = token + 1;",
        )],
    },
    SimMutant {
        name: "late",
        bug: "TTL not re-checked at send",
        stores: &["memory"],
        patches: &[patch(
            "crates/postrider-core/src/policy/decide.rs",
            "if ttl::is_over(rules.expires_at, now) {",
            "if now.0 < 0 && ttl::is_over(rules.expires_at, now) {",
        )],
    },
    SimMutant {
        name: "burned",
        bug: "attempt counted while the breaker is open",
        stores: &["memory"],
        patches: &[
            patch(
                "crates/postrider-dispatch/src/open_breaker.rs",
                "by_breaker && class.when_open != WhenOpen::Wait",
                "by_breaker && class.ttl_s < u32::MAX",
            ),
            patch(
                "crates/postrider-dispatch/src/attempt/mod.rs",
                "let decision = decision.unwrap_or_else(|| otherwise(&job.leased));",
                "let burned = serde_json::from_str::<postrider_core::AttemptRecord>(\n            \
                 r#\"{\"number\":1,\"at\":0,\"latency_ms\":0,\"outcome\":\"retry_backoff\",\
                 \"decision\":\"park\",\"counted\":true}\"#,\n        );\n        \
                 job.log.extend(burned.ok().filter(|_| decision.is_none()));\n        \
                 let decision = decision.unwrap_or_else(|| otherwise(&job.leased));",
            ),
        ],
    },
    SimMutant {
        name: "held",
        bug: "lease expiry ignored",
        stores: &["memory", "embedded"],
        patches: &[
            patch(
                "crates/postrider-store/src/memory/rows.rs",
                "let leased = self.lease.map(|lease| lease.until);",
                "let leased = self.lease.map(|_| Timestamp::MAX);",
            ),
            patch(
                "crates/postrider-store/src/embedded/index/mod.rs",
                "if until > now {\n                break;",
                "if until > now || now > 0 {\n                break;",
            ),
        ],
    },
    SimMutant {
        name: "forgetful",
        bug: "dedup window forgotten at restart",
        stores: &["memory", "embedded"],
        patches: &[
            patch(
                "crates/postrider-store/src/memory/rows.rs",
                "pub(super) fn forget_leases(&mut self, crashed: bool) {",
                "pub(super) fn forget_leases(&mut self, crashed: bool) {\n        self.dedup.clear();",
            ),
            patch(
                "crates/postrider-store/src/embedded/sql/dedup/list.rs",
                "self.open = keys.iter().map(|record| (record.key(), record.entry())).collect();",
                "self.open = keys.iter().take(0).map(|record| (record.key(), record.entry())).collect();",
            ),
        ],
    },
    SimMutant {
        name: "saving",
        bug: "one tenant's deficit never reset",
        stores: &["memory"],
        patches: &[
            patch(
                "crates/postrider-core/src/policy/fairness.rs",
                "            self.members.remove(tenant);\n            self.ring.pop_front();",
                "            if tenant.as_str() == \"t0\" {\n                member.granted = false;\n            \
                 } else {\n                self.members.remove(tenant);\n            }\n            \
                 self.ring.pop_front();",
            ),
            patch(
                "crates/postrider-core/src/policy/fairness.rs",
                "            member.lanes.push_back(lane);\n            return;",
                "            member.lanes.push_back(lane);\n            if !self.ring.contains(tenant) {\n                \
                 self.ring.push_back(tenant.clone());\n            }\n            return;",
            ),
        ],
    },
    SimMutant {
        name: "deaf",
        bug: "Retry-After applied to the message only",
        stores: &["memory"],
        patches: &[patch(
            "crates/postrider-dispatch/src/lanes/checks/retry_after.rs",
            "    own.pause.extend(until);\n",
            "",
        )],
    },
    SimMutant {
        name: "lavish",
        bug: "retry budget counted and ignored",
        stores: &["memory"],
        patches: &[patch(
            "crates/postrider-core/src/policy/budget.rs",
            "let granted = want.min(self.left(now));",
            "let granted = want.max(self.left(now).min(want));",
        )],
    },
];

//! Rules about who is to blame: votes, breakers, probes, sick addresses, retries.

use super::{RuleChange, core, dispatch, lanes, patch, rule};

pub(super) const HEALTH: &[RuleChange] = &[
    rule(
        "few-voters",
        "with few voters, 20 failed calls in a row mean down",
        &[patch(core!("tenant_health.rs"), "if few_all_bad {", "if few_all_bad && now.0 < 0 {")],
    ),
    rule(
        "voters-sure",
        "below 20 voters, only all bad means down",
        &[patch(
            core!("tenant_health.rs"),
            "const VOTERS_SURE: usize = 20;",
            "const VOTERS_SURE: usize = 8;",
        )],
    ),
    rule(
        "voters-down",
        "below eight voters, it takes 20 failed calls",
        &[patch(
            core!("tenant_health.rs"),
            "const VOTERS_DOWN: usize = 8;",
            "const VOTERS_DOWN: usize = 5;",
        )],
    ),
    rule(
        "tenant-breaker",
        "a tenant's breaker opens if 80 % of its addresses fail",
        &[patch(
            lanes!("checks/breaker.rs"),
            "let is_down = signal.is_failure() &&",
            "let is_down = now.0 < 0 && signal.is_failure() &&",
        )],
    ),
    rule(
        "degraded-throttle",
        "while degraded, calls are held to twice the successes",
        &[patch(
            lanes!("checks/breaker.rs"),
            "if own.breaker.is_probing() || own.health.condition(now) == Condition::Well {",
            "if now.0 > 0 || own.health.condition(now) == Condition::Well {",
        )],
    ),
    rule(
        "degraded-free",
        "while degraded, failures of addresses that are not sick cost no attempt",
        &[patch(
            lanes!("checks/breaker.rs"),
            "|| (signal.is_failure()\n",
            "|| (now.0 < 0 && signal.is_failure()\n",
        )],
    ),
    rule(
        "open-free",
        "failures while a breaker is open cost no attempt",
        &[patch(
            core!("probe_breaker.rs"),
            "self.is_probing() && (signal.is_failure() || is_storm)",
            "self.closed_at == Timestamp::MAX && (signal.is_failure() || is_storm)",
        )],
    ),
    rule(
        "retries-no-vote",
        "retries do not vote",
        &[patch(
            core!("tenant_health.rs"),
            "if !call.is_retry && !was_sick && !is_sick {",
            "if !was_sick && !is_sick {",
        )],
    ),
    rule(
        "sick-no-vote",
        "sick addresses do not vote",
        &[
            patch(
                core!("tenant_health.rs"),
                "if !call.is_retry && !was_sick && !is_sick {",
                "if !call.is_retry {",
            ),
            patch(core!("tenant_health.rs"), "self.votes.withdraw(call.target);", ""),
        ],
    ),
    rule(
        "good-votes-before",
        "good answers from before the first failure count",
        &[patch(
            lanes!("provider.rs"),
            "TenantHealth::with_voters(voters, room.share(number(tenant)))",
            "TenantHealth::with_voters(&RecentVoters::default(), room.share(number(tenant)))",
        )],
    ),
    rule(
        "others-since",
        "an address is judged beside how others fared since it began to fail",
        &[patch(
            core!("tenant_health.rs"),
            "count_others_since(call.target, since, now)",
            "count_others_since(call.target, Timestamp::default(), now)",
        )],
    ),
    rule(
        "votes-by-address",
        "an address has one vote, however many calls",
        &[patch(
            core!("votes.rs"),
            "let vote = Vote { slot: Self::slot(target),",
            "let vote = Vote { slot: Self::slot(target ^ now.0 as u64),",
        )],
    ),
    rule(
        "origin-down",
        "an origin is down for all if 80 % of its tenants find it down",
        &[patch(
            lanes!("checks/breaker.rs"),
            "&& gates.is_down_for_all(now)",
            "&& now.0 < 0\n            && gates.is_down_for_all(now)",
        )],
    ),
    rule(
        "openings",
        "five connections in a row that cannot be opened shut the origin",
        &[patch(
            lanes!("checks/breaker.rs"),
            "if unreachable && !gates.breaker.is_probing() {",
            "if now.0 < 0 && unreachable && !gates.breaker.is_probing() {",
        )],
    ),
    rule(
        "openings-once",
        "calls that wait for the same opening count once",
        &[patch(
            core!("openings.rs"),
            "if self.failed > 0 && began < self.last {",
            "if self.failed > 0 && began < self.last && now.0 < 0 {",
        )],
    ),
    rule(
        "probes-three",
        "three probes at once",
        &[patch(core!("probe_breaker.rs"), "const PROBES: usize = 3;", "const PROBES: usize = 1;")],
    ),
    rule(
        "probes-all",
        "probes of other lanes go on after the first has failed",
        &[patch(
            core!("probe_breaker.rs"),
            "(0, _) => Some(BreakerChange::Eased),",
            "(0, _) => Some(self.open(self.cause, now, random)),",
        )],
    ),
    rule(
        "probe-choice",
        "first attempts and other addresses are the probes",
        &[patch(
            dispatch!("leaser.rs"),
            "if permit.probes() { asked.max(PROBES_FROM) }",
            "if permit.probes() { asked.max(PROBES_FROM.min(1)) }",
        )],
    ),
    rule(
        "probe-timeout",
        "a probe without an answer after 10 s has failed",
        &[patch(
            core!("probe_breaker.rs"),
            "const PROBE_MAX: Duration = Duration::from_secs(10);",
            "const PROBE_MAX: Duration = Duration::from_secs(600);",
        )],
    ),
    rule(
        "open-longer",
        "a breaker stays open twice as long each time",
        &[patch(core!("probe_breaker.rs"), "self.openings.saturating_sub(1), random", "0, random")],
    ),
    rule(
        "recovery-ramp",
        "after it was down, an origin gets four calls, then more",
        &[patch(lanes!("checks/breaker.rs"), "gates.limit.recover(now);", "")],
    ),
    rule(
        "storm",
        "a retry storm opens the tenant's breaker",
        &[patch(
            lanes!("checks/breaker.rs"),
            "own.storm.count(signal, call.is_retry, now) &&",
            "own.storm.count(signal, call.is_retry, now) && now.0 < 0 &&",
        )],
    ),
    rule(
        "storm-most-work",
        "no storm while half of the addresses work",
        &[patch(lanes!("checks/breaker.rs"), " && !own.health.do_most_work(now);", ";")],
    ),
    rule(
        "retry-budget",
        "the retry budget",
        &[patch(
            core!("budget.rs"),
            "let granted = want.min(self.left(now));",
            "let granted = want.max(self.left(now).min(want));",
        )],
    ),
    rule(
        "budget-earned",
        "a retry that succeeds returns its part of the budget",
        &[patch(
            core!("budget.rs"),
            "self.earned.count(true, now);",
            "self.earned.count(now.0 < 0, now);",
        )],
    ),
    rule(
        "sick",
        "sick addresses are called rarely",
        &[patch(
            core!("sick_addresses.rs"),
            "const FAILURES_MIN: u32 = 3;",
            "const FAILURES_MIN: u32 = u32::MAX;",
        )],
    ),
    rule(
        "sick-others-work",
        "an address is sick only while others work",
        &[patch(
            core!("sick_addresses.rs"),
            "health.failures >= FAILURES_MIN && others_work;",
            "health.failures >= FAILURES_MIN && (others_work || now.0 > 0);",
        )],
    ),
    rule(
        "sick-in-a-row",
        "calls under way at the same time are one failure of an address",
        &[patch(
            core!("sick_addresses.rs"),
            "if began >= health.ended {",
            "if now.0 > 0 || began >= health.ended {",
        )],
    ),
    rule(
        "sick-longer",
        "a sick address rests twice as long each time",
        &[patch(core!("sick_addresses.rs"), "(rest * 2).min(REST_MAX)", "rest.min(REST_MAX)")],
    ),
    rule(
        "sick-one-call",
        "a sick address has one call at a time",
        &[
            patch(
                core!("sick_addresses.rs"),
                "if self.under_way.contains_key(&target) {",
                "if now.0 < 0 && self.under_way.contains_key(&target) {",
            ),
            patch(
                core!("address_turns.rs"),
                "is_sick && *taken + overdue > 0 {",
                "is_sick && *taken > usize::MAX - 1 {",
            ),
        ],
    ),
    rule(
        "spread",
        "those who were told the same time come back one after another",
        &[
            patch(
                core!("decide.rs"),
                "const RETRY_AFTER_SPREAD: f64 = 0.25;",
                "const RETRY_AFTER_SPREAD: f64 = 0.0;",
            ),
            patch(
                core!("address_turns.rs"),
                "const SPREAD: f64 = 0.25;",
                "const SPREAD: f64 = 0.0;",
            ),
        ],
    ),
    rule(
        "hang-age",
        "while degraded, failures of calls that began long ago do not count",
        &[patch(
            core!("tenant_health.rs"),
            "!was_sick && now.since(call.began) < OLD_AFTER {",
            "!was_sick {",
        )],
    ),
    rule(
        "sick-calls",
        "an origin gets eight calls per second to sick addresses, unless they succeed",
        &[patch(core!("sick_calls.rs"), "const PER_S: u32 = 8;", "const PER_S: u32 = 1_000;")],
    ),
    rule(
        "served",
        "probes go to addresses that worked before",
        &[patch(
            dispatch!("leaser.rs"),
            "is_served: served.contains(probe.hash.number()),",
            "is_served: now.0 < 0 && served.contains(probe.hash.number()),",
        )],
    ),
    rule(
        "probes-others",
        "probes go to other addresses than those of the last two rounds",
        &[patch(
            dispatch!("leaser.rs"),
            "is_tried: tried.contains(&probe.hash.number()),",
            "is_tried: now.0 < 0 && tried.contains(&probe.hash.number()),",
        )],
    ),
    rule(
        "sick-busy",
        "a sick address that asks for less rests longer",
        &[patch(
            core!("tenant_health.rs"),
            "if call.signal == Signal::Busy && self",
            "if now.0 < 0 && call.signal == Signal::Busy && self",
        )],
    ),
];

//! The rules that keep sick traffic from hurting healthy traffic, each with the smallest change that takes
//! it out. `docs/decisions/0029-what-each-rule-is-for.md` has what breaks without them.

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

const fn rule(
    name: &'static str,
    rule: &'static str,
    patches: &'static [MutantPatch],
) -> RuleChange {
    RuleChange { name, rule, patches }
}

/// Those whose use is in doubt come first.
pub(super) const ABLATIONS: &[RuleChange] = &[
    rule(
        "chance",
        "no rule; only other random numbers, for comparison",
        &[patch(
            lanes!("mod.rs"),
            "random: JitterRng::new(seed),",
            "random: JitterRng::new(!seed),",
        )],
    ),
    rule(
        "prehistory",
        "what went well just before the first trouble counts",
        &[patch(
            lanes!("provider.rs"),
            "in recent.counts(now) {",
            "in recent.counts(now).take(0) {",
        )],
    ),
    rule(
        "ask-rarely",
        "the more lanes wait for a place of ours, the more rarely each asks",
        &[patch(lanes!("global.rs"), ".clamp(1.0, 50.0)", ".clamp(1.0, 1.0)")],
    ),
    rule(
        "crowds",
        "a tenant with more long calls than are left to the others waits",
        &[patch(core!("call_places.rs"), "own > all.saturating_sub(used)", "used == usize::MAX")],
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
        "pace",
        "the learned pace",
        &[patch(
            core!("pace.rs"),
            "if !complains || now < self.left_alone_until {",
            "if !complains || now.0 > 0 {",
        )],
    ),
    rule(
        "pace-of-one",
        "a 429 for a single address starts no pace",
        &[patch(core!("pace.rs"), "of_one && self.learned.is_none()", "of_one && now.0 < 0")],
    ),
    rule(
        "pace-in-vain",
        "a pace that does not reduce the refusals is dropped",
        &[patch(
            core!("pace.rs"),
            "if self.vain >= VAIN_MAX {",
            "if now.0 < 0 && self.vain >= VAIN_MAX {",
        )],
    ),
    rule(
        "pace-spare",
        "far below the learned pace, complaints are not about it",
        &[patch(core!("pace.rs"), "asked < before * SPARE &&", "asked < 0.0 &&")],
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
        "probes-three",
        "three probes at once",
        &[patch(core!("probe_breaker.rs"), "const PROBES: usize = 3;", "const PROBES: usize = 1;")],
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
        &[patch(
            core!("probe_breaker.rs"),
            "self.openings.saturating_sub(1).min(10)",
            "self.openings.saturating_sub(1).min(0)",
        )],
    ),
    rule(
        "recovery-ramp",
        "after it was down, an origin gets four calls, then more",
        &[patch(lanes!("checks/breaker.rs"), "gates.limit.recover(now);", "")],
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
        "few-voters",
        "with few voters, 20 failed calls in a row mean down",
        &[patch(core!("tenant_health.rs"), "if few_all_bad {", "if few_all_bad && now.0 < 0 {")],
    ),
    rule(
        "voters-sure",
        "below ten voters, only all bad means down",
        &[patch(
            core!("tenant_health.rs"),
            "const VOTERS_SURE: usize = 10;",
            "const VOTERS_SURE: usize = 5;",
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
            "if own.breaker.is_probing() || own.health.condition(now) != Condition::Degraded {",
            "if now.0 > 0 || own.health.condition(now) != Condition::Degraded {",
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
        "votes-by-address",
        "an address has one vote, however many calls",
        &[patch(
            core!("votes.rs"),
            "let vote = Vote { slot: target % SLOTS,",
            "let vote = Vote { slot: (target ^ now.0 as u64) % SLOTS,",
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
                lanes!("mod.rs"),
                "addresses.is_sick(target)) && *taken > 0 {",
                "addresses.is_sick(target)) && *taken > usize::MAX - 1 {",
            ),
        ],
    ),
    rule(
        "sick-heals",
        "two successes heal an address, not one",
        &[patch(
            core!("sick_addresses.rs"),
            "const SUCCESSES_MIN: u32 = 2;",
            "const SUCCESSES_MIN: u32 = 1;",
        )],
    ),
    rule(
        "slow",
        "slow addresses get long places from the start",
        &[
            patch(
                core!("sick_addresses.rs"),
                "const LONG_MIN: u32 = 2;",
                "const LONG_MIN: u32 = u32::MAX;",
            ),
            patch(
                lanes!("provider.rs"),
                "const SLOW_FROM: usize = 2;",
                "const SLOW_FROM: usize = usize::MAX;",
            ),
        ],
    ),
    rule(
        "slow-under-way",
        "an address with two long calls under way is slow",
        &[patch(
            lanes!("provider.rs"),
            "const SLOW_FROM: usize = 2;",
            "const SLOW_FROM: usize = usize::MAX;",
        )],
    ),
    rule(
        "slow-before",
        "an address whose calls were long twice is slow",
        &[patch(
            core!("sick_addresses.rs"),
            "const LONG_MIN: u32 = 2;",
            "const LONG_MIN: u32 = u32::MAX;",
        )],
    ),
    rule(
        "slow-share",
        "a slow address gets one call for every eight free long places",
        &[patch(
            lanes!("mod.rs"),
            "let is_much = !is_alone &&",
            "let is_much = now.0 < 0 && !is_alone &&",
        )],
    ),
    rule(
        "slow-alone",
        "a tenant's only address may take all long places",
        &[patch(
            lanes!("mod.rs"),
            "let is_much = !is_alone &&",
            "let is_much = (!is_alone || now.0 > 0) &&",
        )],
    ),
    rule(
        "long-places",
        "long calls have places of their own",
        &[patch(
            core!("call_places.rs"),
            "if ceiling < CEILING_MIN {",
            "if ceiling < CEILING_MIN.max(usize::MAX) {",
        )],
    ),
    rule(
        "unproven",
        "an origin that did not answer lately gets four calls",
        &[patch(core!("call_limit.rs"), "limit.min(UNPROVEN)", "limit.max(UNPROVEN.min(1))")],
    ),
    rule(
        "unproven-apart",
        "calls to such an origin count as calls of unknown length",
        &[
            patch(lanes!("provider.rs"), "slow || !self.limit.is_proven(now);", "slow;"),
            patch(
                lanes!("checks/mod.rs"),
                "if !self.gates.limit.is_proven(self.now) {",
                "if self.now.0 < 0 && !self.gates.limit.is_proven(self.now) {",
            ),
        ],
    ),
    rule(
        "apart-half",
        "calls of unknown length get half of our places",
        &[patch(core!("global_places.rs"), "(all / 2).max(1)", "all.max(1)")],
    ),
    rule(
        "apart-tenant",
        "a tenant gets no more of these than are free",
        &[patch(core!("global_places.rs"), "places.room(1)", "places.room(1_000_000)")],
    ),
    rule(
        "overdue-apart",
        "a call that turns out to be long counts as one of unknown length",
        &[
            patch(
                lanes!("checks/mod.rs"),
                ".for_each(|tenant| global.becomes_apart(tenant))",
                ".take(0).for_each(|tenant| global.becomes_apart(tenant))",
            ),
            patch(
                lanes!("mod.rs"),
                "ticket.is_apart || was_long;",
                "ticket.is_apart || (was_long && now.0 < 0);",
            ),
        ],
    ),
    rule(
        "by-occupancy",
        "a tenant's calls to an origin are eight times what is free at most",
        &[patch(
            core!("global_places.rs"),
            "const ORDINARY_SHARE: usize = 8;",
            "const ORDINARY_SHARE: usize = 1_000_000;",
        )],
    ),
    rule(
        "reserve-all",
        "a tenth of our places is kept for urgent work",
        &[patch(
            core!("global_places.rs"),
            "const RESERVED_PERCENT: usize = 10;",
            "const RESERVED_PERCENT: usize = 0;",
        )],
    ),
    rule(
        "reserve-origin",
        "a tenth of an origin's places is kept for urgent work",
        &[patch(
            core!("fairness.rs"),
            "const RESERVED_PERCENT: usize = 10;",
            "const RESERVED_PERCENT: usize = 0;",
        )],
    ),
    rule(
        "latency-cut",
        "queueing cuts the limit",
        &[patch(
            core!("call_limit.rs"),
            "if ignored || self.latency.queueing < QUEUEING_COHORTS {",
            "if now.0 > 0 || ignored || self.latency.queueing < QUEUEING_COHORTS {",
        )],
    ),
    rule(
        "latency-twice",
        "two samples in a row have to show queueing",
        &[patch(
            core!("call_limit.rs"),
            "const QUEUEING_COHORTS: u32 = 2;",
            "const QUEUEING_COHORTS: u32 = 1;",
        )],
    ),
    rule(
        "latency-floor",
        "latency alone never cuts the limit below 8",
        &[patch(
            core!("call_limit.rs"),
            "const FLOOR_LATENCY: f64 = 8.0;",
            "const FLOOR_LATENCY: f64 = 1.0;",
        )],
    ),
    rule(
        "latency-pays",
        "a cut because of latency must pay",
        &[patch(
            core!("call_limit.rs"),
            "if measure > trial.measure * PAID_LATENCY {",
            "if now.0 < 0 && measure > trial.measure * PAID_LATENCY {",
        )],
    ),
    rule(
        "refusal-cut",
        "refusals cut the limit",
        &[patch(
            core!("call_limit.rs"),
            "if signs.is_refused(now) {",
            "if now.0 < 0 && signs.is_refused(now) {",
        )],
    ),
    rule(
        "refusal-addresses",
        "three addresses have to refuse",
        &[patch(
            core!("limit_signs.rs"),
            "const REFUSING_MIN: usize = 3;",
            "const REFUSING_MIN: usize = 1;",
        )],
    ),
    rule(
        "refusal-tenants",
        "two tenants have to be refused where two are active",
        &[patch(
            core!("limit_signs.rs"),
            "|| !self.tenants.are_two(now))",
            "|| !self.tenants.are_two(now)\n                || now.0 > 0)",
        )],
    ),
    rule(
        "refusal-pays",
        "a cut because of refusals must pay",
        &[patch(
            core!("call_limit.rs"),
            "if well_at_once < trial.measure * PAID_WELL {",
            "if now.0 < 0 && well_at_once < trial.measure * PAID_WELL {",
        )],
    ),
    rule(
        "refusal-patience",
        "more is tried ever more rarely where it was refused again",
        &[patch(
            core!("limit_growth.rs"),
            "(self.patience * 2.0).min(PATIENCE_MAX)",
            "1.0_f64.min(PATIENCE_MAX)",
        )],
    ),
    rule(
        "sample-share",
        "an address counts twice at most in a sample",
        &[patch(core!("cohort.rs"), "if same >= most ||", "if same >= most.max(SIZE) ||")],
    ),
    rule(
        "half-used",
        "the limit grows only while half of it is used",
        &[patch(
            core!("call_limit.rs"),
            "if !cut && half_used &&",
            "if !cut && (half_used || now.0 > 0) &&",
        )],
    ),
    rule(
        "address-pause",
        "a 429 with Retry-After pauses its address",
        &[patch(
            core!("sick_addresses.rs"),
            "health.until = health.until.max(until);",
            "health.until = health.until.max(until.min(now));",
        )],
    ),
    rule(
        "own-wish",
        "an address that repeats its 429 while others work speaks for itself",
        &[patch(
            lanes!("checks/retry_after.rs"),
            "if wish == Wish::OfAddress && of_target {",
            "if now.0 < 0 && wish == Wish::OfAddress && of_target {",
        )],
    ),
    rule(
        "tenant-pause",
        "Retry-After for host or credential pauses the tenant",
        &[patch(
            lanes!("checks/retry_after.rs"),
            "own.pause.extend(until);",
            "own.pause.extend(until.min(now));",
        )],
    ),
    rule(
        "widen",
        "three addresses that ask for a pause pause the tenant",
        &[patch(
            core!("throttle.rs"),
            "waits.clone().count() < WIDEN_AT || !many",
            "waits.clone().count() < WIDEN_AT || !many || now.0 > 0",
        )],
    ),
    rule(
        "widen-share",
        "and only if half of the first attempts get it",
        &[patch(
            core!("throttle.rs"),
            "const WIDEN_SHARE: f64 = 0.5;",
            "const WIDEN_SHARE: f64 = 0.0;",
        )],
    ),
    rule(
        "pause-for-most",
        "pauses of half of the tenants pause the origin",
        &[patch(
            lanes!("checks/retry_after.rs"),
            "if gates.is_paused_for_most(now) {",
            "if now.0 < 0 && gates.is_paused_for_most(now) {",
        )],
    ),
];

//! Rules about how much an origin takes: its limit, its pace, and the pauses that it asks for.

use super::{RuleChange, core, lanes, patch, rule};

pub(super) const LIMIT: &[RuleChange] = &[
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
        "latency-thrice",
        "three samples in a row have to show queueing",
        &[patch(
            core!("call_limit.rs"),
            "const QUEUEING_COHORTS: u32 = 3;",
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
            "} else if signs.is_refused(is_doubling, now) {",
            "} else if now.0 < 0 && signs.is_refused(is_doubling, now) {",
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
            "|| !self.tenants.are_two(ACTIVE, now))",
            "|| !self.tenants.are_two(ACTIVE, now)\n                || now.0 > 0)",
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
        "refusal-levels",
        "calls that are refused as often while few are under way are not too many",
        &[patch(
            core!("call_limit.rs"),
            "signs.levels.depend_on_calls(few, now) != Some(false);",
            "now.0 > 0 || signs.levels.depend_on_calls(few, now) != Some(false);",
        )],
    ),
    rule(
        "same-addresses",
        "addresses that refuse each time speak for themselves",
        &[patch(
            core!("refusing_addresses.rs"),
            "self.served < expected * SERVED_SHARE",
            "self.served < -expected",
        )],
    ),
    rule(
        "refusal-known",
        "refusals cut the limit once it is known how many calls go well at once",
        &[patch(
            core!("call_limit.rs"),
            "if !known && !is_late {",
            "if now.0 < 0 && !known && !is_late {",
        )],
    ),
    rule(
        "refusal-hold",
        "the limit does not grow while calls are refused",
        &[
            patch(
                core!("call_limit.rs"),
                "&& !self.is_slowed(now)\n            && !self.is_refused(now)\n",
                "&& !self.is_slowed(now)\n",
            ),
            patch(
                core!("call_limit.rs"),
                "|| self.is_refused(now);\n        if !cut",
                "|| now.0 < 0 && self.is_refused(now);\n        if !cut",
            ),
        ],
    ),
    rule(
        "doubling-sure",
        "while the limit doubles, two thirds of the calls have to be refused",
        &[patch(
            core!("limit_signs.rs"),
            "&& (is_sure || !is_doubling)",
            "&& (is_sure || !is_doubling || now.0 > 0)",
        )],
    ),
    rule(
        "doubling-some",
        "while the limit doubles, calls that are refused make room, too, if they are less than half",
        &[patch(core!("call_limit.rs"), "if well || self.refusals.are_of_some() {", "if well {")],
    ),
    rule(
        "refusal-used",
        "what goes well at once is a share of what is used of the limit",
        &[patch(
            core!("limit_signs.rs"),
            "(self.under_way / self.ended).min(limit)",
            "(self.under_way / self.ended).max(limit).min(limit)",
        )],
    ),
    rule(
        "wish-before",
        "an address speaks for itself where others worked before, if none was called lately",
        &[patch(
            core!("tenant_health.rs"),
            "do_work(others) || others.voters == 0 && self",
            "do_work(others) || now.0 < 0 && others.voters == 0 && self",
        )],
    ),
    rule(
        "tenant-share",
        "a tenant that is refused far more often than the others speaks for itself",
        &[patch(
            core!("refused_tenants.rs"),
            "const OTHERS_SHARE: f32 = 0.2;",
            "const OTHERS_SHARE: f32 = 0.0;",
        )],
    ),
    rule(
        "some-well",
        "where nothing succeeds, refusals do not cut the limit",
        &[patch(
            core!("call_limit.rs"),
            "|| !signs.spent.has_well() {",
            "|| now.0 < 0 && !signs.spent.has_well() {",
        )],
    ),
    rule(
        "small-behind",
        "long calls count like the others where few calls are allowed and some of them refused",
        &[patch(
            core!("call_limit.rs"),
            "if self.is_small() {",
            "if self.is_small() && now.0 < 0 {",
        )],
    ),
    rule(
        "overdue-levels",
        "calls that turn out to be long are still under way where others are refused",
        &[patch(
            lanes!("provider.rs"),
            "(self.places.brisk(), self.places.not_known_long());",
            "(self.places.brisk(), self.places.brisk());",
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
        "pace",
        "the learned pace",
        &[patch(
            core!("pace.rs"),
            "if !complains || now < self.left_alone_until {",
            "if !complains || now.0 > 0 {",
        )],
    ),
    rule(
        "pace-overload",
        "a pace is also learned from 503, where most addresses get it",
        &[patch(
            core!("pace.rs"),
            "let complains = signal.is_too_much();",
            "let complains = signal == Signal::Busy;",
        )],
    ),
    rule(
        "pace-most-work",
        "and not while most addresses work",
        &[patch(
            lanes!("checks/pace.rs"),
            "|| own.pace.per_s().is_none() && own.health.do_most_work(now));",
            ");",
        )],
    ),
    rule(
        "pace-of-one",
        "a 429 for a single address starts no pace",
        &[patch(core!("pace.rs"), "!of_one || self.is_lasting(tally, now)", "true")],
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
        "pace-lately",
        "whether most addresses work is judged by the last ten seconds",
        &[patch(
            core!("tenant_health.rs"),
            "if lately.voters >= VOTERS_MIN { lately }",
            "if now.0 < 0 && lately.voters >= VOTERS_MIN { lately }",
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
        "short-guess",
        "the first of these pauses is a second, each after it twice as long",
        &[patch(
            core!("throttle.rs"),
            "const GUESSED_MIN: Duration = Duration::from_secs(1);",
            "const GUESSED_MIN: Duration = Duration::from_secs(3_600);",
        )],
    ),
    rule(
        "pace-rest",
        "complaints after a pause are counted anew",
        &[patch(
            core!("pace.rs"),
            "if self.learned.is_some() {\n            self.resting_until",
            "if until.0 < 0 {\n            self.resting_until",
        )],
    ),
    rule(
        "pace-asked",
        "where a pace is learned, an address speaks for itself after five refusals, not two",
        &[patch(
            core!("sick_addresses.rs"),
            "const ASKED_MIN_PACED: u32 = 5;",
            "const ASKED_MIN_PACED: u32 = 2;",
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
        "widen-sure",
        "and with fewer than ten only if all do",
        &[patch(core!("throttle.rs"), "const CALLS_SURE: u32 = 10;", "const CALLS_SURE: u32 = 0;")],
    ),
    rule(
        "pace-lasts",
        "complaints about single addresses begin a pace only if they go on",
        &[patch(
            core!("pace.rs"),
            "now.since(self.suspected_at) >= WITHIN\n",
            "now.since(self.suspected_at) >= WITHIN * 0\n",
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

//! Old rules, each of which once hurt healthy traffic. Put back, each must be found.

use super::harm::RuleChange;
use super::tree::patch;

pub(super) const HARM_MUTANTS: &[RuleChange] = &[
    RuleChange {
        name: "mean",
        rule: "the mean latency in place of the fastest tenth",
        patches: &[
            patch(
                "crates/postrider-core/src/policy/cohort.rs",
                "counted >= ENOUGH && self.well < tenth",
                "counted >= ENOUGH && self.well < counted",
            ),
            patch(
                "crates/postrider-core/src/policy/cohort.rs",
                "self.fastest_ms[tenth - 1]",
                "self.fastest_ms[0]",
            ),
            patch(
                "crates/postrider-core/src/policy/cohort.rs",
                "if at < TENTH {\n            self.fastest_ms[at..].rotate_right(1);\n            \
                 self.fastest_ms[at] = latency_ms;",
                "if at <= TENTH {\n            let before = if self.well == 1 { 0 } else { self.fastest_ms[0] };\n            \
                 let well = self.well as u32;\n            \
                 self.fastest_ms[0] = ((before * (well - 1)).saturating_add(latency_ms)) / well;",
            ),
        ],
    },
    RuleChange {
        name: "no-undo",
        rule: "a cut that did not pay stays",
        patches: &[
            patch(
                "crates/postrider-core/src/policy/call_limit.rs",
                "if measure > trial.measure * PAID_LATENCY {",
                "if now.0 < 0 && measure > trial.measure * PAID_LATENCY {",
            ),
            patch(
                "crates/postrider-core/src/policy/call_limit.rs",
                "if well_at_once < trial.measure * PAID_WELL {",
                "if now.0 < 0 && well_at_once < trial.measure * PAID_WELL {",
            ),
        ],
    },
    RuleChange {
        name: "retries-vote",
        rule: "every call votes, retries and sick addresses too",
        patches: &[
            patch(
                "crates/postrider-core/src/policy/tenant_health.rs",
                "if !call.is_retry && !was_sick && !is_sick {",
                "if failed {",
            ),
            patch(
                "crates/postrider-core/src/policy/tenant_health.rs",
                "self.votes.withdraw(call.target);",
                "",
            ),
            patch(
                "crates/postrider-core/src/policy/votes.rs",
                "let vote = Vote { slot: Self::slot(target),",
                "let vote = Vote { slot: Self::slot(target ^ now.0 as u64),",
            ),
        ],
    },
    RuleChange {
        name: "longest-due-probe",
        rule: "the delivery that is due for the longest time as the probe",
        patches: &[
            patch(
                "crates/postrider-dispatch/src/leaser.rs",
                "if permit.probes() { asked.max(PROBES_FROM) }",
                "if permit.probes() { asked.max(PROBES_FROM.min(1)) }",
            ),
            patch(
                "crates/postrider-core/src/policy/probe_breaker.rs",
                "const PROBES: usize = 3;",
                "const PROBES: usize = 1;",
            ),
        ],
    },
    RuleChange {
        name: "no-reserve",
        rule: "no places kept for urgent work",
        patches: &[
            patch(
                "crates/postrider-core/src/policy/global_places.rs",
                "const RESERVED_PERCENT: usize = 10;",
                "const RESERVED_PERCENT: usize = 0;",
            ),
            patch(
                "crates/postrider-core/src/policy/fairness.rs",
                "const RESERVED_PERCENT: usize = 10;",
                "const RESERVED_PERCENT: usize = 0;",
            ),
        ],
    },
    RuleChange {
        name: "one-queue",
        rule: "sick and slow addresses in one queue with the others",
        patches: &[patch(
            "crates/postrider-dispatch/src/attempt/mod.rs",
            "rests.next().flatten().map(|until| put_off(until, now))",
            "rests.next().flatten().filter(|_| now.0 < 0).map(|until| put_off(until, now))",
        )],
    },
    RuleChange {
        name: "local-failures",
        rule: "our own shortage as the provider's failure",
        patches: &[
            patch(
                "crates/postrider-core/src/policy/signal.rs",
                "            | Outcome::Local\n",
                "",
            ),
            patch(
                "crates/postrider-core/src/policy/signal.rs",
                "Outcome::Ambiguous => Self::Failing,",
                "Outcome::Ambiguous | Outcome::Local => Self::Failing,",
            ),
            patch(
                "crates/postrider-core/src/policy/decide.rs",
                "Outcome::Local => Decision::Park { after: LOCAL_PAUSE.mul_f64(0.25 + 0.75 * random) },",
                "Outcome::Local => retry(by_formula(), LOCAL_PAUSE),",
            ),
            patch(
                "crates/postrider-dispatch/src/attempt/batch.rs",
                "if finished.report.outcome == Outcome::Local {",
                "if finished.report.outcome == Outcome::Local && now.0 < 0 {",
            ),
        ],
    },
];

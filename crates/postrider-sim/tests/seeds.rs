//! Runs a thousand seeds, each twice, and every seed that once found a bug.

use std::process::Command;

use postrider_sim::{REGRESSIONS, SeedRunner, SimRun, StoreKind, run};

fn failure_report(run: &SimRun) -> String {
    let Some(failure) = &run.failure else { return String::new() };
    let trace: String = failure.trace.iter().map(|event| format!("{event}\n")).collect();
    let store = run.store.name();
    format!(
        "{trace}\nseed {} over {store} broke: {}\n  {}\nagain: cargo run -p postrider-sim -- --seed {} --store {store} --trace",
        run.seed, failure.invariant, failure.detail, run.seed
    )
}

/// Every seed over the store in memory, where a run takes a few milliseconds; every fourth also over the
/// embedded store, which takes several times as long.
#[test]
fn a_thousand_seeds_break_no_invariant_and_repeat_themselves() {
    let runner = SeedRunner {
        from: 1,
        seeds: 1_000,
        stores: vec![StoreKind::Memory, StoreKind::Embedded],
        embedded_every: 4,
        twice: true,
        progress: false,
        threads: None,
    };
    let summary = runner.run();
    if let Some(run) = &summary.failed {
        panic!("{}", failure_report(run));
    }
    assert_eq!(summary.runs, 1_250, "no run was left out");
    assert!(summary.starts > summary.runs, "processes crashed and restarted");
}

#[test]
fn seeds_that_once_found_a_bug_find_none() {
    for (seed, found) in REGRESSIONS {
        for store in [StoreKind::Memory, StoreKind::Embedded] {
            let run = run(*seed, store, false);
            assert!(run.failure.is_none(), "{found}\n{}", failure_report(&run));
        }
    }
}

#[test]
fn another_process_gets_the_same_trace() {
    for (seed, store) in [(3, StoreKind::Memory), (4, StoreKind::Embedded)] {
        let here = run(seed, store, false).hash;
        let output = Command::new(env!("CARGO_BIN_EXE_postrider-sim"))
            .args(["--seed", &seed.to_string(), "--store", store.name()])
            .output()
            .expect("the simulator runs");
        let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output_text.contains(&format!("{here:016x}")),
            "{here:016x} here, there:\n{output_text}"
        );
    }
}

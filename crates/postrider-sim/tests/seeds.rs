//! What every change has to survive: a thousand seeds, each twice, and every seed that once found a bug.

use std::process::Command;

use postrider_sim::{Fleet, REGRESSIONS, Run, StoreKind, run};

fn tell(run: &Run) -> String {
    let Some(failure) = &run.failure else { return String::new() };
    let trace: String = failure.trace.iter().map(|event| format!("{event}\n")).collect();
    let store = run.store.name();
    format!(
        "{trace}\nseed {} over {store} broke: {}\n  {}\nagain: cargo run -p postrider-sim -- --seed {} --store {store} --trace",
        run.seed, failure.invariant, failure.detail, run.seed
    )
}

/// Every seed over the model, where a run costs a few milliseconds; every fourth over the embedded store
/// too, where it costs a few times as much and differs by what the disk does.
#[test]
fn a_thousand_seeds_break_no_promise_and_repeat_themselves() {
    let fleet = Fleet {
        from: 1,
        seeds: 1_000,
        stores: vec![StoreKind::Memory, StoreKind::Embedded],
        embedded_every: 4,
        twice: true,
        progress: false,
        threads: None,
    };
    let summary = fleet.run();
    if let Some(run) = &summary.failed {
        panic!("{}", tell(run));
    }
    assert_eq!(summary.runs, 1_250, "none was left out");
    assert!(summary.lives > summary.runs, "processes died and came back");
}

#[test]
fn seeds_that_once_found_a_bug_find_none() {
    for (seed, found) in REGRESSIONS {
        for store in [StoreKind::Memory, StoreKind::Embedded] {
            let run = run(*seed, store, false);
            assert!(run.failure.is_none(), "{found}\n{}", tell(&run));
        }
    }
}

#[test]
fn another_process_sees_the_same() {
    for (seed, store) in [(3, StoreKind::Memory), (4, StoreKind::Embedded)] {
        let here = run(seed, store, false).hash;
        let output = Command::new(env!("CARGO_BIN_EXE_postrider-sim"))
            .args(["--seed", &seed.to_string(), "--store", store.name()])
            .output()
            .expect("the simulator runs");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(told.contains(&format!("{here:016x}")), "{here:016x} here, there:\n{told}");
    }
}

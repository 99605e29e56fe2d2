//! Every gate, state and dead-letter reason has a snapshot; a new one fails here until it has one.

use std::path::Path;

use postrider_core::{DeadReason, Gate, State};

fn snapshots() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explain/snapshots");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|e| e == "snap"))
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect()
}

#[test]
fn every_gate_state_and_reason_was_seen_live() {
    let all = snapshots();
    let is_shown = |text: &str| all.iter().any(|snapshot| snapshot.contains(text));
    // Retries are put off one by one; the lane goes on with first attempts.
    assert!(is_shown("\"waits_for\": \"its lane's retry budget; "));
    for gate in Gate::ALL.iter().filter(|gate| **gate != Gate::RetryBudget) {
        let held = format!("\"waits_for\": \"its lane; {}: ", gate.name());
        assert!(is_shown(&held), "no snapshot of a delivery that waits for {gate:?}");
    }
    for state in State::ALL {
        assert!(is_shown(&format!("\"state\": \"{state}\"")), "no snapshot of the state {state}");
    }
    for reason in DeadReason::ALL {
        assert!(is_shown(&format!("\"reason\": \"{reason}\"")), "no snapshot of {reason}");
    }
}

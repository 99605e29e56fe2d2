//! Breaks one promise at a time in a copy of the tree and requires that a test fails. Then runs the
//! simulation's own mutants.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

struct Mutant {
    promise: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// The test targets that must fail.
    test: &'static [&'static str],
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        promise: "no 202 before the disk has confirmed",
        file: "crates/postrider-store/src/embedded/sql/schema.rs",
        from: "\"synchronous\", \"FULL\").map_err(sql)?;\n    conn.pragma_update(None, \"wal_autocheckpoint\"",
        to: "\"synchronous\", \"OFF\").map_err(sql)?;\n    conn.pragma_update(None, \"wal_autocheckpoint\"",
        test: &["--test", "crash", "durability"],
    },
    Mutant {
        promise: "a settlement with an old token is refused",
        file: "crates/postrider-store/src/embedded/index/mod.rs",
        from: "if lease.token != token || !matches!(lease.phase,",
        to: "if !matches!(lease.phase,",
        test: &["--test", "conformance"],
    },
    Mutant {
        promise: "a repeat under the same key never reaches the queue",
        file: "crates/postrider-store/src/embedded/sql/accept.rs",
        from: "if let Some(dedup) = &new.dedup\n            && let",
        to: "if let Some(dedup) = &new.dedup\n            && now.0 < 0\n            && let",
        test: &["--test", "conformance"],
    },
    Mutant {
        promise: "nothing past its TTL is handed to a channel",
        file: "crates/postrider-core/src/policy/decide.rs",
        from: "if ttl::is_over(rules.expires_at, now) {",
        to: "if now.0 < 0 && ttl::is_over(rules.expires_at, now) {",
        test: &["--test", "it"],
    },
    Mutant {
        promise: "nothing past its TTL is written to a socket",
        file: "crates/postrider-channels/src/deliver.rs",
        from: "if now >= attempt.expires_at {",
        to: "if now.0 < 0 && now >= attempt.expires_at {",
        test: &["--test", "conformance"],
    },
    Mutant {
        promise: "no retry is planned past the TTL",
        file: "crates/postrider-core/src/policy/decide.rs",
        from: "ttl::is_over(rules.expires_at, now + after)",
        to: "now.0 < 0 && ttl::is_over(rules.expires_at, now + after)",
        test: &["--test", "decide", "--test", "promises"],
    },
];

pub(super) fn run(_args: &[&str]) -> Result<()> {
    let root = shell::root();
    let copy = root.join("target/mutants/tree");
    if copy.exists() {
        std::fs::remove_dir_all(&copy)?;
    }
    let (from, to) = (root.display().to_string(), copy.display().to_string());
    shell::step(&root, &["git", "clone", "--quiet", "--no-hardlinks", &from, &to])?;
    let mut survivors = Vec::new();
    for mutant in MUTANTS {
        match caught_by(mutant, &copy)? {
            Some(tests) => eprintln!("caught: {:<52} by {tests}", mutant.promise),
            None => survivors.push(mutant.promise),
        }
    }
    ensure!(
        survivors.is_empty(),
        "no test failed for these broken promises: {}",
        survivors.join("; ")
    );
    shell::step(&root, &["cargo", "run", "-p", "postrider-sim", "--", "--mutate", "all"])
        .context("the simulation missed a bug")?;
    eprintln!("\nProven: each of {} broken promises makes a test fail.", MUTANTS.len());
    Ok(())
}

/// The tests that failed with the mutant; none if it survived.
fn caught_by(mutant: &Mutant, copy: &Path) -> Result<Option<String>> {
    let path = copy.join(mutant.file);
    let whole = std::fs::read_to_string(&path).with_context(|| mutant.file.to_owned())?;
    ensure!(
        whole.matches(mutant.from).count() == 1,
        "{} no longer has: {}",
        mutant.file,
        mutant.from
    );
    std::fs::write(&path, whole.replace(mutant.from, mutant.to))?;
    // The whole workspace, so that dependencies are built once, with the same features.
    let line: Vec<&str> = ["cargo", "test", "--workspace", "--no-fail-fast"]
        .iter()
        .chain(mutant.test)
        .copied()
        .collect();
    let mut command = shell::command(&line)?;
    let output = command
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", copy.join("../build"))
        .env("RUST_BACKTRACE", "0")
        .output()?;
    std::fs::write(&path, whole)?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed: Vec<&str> =
        said.lines().filter_map(|l| l.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect();
    if failed.is_empty() {
        bail!(
            "{} does not build with its mutant:\n{}",
            mutant.file,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(Some(failed.join(", ")))
}

//! `cargo xtask conformance`: runs the suite that every store passes, and prints which engine keeps which promise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, bail, ensure};

use crate::{shell, tools};

const SUITE: [&str; 9] = [
    "cargo",
    "test",
    "-p",
    "postrider-store",
    "--features",
    "postgres,redis",
    "--test",
    "conformance",
    "--no-fail-fast",
];

pub(crate) fn run() -> Result<()> {
    tools::provide(tools::FOR_TESTS)?;
    shell::heading(&SUITE.join(" "));
    let mut command = shell::command(&SUITE)?;
    let done =
        command.current_dir(shell::root()).stderr(std::process::Stdio::inherit()).output()?;
    let results = KeptPromises::parse(&String::from_utf8_lossy(&done.stdout));
    ensure!(!results.0.is_empty(), "the suite did not run");
    print!("{}", results.table());
    if !done.status.success() {
        bail!("some promises are not kept");
    }
    Ok(())
}

/// By promise and engine, whether it is kept.
struct KeptPromises(BTreeMap<String, BTreeMap<String, bool>>);

impl KeptPromises {
    /// From lines such as `test postgres::a_key_is_free_again … ok`.
    fn parse(output: &str) -> Self {
        let mut results: BTreeMap<String, BTreeMap<String, bool>> = BTreeMap::new();
        for line in output.lines() {
            let Some((name, result)) =
                line.strip_prefix("test ").and_then(|l| l.split_once(" ... "))
            else {
                continue;
            };
            if let Some((engine, promise)) = name.split_once("::") {
                let engines = results.entry(promise.to_owned()).or_default();
                engines.insert(engine.to_owned(), result == "ok");
            }
        }
        Self(results)
    }

    fn table(&self) -> String {
        let engines: BTreeSet<_> = self.0.values().flat_map(BTreeMap::keys).collect();
        let names: Vec<_> = engines.iter().map(|engine| engine.as_str()).collect();
        let mut text =
            format!("| promise | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
        for (promise, results) in &self.0 {
            let cells: Vec<_> = names
                .iter()
                .map(|engine| match results.get(*engine) {
                    Some(true) => "kept",
                    Some(false) => "BROKEN",
                    None => "not run",
                })
                .collect();
            // Writing to a text cannot fail.
            let _ = writeln!(text, "| {} | {} |", promise.replace('_', " "), cells.join(" | "));
        }
        let count = |engine: &str| {
            self.0.values().filter(|results| results.get(engine) == Some(&true)).count()
        };
        let sums: Vec<_> =
            names.iter().map(|engine| format!("{} of {}", count(engine), self.0.len())).collect();
        let _ = writeln!(text, "| **kept** | {} |", sums.join(" | "));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_what_is_broken_and_what_did_not_run() {
        let output = "running 3 tests\ntest memory::ids_grow ... ok\ntest memory::keys_survive ... ok\n\
                      test postgres::ids_grow ... FAILED\ntest result: FAILED.";
        let table = KeptPromises::parse(output).table();
        assert!(table.contains("| ids grow | kept | BROKEN |"), "{table}");
        assert!(table.contains("| keys survive | kept | not run |"), "{table}");
        assert!(table.contains("| **kept** | 2 of 2 | 0 of 2 |"), "{table}");
    }
}

//! `cargo xtask channels`: writes `docs/channels.md` from the rows of the providers' tables, the mistakes and
//! the proofs, each with the test that covers it. `--check` writes nothing and fails where the page is not what
//! would be written, or where a row has no test that the runner knows. Runs no test but the rows' own.

mod check;
mod page;
mod runner;
#[path = "../../../crates/postrider-core/tests/rows/format.rs"]
mod sheets;
mod source;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::shell;
use runner::Tests;
use source::Source;

const PAGE: &str = "docs/channels.md";

/// Asks the real table for every row, and the rows for every row of the table.
const ROWS: [&str; 8] =
    ["cargo", "test", "-p", "postrider-core", "--test", "rows", "--", "--quiet"];

pub(crate) fn run(args: &[&str]) -> Result<()> {
    match args {
        [] => write(),
        ["--check"] => check(),
        _ => bail!("found {args:?}, allowed is nothing or --check"),
    }
}

pub(crate) fn check() -> Result<()> {
    let root = shell::root();
    shell::heading("cargo xtask channels --check");
    let (source, tests) = read(&root)?;
    shell::step(&root, &ROWS)?;
    let written = std::fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    is_up_to_date(&written, &page::print(&source, &tests))?;
    eprintln!("-- {} rows, {}", source.row_count(), PAGE);
    Ok(())
}

fn is_up_to_date(written: &str, expected: &str) -> Result<()> {
    ensure!(
        written == expected,
        "{PAGE} is not what its rows and tests say: run `cargo xtask channels` and commit it"
    );
    Ok(())
}

fn write() -> Result<()> {
    let root = shell::root();
    let (source, tests) = read(&root)?;
    std::fs::write(root.join(PAGE), page::print(&source, &tests)).context(PAGE)?;
    eprintln!("{PAGE}: {} rows", source.row_count());
    Ok(())
}

/// What is to be printed, and the tests that there are; fails where the one names what the other lacks.
fn read(root: &Path) -> Result<(Source, Tests)> {
    let source = Source::read(root)?;
    let tests = runner::list(root)?;
    let problems = check::problems(&source, &tests);
    ensure!(
        problems.is_empty(),
        "rows without a test that holds them:\n  {}",
        problems.join("\n  ")
    );
    Ok((source, tests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_not_written_anew_is_refused() {
        assert!(is_up_to_date("| 410 | gone |", "| 410 | gone |").is_ok());
        let error = is_up_to_date("| 410 | gone |", "| 410 | retry |").unwrap_err().to_string();
        assert!(error.contains("run `cargo xtask channels`"), "{error}");
    }

    #[test]
    fn every_sheet_of_ours_can_be_read() {
        let source = Source::read(&shell::root()).unwrap();
        assert!(source.row_count() > 300, "{}", source.row_count());
    }
}

//! `cargo xtask channels`: writes `docs/channels.md` from the sheets of answers, the mistakes and the proofs, each
//! with the tests that cover it. The conformance suite writes the last part of the page, the matrix of promises.
//! `--check` writes nothing; it fails if the page is out of date, or if a row names no test that the runner knows.
//! Runs no test except the rows' own and the one that writes the matrix.

mod check;
mod page;
mod runner;
#[path = "../../../crates/postrider-channels/sheets.rs"]
#[expect(dead_code, reason = "what serves only the examples is for the test of the rows")]
mod sheets;
mod source;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::shell;
use runner::TestList;
use source::PageSource;

const PAGE: &str = "docs/channels.md";

/// Checks every row's examples against the built-in table.
const ROWS: [&str; 8] =
    ["cargo", "test", "-p", "postrider-channels", "--test", "rows", "--", "--quiet"];

/// Writes the matrix of promises.
const MATRIX: [&str; 9] = [
    "env",
    "POSTRIDER_WRITE_DOCS=1",
    "cargo",
    "test",
    "-p",
    "postrider-channels",
    "--test=conformance",
    "--",
    "the_page_about_conformance",
];

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
    is_up_to_date(&written, &(page::print(&source, &tests) + page::matrix(&written)))?;
    eprintln!("-- {} rows, {}", source.row_count(), PAGE);
    Ok(())
}

fn is_up_to_date(written: &str, expected: &str) -> Result<()> {
    ensure!(written == expected, "{PAGE} is out of date: run `cargo xtask channels` and commit it");
    Ok(())
}

fn write() -> Result<()> {
    let root = shell::root();
    shell::step(&root, &MATRIX)?;
    let (source, tests) = read(&root)?;
    let written = std::fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let page = page::print(&source, &tests) + page::matrix(&written);
    std::fs::write(root.join(PAGE), page).context(PAGE)?;
    eprintln!("{PAGE}: {} rows", source.row_count());
    Ok(())
}

/// The content of the page and the list of all tests. Fails if the content names a test that is not in the list.
fn read(root: &Path) -> Result<(PageSource, TestList)> {
    let source = PageSource::read(root)?;
    let tests = runner::list(root)?;
    let problems = check::problems(&source, &tests);
    ensure!(
        problems.is_empty(),
        "rows without a test that covers them:\n  {}",
        problems.join("\n  ")
    );
    Ok((source, tests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_out_of_date_is_refused() {
        assert!(is_up_to_date("| 410 | gone |", "| 410 | gone |").is_ok());
        let error = is_up_to_date("| 410 | gone |", "| 410 | retry |").unwrap_err().to_string();
        assert!(error.contains("run `cargo xtask channels`"), "{error}");
    }

    #[test]
    fn a_wrong_row_is_named_by_its_file_and_number() {
        let error = |row: &str| {
            let first = "[[row]]\nstatus = 200\noutcome = \"accepted\"\nmeans = \"x\"";
            let text =
                format!("title = \"x\"\nservice = \"x\"\n{first}\n[[row]]\nmeans = \"x\"\n{row}");
            sheets::parse(Path::new("x/answers.toml"), &text).unwrap_err()
        };
        let place = "x/answers.toml: row 2";
        assert_eq!(
            error("status = 700\noutcome = \"gone\""),
            format!(
                "{place} (700): status: found 700, allowed is a number 100…599 or a range such as \
                 \"500-599\""
            )
        );
        for (row, why) in [
            ("status = 410", "(410): has a status, but no outcome"),
            ("outcome = \"gone\"", "(): has an outcome, but no status"),
            ("status = 410\noutcome = \"gone\"\ngives = \"gone\"", "(410): gives: allowed without"),
            ("answer = \"410\"", "(): has neither status and outcome nor gives"),
            ("gives = \"gone\"", "(): has neither status nor answer nor examples"),
            ("status = 410\noutcome = \"shrug\"", "(410): outcome: found \"shrug\", allowed is"),
        ] {
            let found = error(row);
            assert!(found.starts_with(&format!("{place} {why}")), "{found}");
        }
        let unknown = error("status = 410\noutcome = \"gone\"\nwhy = 1");
        assert!(unknown.starts_with("x/answers.toml: ") && unknown.contains("`why`"), "{unknown}");
    }

    #[test]
    fn every_sheet_of_ours_can_be_read() {
        let source = PageSource::read(&shell::root()).unwrap();
        assert!(source.row_count() > 300, "{}", source.row_count());
    }
}

//! `cargo xtask deny`: checks the dependencies. Not part of the tests, because a newly found
//! vulnerability changes the result without a change of ours.

use anyhow::{Context, Result};

use crate::shell;

const CHECK: [&str; 7] =
    ["cargo", "deny", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"];

pub(crate) fn run() -> Result<()> {
    let root = shell::root();
    if !shell::exists("cargo-deny") {
        shell::step(&root, &["cargo", "install", "--locked", "cargo-deny"])
            .context(
                "cargo-deny is missing and cannot be installed; `cargo xtask supply` checks licences, bans \
                 and sources without it and without network, but no known vulnerabilities",
            )?;
    }
    shell::step(&root, &CHECK)?;
    if !can_fetch_advisories(&root)? {
        eprintln!(
            "\nLicences, bans and sources are fine. Known vulnerabilities were NOT checked: the \
             advisory database cannot be reached."
        );
        return Ok(());
    }
    shell::step(&root, &["cargo", "deny", "check", "--disable-fetch", "advisories"])
}

fn can_fetch_advisories(root: &std::path::Path) -> Result<bool> {
    shell::heading("cargo deny fetch db");
    let mut fetch = shell::command(&["cargo", "deny", "fetch", "db"])?;
    Ok(shell::run(fetch.current_dir(root)).is_ok())
}

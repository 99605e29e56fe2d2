//! The package for Node and browsers, `sdk/js`: runs its tests against the binary that `cargo test` built.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::shell;

pub(crate) fn test() -> Result<()> {
    let folder = shell::root().join("sdk/js");
    shell::step(&folder, &["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"])?;
    shell::heading("npm test, in sdk/js");
    let started = Instant::now();
    let mut npm = shell::command(&["npm", "test"])?;
    npm.current_dir(&folder).env("POSTRIDER_BIN", binary());
    shell::run(&mut npm).context("npm test, in sdk/js")?;
    eprintln!("-- {}", shell::in_words(started.elapsed()));
    Ok(())
}

fn binary() -> PathBuf {
    // Cargo runs in the workspace's folder, also for a relative name.
    let named = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    shell::root().join(named).join("debug/postrider")
}

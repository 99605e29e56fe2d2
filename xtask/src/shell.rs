//! Runs commands and shows their output. Never hides output or failures.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Prints a heading and runs a command line in `folder`.
pub(crate) fn step(folder: &Path, line: &[&str]) -> Result<()> {
    heading(&line.join(" "));
    let started = Instant::now();
    let mut command = command(line)?;
    run(command.current_dir(folder)).with_context(|| line.join(" "))?;
    eprintln!("-- {}", in_words(started.elapsed()));
    Ok(())
}

/// The standard output of a command line in `folder`; its errors are shown.
pub(crate) fn output(folder: &Path, line: &[&str]) -> Result<String> {
    let mut command = command(line)?;
    command.current_dir(folder).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| line.join(" "))?;
    if !output.status.success() {
        bail!("{} ended with {}", line.join(" "), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn heading(text: &str) {
    eprintln!("\n== {text}");
}

/// A command from the parts of a command line.
pub(crate) fn command(line: &[&str]) -> Result<Command> {
    let [program, args @ ..] = line else { bail!("an empty command line") };
    // Cargo sets `CARGO` to its own path; nested calls use the same cargo.
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(if *program == "cargo" { &cargo } else { *program });
    command.args(args);
    Ok(command)
}

pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    if !status.success() {
        bail!("ended with {status}");
    }
    Ok(())
}

/// Whether a program of that name can be found.
pub(crate) fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

pub(crate) fn in_words(time: Duration) -> String {
    let secs = time.as_secs();
    if secs < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} min {} s", secs / 60, secs % 60)
    }
}

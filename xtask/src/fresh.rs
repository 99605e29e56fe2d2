//! `cargo xtask fresh`: clones the repository into an empty folder and runs the README's first commands
//! there, with nothing built before.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::shell;

pub(crate) fn run() -> Result<()> {
    let folder = EmptyFolder::new()?;
    let clone = folder.0.join("postrider");
    let (from, to) = (text(&shell::root())?, text(&clone)?);
    shell::step(&folder.0, &["git", "clone", "--no-hardlinks", "--quiet", &from, &to])?;
    let readme = std::fs::read_to_string(clone.join("README.md")).context("README.md")?;
    let commands = first_commands(&readme);
    ensure!(!commands.is_empty(), "the README's first `sh` block has no commands");
    for line in commands {
        let line = with_exit(&line);
        shell::heading(&line);
        let started = Instant::now();
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = shell::command(&words)?;
        command.current_dir(&clone).env_remove("CARGO_TARGET_DIR");
        shell::run(&mut command).with_context(|| format!("on a fresh clone: {line}"))?;
        eprintln!("-- {}", shell::in_words(started.elapsed()));
    }
    eprintln!("\nThe README works on a fresh clone.");
    Ok(())
}

/// The commands of the first `sh` block, without comments and prompts.
fn first_commands(readme: &str) -> Vec<String> {
    let block = readme.lines().skip_while(|line| !line.starts_with("```sh")).skip(1);
    block
        .take_while(|line| !line.starts_with("```"))
        .map(|line| line.trim_start_matches("$ ").split(" #").next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter(|line| !line.starts_with("git clone") && !line.starts_with("cd "))
        .map(str::to_owned)
        .collect()
}

/// Adds `--exit` to the demo, so that it ends by itself.
fn with_exit(line: &str) -> String {
    if line.ends_with(" demo") { format!("{line} --exit") } else { line.to_owned() }
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().context("a path that is not text")?.to_owned())
}

/// An empty folder, removed on drop.
struct EmptyFolder(PathBuf);

impl EmptyFolder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("postrider-fresh-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for EmptyFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("could not remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_the_first_block_are_found() {
        let readme = "# P\n\n```sh\n$ git clone x\ncd x\ncargo run -- demo   # watch\n# no\n\ncargo xtask test\n```\n```sh\nrm\n```";
        assert_eq!(first_commands(readme), ["cargo run -- demo", "cargo xtask test"]);
        assert_eq!(with_exit("cargo run -- demo"), "cargo run -- demo --exit");
        assert_eq!(with_exit("cargo xtask test"), "cargo xtask test");
    }

    #[test]
    fn our_own_readme_starts_with_its_two_commands() {
        let readme = std::fs::read_to_string(shell::root().join("README.md")).unwrap();
        let commands = first_commands(&readme);
        assert_eq!(commands.len(), 2, "{commands:?}");
        assert!(commands[0].ends_with(" demo"), "{commands:?}");
        assert_eq!(commands[1], "cargo xtask test");
    }
}

//! Gets what tests and proofs need and a fresh machine lacks. Never lets a test be skipped for the
//! want of a tool: what cannot be had is an error.

use anyhow::{Result, bail};

use crate::shell;

/// A program that a test calls, the Debian package that has it, and what it is for.
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    pub(crate) purpose: &'static str,
}

/// What `cargo xtask test` calls beside cargo itself.
pub(crate) const FOR_TESTS: &[Tool] = &[
    Tool { program: "cc", package: "gcc", purpose: "SQLite and the cryptography are C" },
    Tool {
        program: "strace",
        package: "strace",
        purpose: "shows that the disk has a message before its 202 leaves",
    },
    Tool {
        program: "python3",
        package: "python3-venv",
        purpose: "other people's mail servers, clients and verifiers are held against ours",
    },
    Tool { program: "perl", package: "perl", purpose: "swaks is held against our mail server" },
    Tool {
        program: "npm",
        package: "npm",
        purpose: "other clients of APNs and Web Push are held against our fakes, and run on node",
    },
];

/// Cargo's own parts: the component by its program.
const COMPONENTS: [(&str, &str); 2] = [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];

pub(crate) fn provide(tools: &[Tool]) -> Result<()> {
    for (program, component) in COMPONENTS {
        if !shell::exists(program) {
            shell::step(&shell::root(), &["rustup", "component", "add", component])?;
        }
    }
    let missing: Vec<&Tool> = tools.iter().filter(|tool| !shell::exists(tool.program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // One failure to refresh the lists (a dead mirror, say) is no reason not to try.
    let root = shell::root();
    let packages = missing.iter().map(|tool| tool.package);
    let install: Vec<&str> = ["apt-get", "install", "-y", "--no-install-recommends"]
        .into_iter()
        .chain(packages)
        .collect();
    let tried = shell::step(&root, &["apt-get", "update"])
        .and_then(|()| shell::step(&root, &install))
        .or_else(|_| shell::step(&root, &install));
    let still: Vec<String> = missing
        .iter()
        .filter(|tool| !shell::exists(tool.program))
        .map(|tool| {
            let Tool { program, package, purpose } = tool;
            format!("  {program} ({purpose}); on Debian and Ubuntu: sudo apt-get install {package}")
        })
        .collect();
    if !still.is_empty() {
        let why = tried.err().map_or(String::new(), |error| format!(" ({error:#})"));
        bail!("please install, then run this again{why}:\n{}", still.join("\n"));
    }
    Ok(())
}

//! Installs the tools that tests and proofs need. Never skips a test: a tool that cannot be installed is
//! an error.

use anyhow::{Result, bail};

use crate::shell;

/// A program that a test calls, its Debian package, and its purpose.
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    pub(crate) purpose: &'static str,
}

/// Programs that `cargo xtask test` calls besides cargo.
pub(crate) const FOR_TESTS: &[Tool] = &[
    Tool { program: "cc", package: "gcc", purpose: "SQLite and the cryptography are C" },
    Tool {
        program: "strace",
        package: "strace",
        purpose: "shows that a message is on disk before its 202 is sent",
    },
    Tool {
        program: "python3",
        package: "python3-venv",
        purpose: "tests against independent mail servers, clients and verifiers",
    },
    Tool {
        program: "pg_ctlcluster",
        package: "postgresql",
        purpose: "a real server for the tests of the PostgreSQL engine",
    },
    Tool {
        program: "redis-server",
        package: "redis-server",
        purpose: "real servers for the tests of the Redis engine",
    },
    Tool { program: "perl", package: "perl", purpose: "tests our mail server with swaks" },
    Tool {
        program: "npm",
        package: "npm",
        purpose: "tests our package for Node, and our fakes with independent APNs and Web Push clients",
    },
    Tool {
        program: "promtool",
        package: "prometheus",
        purpose: "checks the metrics, the alert rules and their tests",
    },
    Tool { program: "chromium", package: "chromium", purpose: "tests our pages in a real browser" },
];

/// Components of the Rust toolchain, by program.
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
    // Tries to install even if the package lists cannot be refreshed.
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
        bail!("please install these tools and run this again{why}:\n{}", still.join("\n"));
    }
    Ok(())
}

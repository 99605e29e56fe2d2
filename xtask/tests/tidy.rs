//! What the compiler cannot refuse: the core stays pure, every file says what it is, and none grows
//! out of hand.

use std::fs;
use std::path::{Path, PathBuf};

const MAX_LINES: usize = 500;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("a folder's entry").path()) {
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Every Rust file of every crate, sources and tests.
fn all_files() -> Vec<PathBuf> {
    let root = workspace();
    let crates = fs::read_dir(root.join("crates")).expect("crates/");
    let mut roots: Vec<_> = crates.map(|c| c.expect("a crate").path()).collect();
    roots.push(root.join("xtask"));
    let folders = ["src", "tests", "benches", "examples"];
    roots.iter().flat_map(|r| folders.map(|f| r.join(f))).flat_map(|f| rust_files(&f)).collect()
}

fn short(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}

#[test]
fn the_core_names_no_clock_no_runtime_no_engine_and_no_transport() {
    // What `clippy.toml` forbids as calls is forbidden here as words.
    const FORBIDDEN: [&str; 8] = [
        "SystemTime",
        "Instant::now",
        "tokio",
        "rusqlite",
        "hyper",
        "std::fs",
        "std::env",
        "rand::",
    ];
    let mut wrong = Vec::new();
    for path in rust_files(&workspace().join("crates/postrider-core/src")) {
        let text = fs::read_to_string(&path).expect("a source file");
        for (number, line) in text.lines().enumerate() {
            for word in FORBIDDEN.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{}:{}: {word}", short(&path), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "the core is pure:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let silent: Vec<_> = all_files()
        .into_iter()
        .filter(|path| !fs::read_to_string(path).expect("a source file").starts_with("//! "))
        .map(|path| short(&path))
        .collect();
    assert!(silent.is_empty(), "no module docs (`//! …`) on top of:\n{}", silent.join("\n"));
}

#[test]
fn no_source_file_grows_past_a_second_noun() {
    let long: Vec<_> = all_files()
        .into_iter()
        .filter(|path| path.components().any(|part| part.as_os_str() == "src"))
        .map(|path| (fs::read_to_string(&path).expect("a source file").lines().count(), path))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .map(|(lines, path)| format!("{}: {lines} lines", short(&path)))
        .collect();
    assert!(long.is_empty(), "longer than {MAX_LINES} lines; split:\n{}", long.join("\n"));
}

#[test]
fn crates_depend_only_on_whom_they_may() {
    let allowed = [
        ("postrider-core", &[][..]),
        ("postrider-store", &["postrider-core"][..]),
        ("postrider-channels", &["postrider-core"][..]),
        ("postrider-dispatch", &["postrider-core"][..]),
        ("postrider-sim", &["postrider-core", "postrider-store", "postrider-dispatch"][..]),
    ];
    for (name, may) in allowed {
        let manifest = workspace().join("crates").join(name).join("Cargo.toml");
        let text = fs::read_to_string(manifest).expect("a manifest");
        // Development dependencies may cross: a conformance suite is shared that way.
        let parts = text.split("\n[").filter(|part| part.starts_with("dependencies]"));
        for line in parts.flat_map(str::lines).filter(|line| line.starts_with("postrider")) {
            let on = line.split(['.', ' ', '=']).next().unwrap_or_default();
            assert!(may.contains(&on), "{name} may not depend on {on}");
        }
    }
}

#[test]
fn every_outcome_and_every_reason_has_its_page() {
    let folder = workspace().join("docs/outcomes");
    let outcomes = [
        "accepted",
        "retry_backoff",
        "retry_after",
        "gone",
        "drop_message",
        "config",
        "resign_once",
        "reconnect",
        "ambiguous",
        "expired",
        "hold",
    ];
    let reasons = postrider_core::DeadReason::ALL.iter().map(|reason| format!("dead_{reason}"));
    for name in outcomes.map(str::to_owned).into_iter().chain(reasons) {
        let page = folder.join(format!("{name}.md"));
        let text = fs::read_to_string(&page).unwrap_or_default();
        for part in ["## What it means", "## What Postrider does", "## What you can do"] {
            assert!(text.contains(part), "docs/outcomes/{name}.md lacks {part:?}");
        }
    }
}

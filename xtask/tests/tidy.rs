//! Checks what the compiler cannot: the core is pure, type names are unique, files and lines are short,
//! links resolve.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const MAX_LINES: usize = 500;
const MAX_PROSE_CHARS: usize = 120;

/// Type names that may be defined more than once, each with its reason.
const ARGUED_DOUBLES: [(&str, &str); 0] = [];

/// Type names that are still defined more than once. The list only gets shorter.
const KNOWN_DOUBLES: &[&str] = &[];

/// The list of channels.
const CHANNEL_REGISTRY: &str = "crates/postrider-channels/src/lib.rs";

/// Files that may name nearly all channels, each with its reason.
const CHANNEL_LISTS: &[(&str, &str)] = &[
    (CHANNEL_REGISTRY, "the list itself"),
    ("crates/postrider-sandbox/src/demo/cases.rs", "the demo shows one delivery per channel"),
];

/// Pages that `cargo xtask channels` writes.
const GENERATED_PAGES: [&str; 1] = ["docs/channels.md"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

/// Folders whose files others wrote, or a build.
const NOT_OURS: [&str; 4] =
    ["sdk/js/node_modules", "sdk/js/dist", "sdk/js/build", "crates/postrider/src/dashboard/vendor"];

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("a folder's entry").path()) {
        if NOT_OURS.iter().any(|folder| path.ends_with(folder)) {
            continue;
        }
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files_below(folder).into_iter().filter(|path| has_extension(path, "rs")).collect()
}

/// Every text file of the repository: sources, sheets, manifests and pages.
fn text_files() -> Vec<PathBuf> {
    let root = workspace();
    let folders = ["crates", "xtask", "docs", "sdk"];
    let mut files: Vec<_> = folders.iter().flat_map(|f| files_below(&root.join(f))).collect();
    let top = fs::read_dir(&root).expect("the workspace");
    files.extend(top.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file()));
    let texts = ["rs", "md", "toml", "js", "mjs", "ts", "css", "html", "py", "sh", "snap"];
    files.retain(|path| texts.iter().any(|text| has_extension(path, text)));
    files
}

fn pages() -> Vec<PathBuf> {
    text_files().into_iter().filter(|path| has_extension(path, "md")).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", short(path)))
}

/// The lines of a page outside of code blocks, with their numbers.
fn lines_outside_code(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push((index + 1, line));
        }
    }
    lines
}

/// The targets of the Markdown links in a line.
fn link_targets(line: &str) -> Vec<&str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
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
        let text = read(&path);
        for (number, line) in text.lines().enumerate() {
            for word in FORBIDDEN.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{}:{}: {word}", short(&path), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "the core is pure:\n{}", wrong.join("\n"));
}

#[test]
fn the_core_and_the_dispatcher_name_no_provider() {
    const PROVIDERS: [&str; 16] = [
        "apns", "apple", "autopush", "discord", "fcm", "firebase", "google", "mozilla", "ntfy",
        "sendgrid", "ses", "slack", "teams", "telegram", "twilio", "wns",
    ];
    let mut wrong = Vec::new();
    for folder in ["crates/postrider-core/src", "crates/postrider-dispatch/src"] {
        for path in rust_files(&workspace().join(folder)) {
            for (number, line) in read(&path).lines().enumerate() {
                let line = line.to_ascii_lowercase();
                let mut words = line.split(|c: char| !c.is_ascii_alphanumeric());
                if let Some(word) = words.find(|word| PROVIDERS.contains(word)) {
                    wrong.push(format!("{}:{}: {word}", short(&path), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "only channels name providers:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let silent: Vec<_> = all_files()
        .into_iter()
        .filter(|path| !read(path).starts_with("//! "))
        .map(|path| short(&path))
        .collect();
    assert!(silent.is_empty(), "no module docs (`//! …`) on top of:\n{}", silent.join("\n"));
}

#[test]
fn no_source_file_grows_past_a_second_noun() {
    let long: Vec<_> = all_files()
        .into_iter()
        .filter(|path| path.components().any(|part| part.as_os_str() == "src"))
        .map(|path| (read(&path).lines().count(), path))
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
        ("postrider-sandbox", &["postrider-core", "postrider-channels"][..]),
        (
            "postrider-testkit",
            &["postrider", "postrider-channels", "postrider-core", "postrider-store"][..],
        ),
        // The simulated providers answer by the channels' rows.
        (
            "postrider-sim",
            &[
                "postrider-core",
                "postrider-store",
                "postrider-dispatch",
                "postrider-channels",
                "postrider-testkit",
            ][..],
        ),
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
        "switch_account",
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

/// The build lists these files, so `cargo fmt` does not find them.
#[test]
fn the_conformance_columns_of_channels_are_formatted() {
    let sources = rust_files(&workspace().join("crates/postrider-channels/src"));
    let columns: Vec<_> =
        sources.into_iter().filter(|path| path.ends_with("tests/conformance.rs")).collect();
    let mut rustfmt = std::process::Command::new("rustfmt");
    rustfmt.args(["--check", "--edition", "2024"]).args(&columns).current_dir(workspace());
    assert!(columns.is_empty() || rustfmt.status().expect("rustfmt").success());
}

/// The name in a line that defines a type; an alias counts only outside of traits and impls.
fn defined_type(line: &str) -> Option<&str> {
    let indented = line.starts_with(' ');
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    let defines = ["struct", "enum", "trait", "union"].contains(&keyword);
    if !defines && (keyword != "type" || indented) {
        return None;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    rest.starts_with(|c: char| c.is_ascii_uppercase()).then(|| &rest[..end])
}

#[test]
fn a_type_name_is_defined_once_in_the_workspace() {
    let sources: Vec<_> = all_files()
        .into_iter()
        .filter(|path| path.components().any(|part| part.as_os_str() == "src"))
        .map(|path| (short(&path), read(&path)))
        .collect();
    let mut definitions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, text) in &sources {
        for name in text.lines().filter_map(defined_type) {
            definitions.entry(name).or_default().push(file);
        }
    }
    definitions.retain(|_, files| files.len() > 1);
    let argued: BTreeSet<_> = ARGUED_DOUBLES.iter().map(|(name, _)| *name).collect();
    let known: BTreeSet<_> = KNOWN_DOUBLES.iter().copied().collect();
    let new: Vec<_> = definitions
        .iter()
        .filter(|(name, _)| !argued.contains(*name) && !known.contains(*name))
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect();
    assert!(new.is_empty(), "one name, one meaning; defined more than once:\n{}", new.join("\n"));
    let unique = |name: &&&str| !definitions.contains_key(**name);
    let stale: Vec<_> = argued.union(&known).filter(unique).copied().collect();
    assert!(stale.is_empty(), "unique by now; remove from the lists in tidy.rs: {stale:?}");
}

#[test]
fn definitions_of_types_are_recognised() {
    assert_eq!(defined_type("pub(crate) struct Lane<'a> {"), Some("Lane"));
    assert_eq!(defined_type("    enum State {"), Some("State"));
    assert_eq!(defined_type("pub trait Queue: Send {"), Some("Queue"));
    assert_eq!(defined_type("type Judged = Result<(), Violation>;"), Some("Judged"));
    assert_eq!(defined_type("    type Err = String;"), None);
    assert_eq!(defined_type("/// struct Lane"), None);
}

/// A line without the targets of its links.
fn without_link_targets(line: &str) -> String {
    link_targets(line).iter().fold(line.to_owned(), |line, target| line.replace(target, ""))
}

#[test]
fn lines_of_prose_are_short() {
    let too_long = |line: &str| line.chars().count() > MAX_PROSE_CHARS;
    let mut long = Vec::new();
    for path in all_files() {
        for (index, line) in read(&path).lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            if is_comment && !line.contains("://") && too_long(line) {
                long.push(format!("{}:{}", short(&path), index + 1));
            }
        }
    }
    for path in pages().iter().filter(|path| !GENERATED_PAGES.contains(&&*short(path))) {
        for (number, line) in lines_outside_code(&read(path)) {
            if !line.starts_with('|') && too_long(&without_link_targets(line)) {
                long.push(format!("{}:{number}", short(path)));
            }
        }
    }
    assert!(long.is_empty(), "longer than {MAX_PROSE_CHARS} characters:\n{}", long.join("\n"));
}

/// Whether a line has a code such as `R` `-` `2`, which no page of the repository explains.
fn has_requirement_code(line: &str) -> bool {
    line.match_indices("R-").any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + 2..].chars().next();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_')
            && after.is_some_and(|c| c.is_ascii_digit())
    })
}

#[test]
fn no_requirement_code_is_left_unexplained() {
    let mut found = Vec::new();
    for path in text_files() {
        for (index, line) in read(&path).lines().enumerate() {
            if has_requirement_code(line) {
                found.push(format!("{}:{}: {}", short(&path), index + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "say what the code stands for:\n{}", found.join("\n"));
}

/// The anchor that a Markdown heading gets.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_between_files_resolve() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = read(&page);
        let links = lines_outside_code(&text).into_iter();
        for (number, target) in
            links.flat_map(|(n, line)| link_targets(line).into_iter().map(move |t| (n, t)))
        {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, section) = target.split_once('#').unwrap_or((target, ""));
            let folder = page.parent().expect("a folder");
            let path = if file.is_empty() { page.clone() } else { folder.join(file) };
            let has_section = section.is_empty()
                || fs::read_to_string(&path).is_ok_and(|text| {
                    let lines = lines_outside_code(&text);
                    lines.iter().any(|(_, l)| l.starts_with('#') && anchor(l) == section)
                });
            if !path.exists() || !has_section {
                broken.push(format!("{}:{number}: {target}", short(&page)));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn pages_that_the_sources_name_exist() {
    let root = workspace();
    let mut missing = Vec::new();
    for path in text_files() {
        for (index, line) in read(&path).lines().enumerate() {
            for rest in line.split("docs/").skip(1) {
                let is_name = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
                let name = rest.split(|c| !is_name(c)).next().unwrap_or_default();
                let page = name.trim_end_matches('.');
                if page.ends_with(".md") && !root.join("docs").join(page).exists() {
                    missing.push(format!("{}:{}: docs/{page}", short(&path), index + 1));
                }
            }
        }
    }
    assert!(missing.is_empty(), "named, but not there:\n{}", missing.join("\n"));
}

/// Paths in backticks that start with a crate's name, without those with a placeholder such as `<kind>`.
fn named_paths(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|name| name.starts_with("postrider") && name.contains('/'));
    paths.filter(|path| !path.contains('<')).collect()
}

#[test]
fn the_map_of_the_code_names_only_what_exists() {
    let crates = workspace().join("crates");
    let mut missing = Vec::new();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = read(&workspace().join(page));
        let prose = lines_outside_code(&text).into_iter().map(|(_, line)| line);
        let prose = prose.collect::<Vec<_>>().join("\n");
        let gone = named_paths(&prose).into_iter().filter(|path| !crates.join(path).exists());
        missing.extend(gone.map(|path| format!("{page}: {path}")));
    }
    assert!(missing.is_empty(), "named, but not there:\n{}", missing.join("\n"));
}

/// The names of the channels: the lines of the registry's list.
fn channel_names() -> Vec<String> {
    let registry = read(&workspace().join(CHANNEL_REGISTRY));
    let list = registry.lines().skip_while(|line| *line != "registry::channels! {").skip(1);
    let names =
        list.take_while(|line| *line != "}").filter_map(|line| line.split_once(": crate::"));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// How many channels the code of a file names, as text or as module. Comments and tests do not count.
fn channels_named(text: &str, names: &[String]) -> usize {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: Vec<_> = code.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let is_named = |name: &&String| {
        code.contains(&format!("\"{name}\"")) || code.contains(&format!("::{name}::"))
    };
    names.iter().filter(is_named).count()
}

#[test]
fn only_the_registry_lists_the_channels() {
    let names = channel_names();
    assert!(names.len() >= 8, "the registry lists {names:?}");
    let lists: BTreeSet<_> = all_files()
        .into_iter()
        .filter(|path| path.components().any(|part| part.as_os_str() == "src"))
        .filter(|path| channels_named(&read(path), &names) + 2 >= names.len())
        .map(|path| short(&path))
        .collect();
    let allowed: BTreeSet<_> = CHANNEL_LISTS.iter().map(|(file, _)| (*file).to_owned()).collect();
    let new: Vec<_> = lists.difference(&allowed).collect();
    assert!(new.is_empty(), "loop over the registry instead of listing the channels: {new:?}");
    let stale: Vec<_> = allowed.difference(&lists).collect();
    assert!(stale.is_empty(), "lists no channels any more; remove from tidy.rs: {stale:?}");
}

//! Lists all tests by asking the test programs; nothing is guessed from source text. A test is named
//! `package::target::path`; a unit test has no target.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;

/// The builds that `cargo xtask test` runs: everything, and with a further feature only the tests with its name.
const BUILDS: [(&[&str], Option<&str>); 2] = [
    (
        &["cargo", "test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"],
        None,
    ),
    (
        &[
            "cargo",
            "test",
            "-p",
            "postrider-channels",
            "--features",
            "smpp",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ],
        Some("smpp"),
    ),
];

#[derive(Default)]
pub(super) struct TestList(BTreeMap<String, ListedTest>);

struct ListedTest {
    /// Its file, relative to the workspace.
    file: String,
    ignored: bool,
    /// Whether `cargo xtask test` runs it.
    run: bool,
}

impl TestList {
    pub(super) fn add(&mut self, name: &str, file: &str, ignored: bool, run: bool) {
        let test = ListedTest { file: file.to_owned(), ignored, run };
        self.0.entry(name.to_owned()).or_insert(test);
    }

    /// Whether the test exists and `cargo xtask test` runs it, or why not.
    pub(super) fn run_by_us(&self, name: &str) -> Result<(), &'static str> {
        match self.0.get(name) {
            None => Err("is no test that the runner knows"),
            Some(test) if test.ignored => Err("is ignored"),
            Some(test) if !test.run => Err("is not run by `cargo xtask test`"),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn file(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|test| test.file.as_str())
    }
}

/// Builds every test program and asks each for its tests.
pub(super) fn list(root: &Path) -> Result<TestList> {
    let mut tests = TestList::default();
    for (line, only) in BUILDS {
        shell::heading(&line.join(" "));
        let built = shell::output(root, line)?;
        for program in built.lines().filter_map(|line| TestProgram::read(line, root)) {
            program.list(root, only, &mut tests)?;
        }
    }
    Ok(tests)
}

/// A built test program.
#[derive(Debug, PartialEq)]
struct TestProgram {
    /// The start of its tests' names.
    prefix: String,
    executable: String,
    /// Its root file, relative to the workspace.
    source: PathBuf,
}

impl TestProgram {
    /// From a line of cargo's JSON output, if that line is about a test program.
    fn read(line: &str, root: &Path) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test =
            message["profile"]["test"] == true && message["reason"] == "compiler-artifact";
        let executable = message["executable"].as_str().filter(|_| is_test)?.to_owned();
        let manifest = Path::new(message["manifest_path"].as_str()?);
        let package = manifest.parent()?.file_name()?.to_str()?;
        let target = &message["target"];
        let prefix = match target["kind"][0].as_str()? {
            "test" => format!("{package}::{}", target["name"].as_str()?),
            _ => package.to_owned(),
        };
        let source = Path::new(target["src_path"].as_str()?);
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let source = source.strip_prefix(root).unwrap_or(source).to_owned();
        Some(Self { prefix, executable, source })
    }

    fn list(&self, root: &Path, only: Option<&str>, tests: &mut TestList) -> Result<()> {
        let ask = |more: &[&str]| {
            let line = [&[self.executable.as_str(), "--list", "--format", "terse"], more].concat();
            shell::output(root, &line).with_context(|| self.prefix.clone())
        };
        let ignored = ask(&["--ignored"])?;
        let ignored: Vec<&str> = names(&ignored).collect();
        for path in names(&ask(&[])?) {
            let run = only.is_none_or(|part| path.contains(part));
            let file = self.file_of(root, path);
            let name = format!("{}::{path}", self.prefix);
            tests.add(&name, &file, ignored.contains(&path), run);
        }
        Ok(())
    }

    /// The file of the test's module, or of the nearest enclosing module that has one.
    fn file_of(&self, root: &Path, path: &str) -> String {
        let folder = self.source.parent().unwrap_or(Path::new(""));
        let mut modules: Vec<&str> = path.split("::").collect();
        while modules.pop().is_some() && !modules.is_empty() {
            let place = modules.join("/");
            for ending in [".rs", "/mod.rs"] {
                let file = folder.join(place.clone() + ending);
                if root.join(&file).is_file() {
                    return file.display().to_string();
                }
            }
        }
        self.source.display().to_string()
    }
}

fn names(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().filter_map(|line| line.strip_suffix(": test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(source: &str) -> TestProgram {
        TestProgram {
            prefix: "xtask".to_owned(),
            executable: String::new(),
            source: PathBuf::from(source),
        }
    }

    #[test]
    fn a_test_s_file_is_that_of_its_module_or_of_the_next_one_around_it() {
        let root = shell::root();
        let ours = program("xtask/src/main.rs");
        let of = |path: &str| ours.file_of(&root, path);
        assert_eq!(of("channels::runner::tests::a"), "xtask/src/channels/runner.rs");
        assert_eq!(of("channels::made_by_a_macro::a"), "xtask/src/channels/mod.rs");
        assert_eq!(of("a"), "xtask/src/main.rs");
    }

    #[test]
    fn a_test_program_is_known_from_cargo_s_account() {
        let root = Path::new("/w");
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/a-b/Cargo.toml",
            "target":{"kind":["test"],"name":"it","src_path":"/w/crates/a-b/tests/it/main.rs"},
            "profile":{"test":true},"executable":"/t/it-1"}"#;
        let found = TestProgram::read(line, root).unwrap();
        assert_eq!((found.prefix.as_str(), found.executable.as_str()), ("a-b::it", "/t/it-1"));
        assert_eq!(found.source, Path::new("crates/a-b/tests/it/main.rs"));
        let no_test = line.replace("\"test\":true", "\"test\":false");
        assert_eq!(TestProgram::read(&no_test, root), None);
        assert_eq!(TestProgram::read("not JSON", root), None);
    }

    #[test]
    fn a_test_behind_a_feature_counts_only_if_the_feature_s_step_runs_it() {
        let mut tests = TestList::default();
        tests.add("a::smpp::b", "x.rs", false, true);
        tests.add("a::c", "x.rs", false, false);
        assert_eq!(tests.run_by_us("a::smpp::b"), Ok(()));
        assert_eq!(tests.run_by_us("a::c"), Err("is not run by `cargo xtask test`"));
    }
}

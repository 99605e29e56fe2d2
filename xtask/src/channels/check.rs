//! Finds rows without a test. Compares names only; the test runner says whether the tests pass.

use super::runner::TestList;
use super::sheets::{AnswerSheet, SheetRow};
use super::source::PageSource;

/// The test that fails for a row of the built-in table that no example reaches.
pub(super) const EVERY_ROW: &str = "postrider-channels::rows::every_built_in_row_is_met_by_a_case";

/// The name of the test that runs a row's examples.
pub(super) fn own_test(sheet: &AnswerSheet, row: &SheetRow) -> Option<String> {
    let has_examples = !row.full_examples().is_empty();
    has_examples.then(|| format!("postrider-channels::rows::{}::{}", sheet.name, row.name()))
}

pub(super) fn problems(source: &PageSource, tests: &TestList) -> Vec<String> {
    let mut found = Vec::new();
    for sheet in &source.sheets {
        for row in &sheet.rows {
            let answer = row.answer.clone().unwrap_or_else(|| row.name());
            let named = own_test(sheet, row).into_iter().chain(row.tests.iter().cloned());
            check(&format!("{}: {answer}", sheet.name), named.collect(), tests, &mut found);
        }
    }
    for field in &source.lists.ttl {
        check(&format!("TTL of {}", field.channel), field.tests.clone(), tests, &mut found);
    }
    for entry in source.lists.mistake.iter().chain(&source.lists.proof) {
        check(&entry.name, entry.tests.clone(), tests, &mut found);
    }
    check("the built-in table", vec![EVERY_ROW.to_owned()], tests, &mut found);
    found
}

fn check(what: &str, named: Vec<String>, tests: &TestList, found: &mut Vec<String>) {
    if named.is_empty() {
        found.push(format!("{what}: no test"));
    }
    for name in named {
        if let Err(why) = tests.run_by_us(&name) {
            found.push(format!("{what}: {name} {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::policy::classify::StatusToml;

    use super::super::sheets::OneOrMany;
    use super::super::source::{PageEntry, PageLists};
    use super::*;

    /// A sheet with one rule, and one described row that names `tests`.
    fn source(tests: &[&str]) -> PageSource {
        let rule = SheetRow {
            status: OneOrMany::One(StatusToml::One(410)),
            outcome: Some("gone".to_owned()),
            ..SheetRow::default()
        };
        let described = SheetRow {
            answer: Some("410, again".to_owned()),
            tests: tests.iter().map(|&name| name.to_owned()).collect(),
            ..SheetRow::default()
        };
        let sheet = AnswerSheet {
            name: "chat".to_owned(),
            file: "answers.toml".into(),
            title: String::new(),
            service: "chat".to_owned(),
            inherited_by: Vec::new(),
            code_is: None,
            about: None,
            rows: vec![rule, described],
        };
        PageSource { sheets: vec![sheet], lists: PageLists::default() }
    }

    const OWN: &str = "postrider-channels::rows::chat::410";

    fn found(named: &[&str], known: &[&str]) -> Vec<String> {
        let mut tests = TestList::default();
        for name in known {
            match name.strip_prefix("ignored ") {
                Some(name) => tests.add(name, "x.rs", true, true),
                None => tests.add(name, "x.rs", false, true),
            }
        }
        problems(&source(named), &tests)
    }

    #[test]
    fn rows_whose_tests_are_all_run_are_in_order() {
        assert_eq!(found(&["a::b"], &[EVERY_ROW, OWN, "a::b"]), [""; 0]);
    }

    #[test]
    fn a_row_without_a_test_is_named() {
        assert_eq!(found(&[], &[EVERY_ROW, OWN]), ["chat: 410, again: no test"]);
    }

    #[test]
    fn a_row_that_its_own_table_test_does_not_run_is_named() {
        let missing = format!("chat: 410: {OWN} is no test that the runner knows");
        assert_eq!(found(&["a::b"], &[EVERY_ROW, "a::b"]), [missing]);
    }

    #[test]
    fn a_test_that_was_renamed_is_noticed() {
        assert_eq!(
            found(&["a::old"], &[EVERY_ROW, OWN, "a::new"]),
            ["chat: 410, again: a::old is no test that the runner knows"]
        );
    }

    #[test]
    fn an_ignored_test_covers_nothing() {
        assert_eq!(
            found(&["a::b"], &[EVERY_ROW, OWN, "ignored a::b"]),
            ["chat: 410, again: a::b is ignored"]
        );
    }

    #[test]
    fn without_the_test_of_the_whole_table_nothing_is_in_order() {
        let missing = format!("the built-in table: {EVERY_ROW} is no test that the runner knows");
        assert_eq!(found(&["a::b"], &[OWN, "a::b"]), [missing]);
    }

    #[test]
    fn mistakes_need_tests_like_rows() {
        let mut source = source(&[OWN]);
        let (name, what) = ("1. A mistake".to_owned(), String::new());
        source.lists.mistake.push(PageEntry { name, what, tests: Vec::new() });
        let mut tests = TestList::default();
        tests.add(OWN, "x.rs", false, true);
        tests.add(EVERY_ROW, "x.rs", false, true);
        assert_eq!(problems(&source, &tests), ["1. A mistake: no test"]);
    }
}

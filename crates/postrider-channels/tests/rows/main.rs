//! Every row of the sheets of answers is a test of its own, which asks the built-in table about the row's examples:
//! `cargo test -p postrider-channels --test rows webpush.mozilla`. What takes more than one answer is tested where
//! it is decided, and named by its row.

#[path = "../../sheets.rs"]
#[expect(dead_code, reason = "titles and explanations are for the page")]
mod sheets;

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use postrider_channels::answers;
use postrider_core::model::outcome::AnswerTerms;
use postrider_core::policy::classify::{AnswerTable, ProviderAnswer, judge};
use postrider_core::{Outcome, Timestamp};
use sheets::{AnswerExample, AnswerSheet, SheetRow};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let sheets = match sheets::read_all(&folder) {
        Ok(sheets) => Arc::new(sheets),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let table = Arc::new(answers::built_in());
    let mut trials = vec![
        whole("every_built_in_row_is_met_by_a_case", &table, &sheets, every_row_is_met),
        whole("no_two_rows_have_one_name", &table, &sheets, names_differ),
    ];
    for (s, sheet) in sheets.iter().enumerate() {
        for (r, row) in sheet.rows.iter().enumerate().filter(|(_, row)| has_examples(row)) {
            let (table, sheets) = (table.clone(), sheets.clone());
            let name = format!("{}::{}", sheet.name, row.name());
            trials.push(Trial::test(name, move || {
                let sheet = &sheets[s];
                examples_hold(&table, sheet, &sheet.rows[r])
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

type WholeCheck = fn(&AnswerTable, &[AnswerSheet]) -> Result<(), Failed>;

/// A test of all rows together.
fn whole(
    name: &str,
    table: &Arc<AnswerTable>,
    sheets: &Arc<Vec<AnswerSheet>>,
    check: WholeCheck,
) -> Trial {
    let (table, sheets) = (table.clone(), sheets.clone());
    Trial::test(name, move || check(&table, &sheets))
}

fn has_examples(row: &SheetRow) -> bool {
    row.is_rule() || !row.examples.is_empty()
}

/// The answers that an example stands for.
fn answers_of<'a>(sheet: &'a AnswerSheet, example: &'a AnswerExample) -> Vec<ProviderAnswer<'a>> {
    let codes = match example.code.as_slice() {
        [] => vec![None],
        codes => codes.iter().map(|code| Some(code.as_str()).filter(|c| !c.is_empty())).collect(),
    };
    let mut found = Vec::new();
    for service in std::iter::once(&sheet.service).chain(&sheet.inherited_by) {
        for &status in example.status.as_slice() {
            found.extend(codes.iter().map(|&code| ProviderAnswer {
                service,
                status,
                code,
                retry_after: example.retry_after.as_deref(),
                token_age: example.token_age_s.map(Duration::from_secs),
                retry_all: example.retry_all,
            }));
        }
    }
    found
}

fn examples_hold(table: &AnswerTable, sheet: &AnswerSheet, row: &SheetRow) -> Result<(), Failed> {
    for example in row.full_examples() {
        let answers = answers_of(sheet, &example);
        if answers.is_empty() {
            return Err("an example needs a status where the row has only ranges".into());
        }
        let expected = row.expected(&example);
        for answer in answers {
            let (outcome, terms) = judge(table, &answer, NOW);
            let found = in_words(&outcome, terms);
            if found != expected {
                let ProviderAnswer { service, status, code, .. } = answer;
                return Err(format!(
                    "{service} {status} {code:?}: found {found:?}, expected {expected:?}"
                )
                .into());
            }
        }
    }
    Ok(())
}

/// An outcome as the sheets write it.
fn in_words(outcome: &Outcome, AnswerTerms { retries_max, strike }: AnswerTerms) -> String {
    let words = match *outcome {
        Outcome::RetryBackoff { at_least } => {
            sheets::retry_in_words(postrider_core::Scope::Target, None, at_least)
        }
        Outcome::RetryAfter { after, scope } => {
            sheets::retry_in_words(scope, Some(after), Duration::ZERO)
        }
        _ => outcome.name().to_owned(),
    };
    words + &sheets::terms_in_words(retries_max, strike.map(|kind| kind.name()))
}

/// A rule that no example reaches is either untested or can never decide anything.
fn every_row_is_met(table: &AnswerTable, sheets: &[AnswerSheet]) -> Result<(), Failed> {
    let mut met = HashSet::new();
    for sheet in sheets {
        for example in sheet.rows.iter().flat_map(SheetRow::full_examples) {
            let rows = answers_of(sheet, &example).into_iter().filter_map(|a| table.row(&a));
            met.extend(rows.map(std::ptr::from_ref));
        }
    }
    let unmet: Vec<_> = table
        .rows()
        .iter()
        .filter(|row| !met.contains(&std::ptr::from_ref(*row)))
        .map(|row| format!("{} {:?} {:?}", row.service, row.status, row.code))
        .collect();
    if unmet.is_empty() { Ok(()) } else { Err(unmet.join("\n").into()) }
}

fn names_differ(_: &AnswerTable, sheets: &[AnswerSheet]) -> Result<(), Failed> {
    let mut seen = HashSet::new();
    for sheet in sheets {
        for row in sheet.rows.iter().filter(|row| has_examples(row)) {
            let name = format!("{}::{}", sheet.name, row.name());
            if !seen.insert(name.clone()) {
                return Err(format!("{name} is there twice: give one of them an id").into());
            }
        }
    }
    Ok(())
}

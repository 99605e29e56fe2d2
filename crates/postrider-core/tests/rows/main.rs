//! Every row of the providers' tables (`*.toml` beside this file) is a test of its own, asked of the real
//! table: `cargo test -p postrider-core --test rows webpush.mozilla`. Looks at single answers only; what
//! takes more than one is tested where it is decided, and named by its row.

#[expect(dead_code, reason = "what is only printed is the page's, see xtask")]
#[expect(clippy::disallowed_methods, reason = "the rows are files")]
mod format;

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use format::{Row, Sheet};
use libtest_mimic::{Arguments, Failed, Trial};
use postrider_core::model::outcome::AnswerTerms;
use postrider_core::policy::classify::{Answer, Table, judge};
use postrider_core::{Outcome, Scope, Timestamp};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rows");
    let sheets = match format::read(&folder) {
        Ok(sheets) => Arc::new(sheets),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let table = Arc::new(Table::built_in());
    let mut trials = vec![
        whole("every_built_in_row_is_met_by_a_case", &table, &sheets, every_row_is_met),
        whole("no_two_rows_have_one_name", &table, &sheets, names_differ),
    ];
    for (s, sheet) in sheets.iter().enumerate() {
        for (r, row) in sheet.rows.iter().enumerate().filter(|(_, row)| row.is_asked()) {
            let (table, sheets) = (table.clone(), sheets.clone());
            let name = format!("{}::{}", sheet.name, row.name());
            trials.push(Trial::test(name, move || {
                let sheet = &sheets[s];
                holds(&table, sheet, &sheet.rows[r])
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

type Whole = fn(&Table, &[Sheet]) -> Result<(), Failed>;

/// A test of all rows together.
fn whole(name: &str, table: &Arc<Table>, sheets: &Arc<Vec<Sheet>>, judge: Whole) -> Trial {
    let (table, sheets) = (table.clone(), sheets.clone());
    Trial::test(name, move || judge(&table, &sheets))
}

/// The answers that a row is about.
fn answers<'a>(sheet: &'a Sheet, row: &'a Row) -> Vec<Answer<'a>> {
    let codes = match row.code.as_slice() {
        [] => vec![None],
        codes => codes.iter().map(|code| Some(code.as_str()).filter(|c| !c.is_empty())).collect(),
    };
    let mut found = Vec::new();
    for service in &sheet.services {
        for &status in row.status.as_slice() {
            found.extend(codes.iter().map(|&code| Answer {
                service,
                status,
                code,
                retry_after: row.retry_after.as_deref(),
                token_age: row.token_age_s.map(Duration::from_secs),
                retry_all: row.retry_all,
            }));
        }
    }
    found
}

fn holds(table: &Table, sheet: &Sheet, row: &Row) -> Result<(), Failed> {
    let answers = answers(sheet, row);
    if answers.is_empty() {
        return Err("the row has statuses, but its sheet names no service".into());
    }
    for answer in answers {
        let (outcome, terms) = judge(table, &answer, NOW);
        let found = in_words(&outcome) + &beside(terms);
        if found != row.outcome {
            let Answer { service, status, code, .. } = answer;
            let expected = &row.outcome;
            return Err(format!(
                "{service} {status} {code:?}: found {found:?}, expected {expected:?}"
            )
            .into());
        }
    }
    Ok(())
}

/// An outcome as the sheets write it.
fn in_words(outcome: &Outcome) -> String {
    let name = outcome.name();
    match outcome {
        Outcome::RetryBackoff { at_least } if !at_least.is_zero() => {
            format!("{name}, not before {}", span(*at_least))
        }
        Outcome::RetryAfter { after, scope } | Outcome::Hold { after, scope } => {
            let scope = match scope {
                Scope::Target => "target",
                Scope::Credential => "credential",
                Scope::Host => "host",
            };
            format!("{name} {}, {scope}", span(*after))
        }
        _ => name.to_owned(),
    }
}

/// What the table says beside the outcome.
fn beside(AnswerTerms { retries_max, strike }: AnswerTerms) -> String {
    let retries = retries_max.map_or(String::new(), |most| format!(", {most} more at most"));
    let strike = strike.map_or(String::new(), |kind| format!("; strikes: {}", kind.name()));
    retries + &strike
}

fn span(time: Duration) -> String {
    match time.as_secs() {
        secs if secs >= 3600 && secs % 3600 == 0 => format!("{} h", secs / 3600),
        secs if secs >= 60 && secs % 60 == 0 => format!("{} min", secs / 60),
        secs => format!("{secs} s"),
    }
}

/// A row of ours that no case reaches is either untested or can never decide anything.
fn every_row_is_met(table: &Table, sheets: &[Sheet]) -> Result<(), Failed> {
    let cases = sheets.iter().flat_map(|sheet| {
        sheet.rows.iter().filter(|row| row.is_asked()).flat_map(move |row| answers(sheet, row))
    });
    let met: HashSet<_> =
        cases.filter_map(|answer| table.row(&answer)).map(std::ptr::from_ref).collect();
    let unmet: Vec<_> = table
        .rows()
        .iter()
        .filter(|row| !met.contains(&std::ptr::from_ref(*row)))
        .map(|row| format!("{} {:?} {:?}", row.service, row.status, row.code))
        .collect();
    if unmet.is_empty() { Ok(()) } else { Err(unmet.join("\n").into()) }
}

fn names_differ(_: &Table, sheets: &[Sheet]) -> Result<(), Failed> {
    let mut seen = HashSet::new();
    for sheet in sheets {
        for row in sheet.rows.iter().filter(|row| row.is_asked()) {
            let name = format!("{}::{}", sheet.name, row.name());
            if !seen.insert(name.clone()) {
                return Err(format!("{name} is there twice: give one of them an id").into());
            }
        }
    }
    Ok(())
}

//! Compiles the sheets of answers into static rows, one slice per channel. A row that is wrong fails the build with
//! its file and number. Also lists the channels that have a `tests/conformance.rs`, for the suite of that name.

#[path = "sheets.rs"]
#[expect(dead_code, reason = "examples are for the tests, words for the page")]
mod sheets;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use postrider_core::Scope;
use postrider_core::policy::classify::{AnswerRow, CodePattern, Meaning};
use sheets::AnswerSheet;

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=sheets.rs");
    let written = sheets::read_all(Path::new("src")).and_then(|sheets| write(&sheets));
    if let Err(error) = written.and_then(|()| list_columns()) {
        println!("cargo::error={}", error.replace('\n', " "));
    }
}

/// Writes `columns.rs`: the modules `src/<kind>/tests/conformance.rs`, and the macro `with_columns!`, which adds
/// their names to the arguments of another macro.
fn list_columns() -> Result<(), String> {
    let root = std::env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let folders = std::fs::read_dir("src").map_err(|error| error.to_string())?;
    let folders = folders.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let has = |kind: &str, file: &str| Path::new("src").join(kind).join(file).is_file();
    let mut kinds: Vec<_> = folders.filter(|kind| has(kind, "tests/conformance.rs")).collect();
    kinds.sort();
    let (mut text, mut columns, mut names) = (String::new(), String::new(), String::new());
    for kind in &kinds {
        let path = Path::new(&root).join("src").join(kind).join("tests/conformance.rs");
        let _ = writeln!(text, "#[path = {path:?}]\nmod {kind};");
        let _ = write!(columns, "&{kind}::COLUMN, ");
        let group = if has(kind, "account.rs") { "accounts" } else { "urls" };
        let _ = write!(names, "({group} {kind}) ");
    }
    let _ = writeln!(text, "pub(crate) static ALL: &[&crate::column::Column] = &[{columns}];");
    let _ = writeln!(
        text,
        "macro_rules! with_columns {{ ($to:ident! $first:tt $($rest:tt)*) => \
         {{ $to! {{ $first [{names}] $($rest)* }} }}; }}"
    );
    write_out("columns.rs", &text)
}

fn write_out(file: &str, text: &str) -> Result<(), String> {
    let folder = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    std::fs::write(Path::new(&folder).join(file), text).map_err(|error| error.to_string())
}

fn write(sheets: &[AnswerSheet]) -> Result<(), String> {
    let mut channels: BTreeMap<&str, String> = BTreeMap::new();
    for sheet in sheets {
        let channel = sheet.service.split('.').next().unwrap_or_default();
        let lines = channels.entry(channel).or_default();
        for row in &sheet.rows {
            for rule in row.rules(&sheet.service).map_err(|error| error.to_string())? {
                let _ = writeln!(lines, "    {},", constant(&rule));
            }
        }
    }
    let mut text = String::new();
    let mut names = Vec::new();
    for (channel, lines) in channels {
        let name = channel.to_uppercase();
        let _ = writeln!(text, "/// The rows of `{channel}`.");
        let _ = writeln!(text, "pub static {name}: &[AnswerRow] = &[\n{lines}];\n");
        names.push(name);
    }
    let names = names.join(", ");
    let _ = writeln!(text, "static CHANNELS: &[&[AnswerRow]] = &[{names}];");
    write_out("answers.rs", &text)
}

/// A row as a constant expression.
fn constant(row: &AnswerRow) -> String {
    let (first, last) = (row.status.first(), row.status.last());
    let code = match &row.code {
        CodePattern::Any => "CodePattern::Any".to_owned(),
        CodePattern::Exact(text) => format!("CodePattern::Exact(Cow::Borrowed({text:?}))"),
        CodePattern::Prefix(text) => format!("CodePattern::Prefix(Cow::Borrowed({text:?}))"),
        CodePattern::Contains(text) => format!("CodePattern::Contains(Cow::Borrowed({text:?}))"),
    };
    let strike = row.strike.map(|kind| format!("StrikeKind::{kind:?}"));
    format!(
        "AnswerRow {{ service: Cow::Borrowed({:?}), status: StatusRange::new({first}, {last}), code: {code}, \
         meaning: {}, strike: {} }}",
        row.service,
        meaning(row.meaning),
        option(strike)
    )
}

fn meaning(meaning: Meaning) -> String {
    match meaning {
        Meaning::Retry { scope, default, at_least, retries_max } => format!(
            "Meaning::Retry {{ scope: {}, default: {}, at_least: {}, retries_max: {retries_max:?} }}",
            scope_name(scope),
            option(default.map(seconds)),
            seconds(at_least)
        ),
        Meaning::Tomorrow { scope } => {
            format!("Meaning::Tomorrow {{ scope: {} }}", scope_name(scope))
        }
        plain => format!("Meaning::{plain:?}"),
    }
}

fn scope_name(scope: Scope) -> String {
    format!("Scope::{scope:?}")
}

fn seconds(time: Duration) -> String {
    format!("Duration::from_secs({})", time.as_secs())
}

fn option(value: Option<String>) -> String {
    value.map_or("None".to_owned(), |value| format!("Some({value})"))
}

//! The form of the sheets of answers: `answers.toml` or `answers/*.toml` in a channel's folder. `build.rs` compiles
//! their rules, the test `rows` runs their examples, and `cargo xtask channels` prints them. Answers are matched and
//! interpreted by `postrider_core::policy::classify`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_core::Scope;
use postrider_core::policy::classify::{
    AnswerRow, AnswerRowError, AnswerRowToml, Meaning, StatusToml,
};
use serde::Deserialize;

/// The rows of one provider, or of one stage of a conversation with it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerSheet {
    /// The name in tests and links: the service, or the file's name where no service is given.
    #[serde(skip)]
    pub(crate) name: String,
    #[serde(skip)]
    pub(crate) file: PathBuf,
    pub(crate) title: String,
    /// The service of its rules. A sheet without rules may have none.
    #[serde(default)]
    pub(crate) service: String,
    /// Services without a row of their own for these examples. The examples hold for them, too.
    #[serde(default)]
    pub(crate) inherited_by: Vec<String>,
    /// Where the provider puts its code.
    pub(crate) code_is: Option<String>,
    pub(crate) about: Option<String>,
    #[serde(rename = "row")]
    pub(crate) rows: Vec<SheetRow>,
}

/// One row. With `status` it is a rule and has the fields of a user's `[[classify]]`; lists of statuses and codes
/// stand for one rule per pair. Without `status` it describes an answer and its outcome (`gives`), which another
/// rule or more than one answer leads to, and which `examples` or `tests` show.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SheetRow {
    /// Needed only where the first example's status and code are no name of their own.
    pub(crate) id: Option<String>,
    #[serde(default)]
    pub(crate) status: OneOrMany<StatusToml>,
    #[serde(default)]
    pub(crate) code: OneOrMany<String>,
    pub(crate) outcome: Option<String>,
    pub(crate) scope: Option<Scope>,
    pub(crate) default_s: Option<u64>,
    pub(crate) at_least_s: Option<u64>,
    pub(crate) retries: Option<u32>,
    pub(crate) strike: Option<String>,
    /// The answer in words, where no example can state it.
    pub(crate) answer: Option<String>,
    pub(crate) gives: Option<String>,
    pub(crate) means: String,
    /// What Postrider does, where the outcome alone does not say it.
    pub(crate) does: Option<String>,
    /// Why this is not what the provider's own documents ask for.
    pub(crate) differs: Option<String>,
    /// Tests beside the row's own, by `package::target::path`.
    #[serde(default)]
    pub(crate) tests: Vec<String>,
    #[serde(default)]
    pub(crate) examples: Vec<AnswerExample>,
}

/// Answers, one per pair of status and code, which the test `rows` asks the table about.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerExample {
    /// By default the row's single statuses.
    #[serde(default)]
    pub(crate) status: OneOrMany<u16>,
    /// By default the text of the row's codes. An empty one is an answer without a code.
    #[serde(default)]
    pub(crate) code: OneOrMany<String>,
    pub(crate) retry_after: Option<String>,
    pub(crate) token_age_s: Option<u64>,
    #[serde(default)]
    pub(crate) retry_all: bool,
    /// By default what the row says.
    pub(crate) gives: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany<T> {
    Many(Vec<T>),
    One(T),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::Many(all) => all,
            Self::One(one) => std::slice::from_ref(one),
        }
    }
}

impl SheetRow {
    pub(crate) fn is_rule(&self) -> bool {
        !self.status.as_slice().is_empty()
    }

    /// The rules of the row: one per pair of a status and a code.
    pub(crate) fn rules(&self, service: &str) -> Result<Vec<AnswerRow>, AnswerRowError> {
        let codes: Vec<Option<&String>> = match self.code.as_slice() {
            [] => vec![None],
            codes => codes.iter().map(Some).collect(),
        };
        let mut rules = Vec::new();
        for status in self.status.as_slice() {
            for code in &codes {
                rules.push(AnswerRow::try_from(AnswerRowToml {
                    service: service.to_owned(),
                    status: status.clone(),
                    code: code.cloned(),
                    outcome: self.outcome.clone().unwrap_or_default(),
                    scope: self.scope,
                    default_s: self.default_s,
                    at_least_s: self.at_least_s,
                    retries: self.retries,
                    strike: self.strike.clone(),
                })?);
            }
        }
        Ok(rules)
    }

    /// The examples with what they take over from the row. A rule without examples is its own example.
    pub(crate) fn full_examples(&self) -> Vec<AnswerExample> {
        let mut examples = self.examples.clone();
        if examples.is_empty() && self.is_rule() {
            examples.push(AnswerExample::default());
        }
        for example in &mut examples {
            if example.status.as_slice().is_empty() {
                let single = |status: &StatusToml| match status {
                    StatusToml::One(status) => Some(*status),
                    StatusToml::Range(_) => None,
                };
                example.status =
                    OneOrMany::Many(self.status.as_slice().iter().filter_map(single).collect());
            }
            if example.code.as_slice().is_empty() {
                let text = |code: &String| code.trim_matches('*').to_owned();
                example.code = OneOrMany::Many(self.code.as_slice().iter().map(text).collect());
            }
        }
        examples
    }

    /// The row's name within its sheet, from its first example.
    pub(crate) fn name(&self) -> String {
        if let Some(id) = &self.id {
            return id.clone();
        }
        let Some(example) = self.full_examples().into_iter().next() else { return String::new() };
        let mut parts: Vec<String> =
            example.status.as_slice().iter().take(1).map(u16::to_string).collect();
        parts.extend(example.code.as_slice().iter().take(1).map(|code| slug(code)));
        parts.extend(example.retry_after.iter().map(|_| "told".to_owned()));
        parts.extend(example.retry_all.then(|| "retry_all".to_owned()));
        parts.retain(|part| !part.is_empty());
        parts.join("_")
    }

    /// The outcome of an example, in words.
    pub(crate) fn expected(&self, example: &AnswerExample) -> String {
        let given = example.gives.as_ref().or(self.gives.as_ref());
        given.cloned().unwrap_or_else(|| self.in_words())
    }

    /// What the rule says, in the words of `gives`.
    pub(crate) fn in_words(&self) -> String {
        let Some(rule) = self.rules("any").ok().and_then(|rules| rules.into_iter().next()) else {
            return self.gives.clone().unwrap_or_default();
        };
        let (outcome, retries_max) = match rule.meaning {
            Meaning::Retry { scope, default, at_least, retries_max } => {
                (retry_in_words(scope, default, at_least), retries_max)
            }
            meaning => (meaning.name().to_owned(), None),
        };
        outcome + &terms_in_words(retries_max, rule.strike.map(|kind| kind.name()))
    }

    /// What is wrong with the row's fields, apart from the values of a rule.
    fn check(&self) -> Result<(), &'static str> {
        match (self.is_rule(), &self.outcome, &self.gives) {
            (true, None, _) => Err("has a status, but no outcome"),
            (true, _, Some(_)) => Err("gives: allowed without status, or in an example"),
            (false, Some(_), _) => Err("has an outcome, but no status"),
            (false, _, None) => Err("has neither status and outcome nor gives"),
            (false, ..) if self.answer.is_none() && self.examples.is_empty() => {
                Err("has neither status nor answer nor examples")
            }
            (false, ..) if !self.code.as_slice().is_empty() => Err("has a code, but no status"),
            _ => Ok(()),
        }
    }
}

/// A retry as the sheets write it.
pub(crate) fn retry_in_words(scope: Scope, after: Option<Duration>, at_least: Duration) -> String {
    let scope = match scope {
        Scope::Target => "target",
        Scope::Credential => "credential",
        Scope::Host => "host",
    };
    match after {
        Some(after) => format!("retry_after {}, {scope}", span(after.max(at_least))),
        None if at_least.is_zero() => "retry_backoff".to_owned(),
        None => format!("retry_backoff, not before {}", span(at_least)),
    }
}

/// What stands behind the outcome.
pub(crate) fn terms_in_words(retries_max: Option<u32>, strike: Option<&str>) -> String {
    let retries = retries_max.map_or(String::new(), |most| format!(", {most} more at most"));
    let strike = strike.map_or(String::new(), |name| format!("; strikes: {name}"));
    retries + &strike
}

fn span(time: Duration) -> String {
    match time.as_secs() {
        secs if secs >= 3600 && secs % 3600 == 0 => format!("{} h", secs / 3600),
        secs if secs >= 60 && secs % 60 == 0 => format!("{} min", secs / 60),
        secs => format!("{secs} s"),
    }
}

fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    let text: String = text.chars().take(40).map(plain).collect();
    text.trim_matches('_').to_owned()
}

/// The sheets of all channels whose folders are in `src`, by name.
pub(crate) fn read_all(src: &Path) -> Result<Vec<AnswerSheet>, String> {
    let mut sheets = Vec::new();
    for channel in entries(src)?.into_iter().filter(|path| path.is_dir()) {
        let (one, several) = (channel.join("answers.toml"), channel.join("answers"));
        let mut files = if several.is_dir() { entries(&several)? } else { Vec::new() };
        files.extend(one.is_file().then_some(one));
        for file in files {
            let sheet = read(&file)?;
            let family = channel.file_name().unwrap_or_default();
            if sheet.service.split('.').next().unwrap_or_default() != family {
                let found = sheet.service;
                return Err(format!("{}: service: found {found:?}", file.display()));
            }
            sheets.push(sheet);
        }
    }
    sheets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sheets)
}

/// One sheet, checked.
pub(crate) fn read(file: &Path) -> Result<AnswerSheet, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    parse(file, &text)
}

/// The sheet of this text. An error names the file, and the row by its number.
pub(crate) fn parse(file: &Path, text: &str) -> Result<AnswerSheet, String> {
    let wrong = |error: String| format!("{}: {error}", file.display());
    let mut sheet: AnswerSheet = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    sheet.file = file.to_owned();
    sheet.name.clone_from(&sheet.service);
    if sheet.name.is_empty() {
        sheet.name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    }
    for (nth, row) in (1..).zip(&sheet.rows) {
        let name = row.name();
        let wrong = |error: &str| wrong(format!("row {nth} ({name}): {error}"));
        row.check().map_err(wrong)?;
        row.rules(&sheet.service).map_err(|error| wrong(&error.to_string()))?;
    }
    Ok(sheet)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::read_dir(folder)
        .map_err(wrong)?
        .map(|entry| entry.map(|entry| entry.path()).map_err(wrong))
        .collect()
}

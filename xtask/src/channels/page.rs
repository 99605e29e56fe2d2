//! Prints the page: tables of rows with the tests that cover them. Checks nothing.

use std::fmt::Write as _;

use postrider_core::policy::classify::StatusToml;

use super::check::{self, EVERY_ROW};
use super::runner::TestList;
use super::sheets::{AnswerExample, AnswerSheet, SheetRow};
use super::source::{PageEntry, PageSource, TtlField};

const INTRO: &str = "\
<!-- Written by `cargo xtask channels`. Change the sheets (crates/postrider-channels/src/*/answers*), xtask/rules.toml
or xtask/channels.toml instead. -->

# Channels: what each provider answers, and what Postrider does

This page is printed from the sheets that the server itself is built from. The tests beside a row cover it, and `cargo xtask test`
fails for a row without one. `rows …` asks the built-in table about the row's examples:
`cargo test -p postrider-channels --test rows webpush.mozilla`. A `[[classify]]` of your own overrides any row
([configuration](configuration.md)). [Outcomes](outcomes/README.md) explains each outcome.
";

const PROMISES: &str = "What every channel promises";

pub(super) fn print(source: &PageSource, tests: &TestList) -> String {
    let mut page = INTRO.to_owned();
    contents(&mut page, source);
    ttl(&mut page, &source.lists.ttl, tests);
    for sheet in &source.sheets {
        table(&mut page, sheet, tests);
    }
    differences(&mut page, &source.sheets);
    let mistakes = "What senders get wrong most often, with the tests that would notice if we did.";
    entries(&mut page, "The fifteen mistakes", mistakes, "mistake", &source.lists.mistake, tests);
    let proofs = "Our side of the wire and our fakes, tested against programs that others wrote.";
    entries(&mut page, "Tested against others", proofs, "program", &source.lists.proof, tests);
    page
}

/// The last part of a page that was written before, which the conformance suite keeps up to date.
pub(super) fn matrix(page: &str) -> &str {
    page.find(&format!("\n## {PROMISES}\n")).map_or("", |at| &page[at..])
}

fn put(page: &mut String, line: &str) {
    page.push_str(line);
    page.push('\n');
}

fn anchor(title: &str) -> String {
    let kept = title.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
}

fn contents(page: &mut String, source: &PageSource) {
    let titles = source.sheets.iter().map(|sheet| sheet.title.as_str());
    let around = ["Where we differ", "The fifteen mistakes", "Tested against others", PROMISES];
    let all = std::iter::once("TTL on each channel").chain(titles).chain(around);
    let links: Vec<String> = all.map(|title| format!("[{title}](#{})", anchor(title))).collect();
    let _ = writeln!(page, "\n{}", links.join(" · "));
}

fn ttl(page: &mut String, fields: &[TtlField], tests: &TestList) {
    put(page, "\n## TTL on each channel\n");
    put(
        page,
        "A message says once how long it lives (`ttl_s`). Every attempt tells the provider how much of that is left, in the",
    );
    put(
        page,
        "provider's own field. `cargo xtask prove channels` sends one message per channel and prints what arrived.\n",
    );
    put(page, "| channel | field | value | tests |\n|---|---|---|---|");
    for TtlField { channel, field, value, tests: named } in fields {
        let held = links(named.iter().map(String::as_str), tests);
        put(page, &format!("| {channel} | {field} | {value} | {held} |"));
    }
}

fn table(page: &mut String, sheet: &AnswerSheet, tests: &TestList) {
    let _ = writeln!(page, "\n## {}\n", sheet.title);
    if let Some(line) = &sheet.about {
        let _ = writeln!(page, "{line}\n");
    }
    if !sheet.service.is_empty() {
        let code =
            sheet.code_is.as_ref().map_or(String::new(), |code| format!("; the code is {code}"));
        let _ = writeln!(page, "In `[[classify]]`: `service = \"{}\"`{code}.\n", sheet.service);
    }
    put(page, "| answer | what it means | outcome | what is done | tests |\n|---|---|---|---|---|");
    for row in &sheet.rows {
        let own = check::own_test(sheet, row).map(|_| {
            format!("[`rows {}::{}`](../{})", sheet.name, row.name(), sheet.file.display())
        });
        let others = links(row.tests.iter().map(String::as_str), tests);
        let others = Some(others).filter(|links| !links.is_empty());
        let held = own.into_iter().chain(others).collect::<Vec<_>>().join("<br>");
        let words = row.full_examples().first().map_or(row.in_words(), |first| row.expected(first));
        let (answer, outcome, done) = (answer(row), outcome(&words), done(row, &words));
        let _ = writeln!(page, "| {answer} | {} | {outcome} | {done} | {held} |", row.means);
    }
}

/// The statuses and codes of a rule, or those of the examples of a row without a rule.
fn answer(row: &SheetRow) -> String {
    if let Some(answer) = &row.answer {
        return answer.clone();
    }
    if !row.is_rule() {
        return row.full_examples().iter().map(example).collect::<Vec<_>>().join(" · ");
    }
    let status = |status: &StatusToml| match status {
        StatusToml::One(status) => status.to_string(),
        StatusToml::Range(range) => range.replace('-', "–"),
    };
    let statuses: Vec<String> = row.status.as_slice().iter().map(status).collect();
    let mut parts = vec![statuses.join(", ")];
    parts.extend(codes(row.code.as_slice()));
    parts.extend(row.examples.first().into_iter().flat_map(conditions));
    parts.join("; ")
}

fn example(example: &AnswerExample) -> String {
    let statuses: Vec<String> = example.status.as_slice().iter().map(u16::to_string).collect();
    let mut parts = vec![statuses.join(", ")];
    parts.extend(codes(example.code.as_slice()));
    parts.extend(conditions(example));
    parts.join("; ")
}

/// What an example's outcome depends on besides status and code.
fn conditions(example: &AnswerExample) -> Vec<String> {
    let wait = example.retry_after.as_ref().map(|wait| format!("`Retry-After: {wait}`"));
    let age = example.token_age_s.map(|age| format!("our token is {age} s old"));
    let class = example.retry_all.then(|| "class with `retry_all`".to_owned());
    wait.into_iter().chain(age).chain(class).collect()
}

fn codes(codes: &[String]) -> Option<String> {
    let codes: Vec<String> = codes.iter().map(|code| coded(code)).collect();
    (!codes.is_empty()).then(|| codes.join(", "))
}

fn coded(code: &str) -> String {
    if code.is_empty() { "no code".to_owned() } else { format!("`{}`", code.replace('|', "\\|")) }
}

/// The outcome, linked to its page.
fn outcome(text: &str) -> String {
    let name = text.split([' ', ',', ';']).next().unwrap_or_default();
    let is_name = name.contains('_') || ["accepted", "gone", "config", "reconnect"].contains(&name);
    if !is_name && !["ambiguous", "expired", "hold"].contains(&name) {
        return text.to_owned();
    }
    format!("[`{name}`](outcomes/{name}.md){}", &text[name.len()..])
}

/// What Postrider does: in the row's words, or by the outcome.
fn done<'a>(row: &'a SheetRow, words: &str) -> &'a str {
    if let Some(does) = &row.does {
        return does;
    }
    match words.split([' ', ',', ';']).next().unwrap_or_default() {
        "accepted" => "records it",
        "retry_backoff" => "tries again by the class's policy",
        "retry_after" if words.contains(", credential") => "lets the credential rest until then",
        "retry_after" if words.contains(", host") => "lets the whole host rest until then",
        "retry_after" => "lets this address rest until then",
        "gone" => "marks the address, sends nothing more there",
        "drop_message" => "dead letter; the address stays",
        "config" => "parks the work unburned, reports it (log, metrics, `accounts`, `explain`)",
        "resign_once" => "again at once with a new token, once",
        "reconnect" => "again at once on another connection, free",
        "ambiguous" => "as the class says: repeat, park or drop",
        "expired" => "ends it",
        _ => "–",
    }
}

fn links<'a>(named: impl Iterator<Item = &'a str>, tests: &TestList) -> String {
    let link = |name: &str| {
        let shown = match name.split_once("::matrix::") {
            Some((_, promise)) => promise,
            None => name.rsplit("::").next().unwrap_or(name),
        };
        format!("[`{shown}`](../{})", tests.file(name).unwrap_or_default())
    };
    named.map(link).collect::<Vec<_>>().join("<br>")
}

fn differences(page: &mut String, sheets: &[AnswerSheet]) {
    put(page, "\n## Where we differ\n");
    put(page, "Rows that differ from the provider's documents or from common advice, and why.\n");
    for sheet in sheets {
        for row in &sheet.rows {
            if let Some(why) = &row.differs {
                let _ = writeln!(page, "- **{}**, {}: {why}", sheet.title, answer(row));
            }
        }
    }
    let _ = writeln!(
        page,
        "\nThe test `{EVERY_ROW}` fails for a row of the built-in table without an example above."
    );
}

fn entries(
    page: &mut String,
    title: &str,
    about: &str,
    kind: &str,
    entries: &[PageEntry],
    tests: &TestList,
) {
    let _ = writeln!(
        page,
        "\n## {title}\n\n{about}\n\n| {kind} | what holds here | tests |\n|---|---|---|"
    );
    for PageEntry { name, what, tests: named } in entries {
        let held = links(named.iter().map(String::as_str), tests);
        let _ = writeln!(page, "| {name} | {what} | {held} |");
    }
}

#[cfg(test)]
mod tests {
    use super::super::sheets::OneOrMany;
    use super::*;

    #[test]
    fn a_row_says_all_that_its_answer_depends_on() {
        let example = AnswerExample {
            status: OneOrMany::Many(vec![401, 403]),
            code: OneOrMany::Many(vec!["a|b".to_owned(), String::new()]),
            retry_after: Some("7".to_owned()),
            token_age_s: Some(301),
            retry_all: true,
            gives: None,
        };
        let expected = "401, 403; `a\\|b`, no code; `Retry-After: 7`; our token is 301 s old; class \
                        with `retry_all`";
        let described = SheetRow { examples: vec![example.clone()], ..SheetRow::default() };
        assert_eq!(answer(&described), expected);
        let rule = SheetRow {
            status: OneOrMany::Many(vec![
                StatusToml::One(401),
                StatusToml::Range("500-599".into()),
            ]),
            code: OneOrMany::One("*late*".to_owned()),
            examples: vec![AnswerExample { retry_all: false, ..example }],
            ..SheetRow::default()
        };
        let expected = "401, 500–599; `*late*`; `Retry-After: 7`; our token is 301 s old";
        assert_eq!(answer(&rule), expected);
    }

    #[test]
    fn an_outcome_leads_to_its_page_and_other_words_stay() {
        assert_eq!(
            outcome("retry_after 1 min, host"),
            "[`retry_after`](outcomes/retry_after.md) 1 min, host"
        );
        assert_eq!(
            outcome("drop_message; strikes: key"),
            "[`drop_message`](outcomes/drop_message.md); strikes: key"
        );
        assert_eq!(outcome("by the reply"), "by the reply");
    }

    #[test]
    fn a_heading_is_found_by_its_anchor() {
        assert_eq!(anchor("Web Push: Google (Chrome)"), "web-push-google-chrome");
    }
}

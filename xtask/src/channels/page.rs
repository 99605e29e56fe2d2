//! The page: tables of rows with the tests that hold them. Prints what it is given and judges nothing.

use std::fmt::Write as _;

use super::check::{self, EVERY_ROW};
use super::runner::Tests;
use super::sheets::{Row, Sheet};
use super::source::{Entry, Source, TtlField};

const INTRO: &str = "\
<!-- Written by `cargo xtask channels`. Change crates/postrider-core/tests/rows/*.toml or xtask/channels.toml instead. -->

# Channels: what each provider says, and what is done about it

Every row is held by the test beside it, and `cargo xtask test` fails for a row without one. `rows …` are rows that are asked of the
built-in table itself: `cargo test -p postrider-core --test rows webpush.mozilla`. Any of them can be overruled by a `[[classify]]` of
your own ([configuration](configuration.md)); what the outcomes mean at length is in [outcomes](outcomes/README.md).
";

pub(super) fn print(source: &Source, tests: &Tests) -> String {
    let mut page = INTRO.to_owned();
    contents(&mut page, source);
    ttl(&mut page, &source.lists.ttl, tests);
    for sheet in &source.sheets {
        table(&mut page, sheet, tests);
    }
    differences(&mut page, &source.sheets);
    let mistakes = "What senders get wrong most often, with the tests that would notice if we did.";
    entries(&mut page, "The fifteen mistakes", mistakes, "mistake", &source.lists.mistake, tests);
    let proofs = "Our side of the wire and our fakes, held against programs that others wrote.";
    entries(&mut page, "Held against others", proofs, "program", &source.lists.proof, tests);
    page
}

fn put(page: &mut String, line: &str) {
    page.push_str(line);
    page.push('\n');
}

fn anchor(title: &str) -> String {
    let kept = title.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
}

fn contents(page: &mut String, source: &Source) {
    let titles = source.sheets.iter().map(|sheet| sheet.title.as_str());
    let around = ["Where we differ", "The fifteen mistakes", "Held against others"];
    let all = std::iter::once("TTL on each channel").chain(titles).chain(around);
    let links: Vec<String> = all.map(|title| format!("[{title}](#{})", anchor(title))).collect();
    let _ = writeln!(page, "\n{}", links.join(" · "));
}

fn ttl(page: &mut String, fields: &[TtlField], tests: &Tests) {
    put(page, "\n## TTL on each channel\n");
    put(
        page,
        "A message says once how long it lives (`ttl_s`). Every attempt tells the provider what is left of that, in the",
    );
    put(
        page,
        "provider's own field; `cargo xtask prove channels` sends one message per channel and prints what arrived.\n",
    );
    put(page, "| channel | field | value | held by |\n|---|---|---|---|");
    for TtlField { channel, field, value, tests: named } in fields {
        let held = links(named.iter().map(String::as_str), tests);
        put(page, &format!("| {channel} | {field} | {value} | {held} |"));
    }
}

fn table(page: &mut String, sheet: &Sheet, tests: &Tests) {
    let _ = writeln!(page, "\n## {}\n", sheet.title);
    if let Some(line) = &sheet.about {
        let _ = writeln!(page, "{line}\n");
    }
    if let [service, ..] = sheet.services.as_slice() {
        let code =
            sheet.code.as_ref().map_or(String::new(), |code| format!("; the code is {code}"));
        let _ = writeln!(page, "In `[[classify]]`: `service = \"{service}\"`{code}.\n");
    }
    put(
        page,
        "| answer | what it means | outcome | what is done | held by |\n|---|---|---|---|---|",
    );
    for row in &sheet.rows {
        let own = check::own_test(sheet, row);
        let named = own.as_deref().into_iter().chain(row.tests.iter().map(String::as_str));
        let held = links(named, tests);
        let (answer, outcome, done) = (answer(row), outcome(&row.outcome), done(row));
        let _ = writeln!(page, "| {answer} | {} | {outcome} | {done} | {held} |", row.means);
    }
}

fn answer(row: &Row) -> String {
    if let Some(answer) = &row.answer {
        return answer.clone();
    }
    let statuses: Vec<String> = row.status.as_slice().iter().map(u16::to_string).collect();
    let mut parts = vec![statuses.join(", ")];
    let codes: Vec<String> = row.code.as_slice().iter().map(|code| coded(code)).collect();
    parts.extend((!codes.is_empty()).then(|| codes.join(", ")));
    parts.extend(row.retry_after.as_ref().map(|wait| format!("`Retry-After: {wait}`")));
    parts.extend(row.token_age_s.map(|age| format!("our token is {age} s old")));
    parts.extend(row.retry_all.then(|| "class with `retry_all`".to_owned()));
    parts.join("; ")
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

fn done(row: &Row) -> &str {
    if let Some(does) = &row.does {
        return does;
    }
    match row.outcome.split([' ', ',', ';']).next().unwrap_or_default() {
        "accepted" => "records it",
        "retry_backoff" => "tries again by the class's policy",
        "retry_after" if row.outcome.contains(", credential") => {
            "lets the credential rest until then"
        }
        "retry_after" if row.outcome.contains(", host") => "lets the whole host rest until then",
        "retry_after" => "lets this address rest until then",
        "gone" => "marks the address, sends nothing more there",
        "drop_message" => "dead letter; the address stays",
        "config" => "parks the work unburned, tells a person",
        "resign_once" => "again at once with a new token, once",
        "reconnect" => "again at once on another connection, free",
        "ambiguous" => "as the class says: repeat, park or drop",
        "expired" => "ends it",
        _ => "–",
    }
}

fn links<'a>(named: impl Iterator<Item = &'a str>, tests: &Tests) -> String {
    let link = |name: &str| {
        let shown = match name.split_once("::rows::").or_else(|| name.split_once("::matrix::")) {
            Some(("postrider-core", row)) => format!("rows {row}"),
            Some((_, promise)) => promise.to_owned(),
            None => name.rsplit("::").next().unwrap_or(name).to_owned(),
        };
        format!("[`{shown}`](../{})", tests.file(name).unwrap_or_default())
    };
    named.map(link).collect::<Vec<_>>().join("<br>")
}

fn differences(page: &mut String, sheets: &[Sheet]) {
    put(page, "\n## Where we differ\n");
    put(
        page,
        "Rows where what is done is not what the provider's documents or common advice ask for, and why.\n",
    );
    for sheet in sheets {
        for row in &sheet.rows {
            if let Some(why) = &row.differs {
                let _ = writeln!(page, "- **{}**, {}: {why}", sheet.title, answer(row));
            }
        }
    }
    let _ = writeln!(
        page,
        "\nThat no row of the built-in table is missing above is held by `{EVERY_ROW}`."
    );
}

fn entries(
    page: &mut String,
    title: &str,
    about: &str,
    kind: &str,
    entries: &[Entry],
    tests: &Tests,
) {
    let _ = writeln!(
        page,
        "\n## {title}\n\n{about}\n\n| {kind} | what holds here | held by |\n|---|---|---|"
    );
    for Entry { name, what, tests: named } in entries {
        let held = links(named.iter().map(String::as_str), tests);
        let _ = writeln!(page, "| {name} | {what} | {held} |");
    }
}

#[cfg(test)]
mod tests {
    use super::super::sheets::Several;
    use super::*;

    #[test]
    fn a_row_says_all_that_its_answer_depends_on() {
        let row = Row {
            status: Several::Many(vec![401, 403]),
            code: Several::Many(vec!["a|b".to_owned(), String::new()]),
            retry_after: Some("7".to_owned()),
            token_age_s: Some(301),
            retry_all: true,
            ..Row::default()
        };
        let expected = "401, 403; `a\\|b`, no code; `Retry-After: 7`; our token is 301 s old; class \
                        with `retry_all`";
        assert_eq!(answer(&row), expected);
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

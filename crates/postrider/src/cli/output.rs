//! Prints tables for people and JSON for scripts. A closed pipe is not an error.

use std::borrow::Cow;
use std::io::{ErrorKind, Write as _};

use serde_json::Value;

use super::CliResult;

#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    pub(super) json: bool,
}

impl Output {
    /// Prints the value as JSON if `--json` is given, else as `text` writes it.
    pub(super) fn show(self, value: &Value, text: impl FnOnce(&Value) -> String) -> CliResult {
        if self.json {
            return print(&format!("{value:#}"));
        }
        print(&text(value))
    }
}

/// The text with control characters written as `\u001b`, so that what others wrote cannot steer the terminal. Also
/// in JSON that means the same.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |c: char| {
        let is_order = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        is_order || (c.is_control() && !matches!(c, '\n' | '\t'))
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match steers(c) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Prints a text with exactly one newline at its end, and without what would steer the terminal.
pub(super) fn print(text: &str) -> CliResult {
    write(&format!("{}\n", harmless(text).trim_end_matches('\n')))
}

/// Prints a text of our own as it is.
pub(super) fn write(text: &str) -> CliResult {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A cell of a table: a field of an object, or a dash.
pub(super) fn cell(value: &Value, field: &str) -> String {
    match value.pointer(field).unwrap_or(&Value::Null) {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A table of `rows`; each column is a heading and a JSON pointer.
pub(super) fn table(rows: &[Value], columns: &[(&str, &str)]) -> String {
    if rows.is_empty() {
        return "nothing here".to_owned();
    }
    let mut lines: Vec<Vec<String>> =
        vec![columns.iter().map(|(heading, _)| (*heading).to_owned()).collect()];
    for row in rows {
        lines.push(columns.iter().map(|(_, field)| cell(row, field)).collect());
    }
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        for (text, width) in line.iter().zip(&widths) {
            out.push_str(&format!("{text:<width$}  "));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

pub(super) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_that_others_wrote_steers_the_terminal() {
        assert_eq!(harmless("a\tb\nc"), "a\tb\nc");
        assert_eq!(harmless("x\u{1b}[2J\u{9b}y\u{7f}\r"), "x\\u001b[2J\\u009by\\u007f\\u000d");
        assert_eq!(harmless("\u{202e}gpj.exe"), "\\u202egpj.exe");
        let json = format!("{:#}", json!({"name": "a\u{9b}b"}));
        let read: Value = serde_json::from_str(&harmless(&json)).unwrap();
        assert_eq!(read["name"], "a\u{9b}b", "JSON means the same");
    }

    #[test]
    fn a_table_is_as_wide_as_its_widest_cell() {
        let rows = [json!({"id": "a", "n": 12}), json!({"id": "long one"})];
        insta::assert_snapshot!(table(&rows, &[("ID", "/id"), ("N", "/n")]), @r"
        ID        N
        a         12
        long one  -
        ");
    }
}

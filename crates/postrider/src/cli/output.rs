//! Prints tables for people and JSON for scripts. A closed pipe is not an error.

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

/// Prints a text with exactly one newline at its end.
pub(super) fn print(text: &str) -> CliResult {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush());
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
    fn a_table_is_as_wide_as_its_widest_cell() {
        let rows = [json!({"id": "a", "n": 12}), json!({"id": "long one"})];
        insta::assert_snapshot!(table(&rows, &[("ID", "/id"), ("N", "/n")]), @r"
        ID        N
        a         12
        long one  -
        ");
    }
}

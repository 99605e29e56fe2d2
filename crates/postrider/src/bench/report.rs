//! Figures with their aims, as a table for people and as JSON for tools.

use std::fmt::Write;

#[derive(Default)]
pub(super) struct Report {
    rows: Vec<Row>,
}

struct Row {
    name: String,
    value: f64,
    what: &'static str,
    aim: Option<f64>,
}

impl Report {
    pub(super) fn add(&mut self, name: &str, value: f64, what: &'static str, aim: Option<f64>) {
        self.rows.push(Row { name: name.to_owned(), value, what, aim });
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let ratio = row
                .aim
                .map(|aim| format!("  {:.2} × the aim of {aim}", row.value / aim))
                .unwrap_or_default();
            let _ =
                writeln!(text, "{:<20} {:>12}  {}{ratio}", row.name, number(row.value), row.what);
        }
        text
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let row = |row: &Row| serde_json::json!({"name": row.name, "value": row.value, "what": row.what, "aim": row.aim});
        self.rows.iter().map(row).collect()
    }
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

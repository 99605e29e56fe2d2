//! Figures with their aims, as a table for people and as JSON for tools.

use std::fmt;

pub(super) struct BenchReport {
    rows: Vec<BenchRow>,
    /// Whether each row is printed at once.
    live: bool,
}

struct BenchRow {
    name: String,
    value: f64,
    what: &'static str,
    aim: Option<f64>,
}

impl BenchReport {
    pub(super) fn new(live: bool) -> Self {
        Self { rows: Vec::new(), live }
    }

    pub(super) fn add(&mut self, name: &str, value: f64, what: &'static str) {
        self.add_with_aim(name, value, what, None);
    }

    pub(super) fn add_with_aim(
        &mut self,
        name: &str,
        value: f64,
        what: &'static str,
        aim: impl Into<Option<f64>>,
    ) {
        let row = BenchRow { name: name.to_owned(), value, what, aim: aim.into() };
        if self.live {
            println!("{row}");
        }
        self.rows.push(row);
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let row = |row: &BenchRow| serde_json::json!({"name": row.name, "value": row.value, "what": row.what, "aim": row.aim});
        self.rows.iter().map(row).collect()
    }
}

impl fmt::Display for BenchRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<20} {:>12}  {}", self.name, number(self.value), self.what)?;
        self.aim.map_or(Ok(()), |aim| write!(f, "  ({:.2} × the aim of {aim})", self.value / aim))
    }
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

//! A chart over time: columns drawn on the server, and a table with the same figures. The script draws it anew from the
//! table, with the values under the pointer.

use maud::{Markup, html};
use postrider_core::Timestamp;
use serde_json::Value;

use super::json_read::JsonRead as _;
use super::words::{number, parse_time};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 130.0;

/// One row of figures.
pub(super) struct ChartSeries {
    pub(super) name: &'static str,
    /// `good`, `warns`, `bad`, `over` or `accent`.
    pub(super) tone: &'static str,
    /// Drawn as a line over the columns, and not stacked.
    pub(super) is_line: bool,
    pub(super) values: Vec<u64>,
}

/// Equal steps of time.
pub(super) struct ChartSpan {
    pub(super) from: Timestamp,
    pub(super) step_ms: i64,
    pub(super) steps: usize,
}

impl ChartSpan {
    /// The last steps up to now, beginning at a whole step.
    pub(super) fn last(now: Timestamp, step_ms: i64, steps: usize) -> Self {
        let end = (now.0.div_euclid(step_ms) + 1) * step_ms;
        let from = Timestamp(end - step_ms * i64::try_from(steps).unwrap_or(i64::MAX / step_ms));
        Self { from, step_ms, steps }
    }

    fn index(&self, at: Timestamp) -> Option<usize> {
        let step = (at.0 - self.from.0).div_euclid(self.step_ms);
        usize::try_from(step).ok().filter(|step| *step < self.steps)
    }

    fn at(&self, index: usize) -> Timestamp {
        Timestamp(self.from.0 + self.step_ms * i64::try_from(index).unwrap_or_default())
    }

    /// Adds up the rows of a history: `place` says to which series a row counts, and how much.
    pub(super) fn fill(
        &self,
        history: &Value,
        series: &mut [ChartSeries],
        place: impl Fn(&Value, &mut dyn FnMut(usize, u64)),
    ) {
        for point in history.list("points") {
            let Some(step) = parse_time(point.text("at")).and_then(|at| self.index(at)) else {
                continue;
            };
            for row in point.list("rows") {
                place(row, &mut |nth, count| {
                    if let Some(value) = series.get_mut(nth).and_then(|s| s.values.get_mut(step)) {
                        *value += count;
                    }
                });
            }
        }
    }

    pub(super) fn series(&self, name: &'static str, tone: &'static str) -> ChartSeries {
        ChartSeries { name, tone, is_line: false, values: vec![0; self.steps] }
    }

    pub(super) fn line(&self, name: &'static str, tone: &'static str) -> ChartSeries {
        ChartSeries { is_line: true, ..self.series(name, tone) }
    }

    /// The chart with its legend and its table. `select` is the address to which the script adds a chosen time.
    pub(super) fn chart(
        &self,
        id: &str,
        title: &str,
        series: &[ChartSeries],
        select: Option<&str>,
    ) -> Markup {
        let total: u64 = series.iter().filter(|s| !s.is_line).flat_map(|s| &s.values).sum();
        let until = self.at(self.steps);
        let filled = (0..self.steps).filter(|step| series.iter().any(|s| s.values[*step] > 0));
        html! {
            figure.chart id=(id) data-from=(self.from.0 / 1_000) data-step=(self.step_ms / 1_000)
                data-steps=(self.steps) data-select=[select] {
                figcaption {
                    b { (title) }
                    @for s in series {
                        span.key { i.(s.tone).line[s.is_line] aria-hidden="true" {} (s.name) " " b { (number(s.values.iter().sum())) } }
                    }
                }
                div.plot { (self.picture(title, series)) }
                div.ends aria-hidden="true" {
                    (super::words::moment(&self.from.to_string(), until)) (super::words::moment(&until.to_string(), until))
                }
                @if total == 0 { p.quiet.nothing { "Nothing in this time." } }
                details {
                    summary { "The same as a table" }
                    div.scroll tabindex="0" role="region" aria-label=(title) {
                        table { thead { tr { th scope="col" { "From" } @for s in series { th.n scope="col" data-tone=(s.tone) data-line=[s.is_line.then_some("1")] { (s.name) } } } }
                            tbody {
                                @for step in filled {
                                    tr data-t=(self.at(step).0 / 1_000) {
                                        td { (super::words::moment(&self.at(step).to_string(), until)) }
                                        @for s in series { td.n { (s.values[step]) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn picture(&self, title: &str, series: &[ChartSeries]) -> Markup {
        let stacked =
            |step: usize| series.iter().filter(|s| !s.is_line).map(|s| s.values[step]).sum::<u64>();
        let lines = series.iter().filter(|s| s.is_line).flat_map(|s| s.values.iter().copied());
        let top = (0..self.steps).map(stacked).chain(lines).max().unwrap_or(0).max(1) as f64;
        let width = WIDTH / self.steps.max(1) as f64;
        let y = |value: u64| value as f64 / top * HEIGHT;
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(title) {
                @for step in 0..self.steps {
                    @let mut below = 0;
                    @for s in series.iter().filter(|s| !s.is_line && s.values[step] > 0) {
                        rect class=(s.tone) x=(round(width * step as f64)) width=(round(width * 0.86))
                            y=(round(HEIGHT - y(below + s.values[step]))) height=(round(y(s.values[step]))) {}
                        ({ below += s.values[step]; "" })
                    }
                }
                @for s in series.iter().filter(|s| s.is_line && s.values.iter().any(|v| *v > 0)) {
                    polyline class=(s.tone) points=(s.values.iter().enumerate()
                        .map(|(step, value)| format!("{},{}", round(width * (step as f64 + 0.43)), round(HEIGHT - y(*value))))
                        .collect::<Vec<_>>().join(" ")) {}
                }
            }
        }
    }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_of_a_history_are_added_up_by_step() {
        let now = parse_time("2026-11-18T12:07:00.000Z").unwrap();
        let span = ChartSpan::last(now, 300_000, 3);
        assert_eq!(span.from, parse_time("2026-11-18T11:55:00.000Z").unwrap());
        let mut series = [span.series("sent", "good"), span.line("retries", "accent")];
        let row = |count: u64| json!({"count": count, "repeats": 1});
        let history = json!({"points": [
            {"at": "2026-11-18T11:00:00.000Z", "rows": [row(99)]},
            {"at": "2026-11-18T12:00:00.000Z", "rows": [row(3)]},
            {"at": "2026-11-18T12:04:00.000Z", "rows": [row(4), row(5)]},
        ]});
        span.fill(&history, &mut series, |row, add| {
            add(0, row.number("count"));
            add(1, row.number("repeats"));
        });
        assert_eq!((&*series[0].values, &*series[1].values), (&[0, 12, 0][..], &[0, 3, 0][..]));
        let chart = span.chart("c", "Attempts", &series, None).into_string();
        assert!(chart.contains("<td class=\"n\">12</td>"), "{chart}");
        assert_eq!(chart.matches("<rect").count(), 1);
    }
}

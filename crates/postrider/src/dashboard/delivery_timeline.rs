//! The life of a delivery as bars: when it waited, for what, and when a provider was called.

use maud::{Markup, html};
use postrider_core::Timestamp;
use serde_json::Value;

use super::json_read::JsonRead as _;
use super::now_page::answer_text;
use super::words::{moment, parse_time, span};

const WIDTH: f64 = 960.0;
/// A bar is wide enough to be seen.
const WIDTH_MIN: f64 = 5.0;

/// A part of its life.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TimelinePart {
    from: Timestamp,
    until: Timestamp,
    /// `queued`, `call`, `wait` or `held`.
    kind: &'static str,
    what: String,
    /// Of a call: `good`, `warns` or `bad`.
    tone: &'static str,
}

/// The parts in their order, from what the API explains.
pub(super) fn parts(explained: &Value, now: Timestamp) -> Vec<TimelinePart> {
    let delivery = explained.at("delivery");
    let log = delivery.list("log");
    let Some(created) = parse_time(delivery.text("created_at")) else { return Vec::new() };
    let mut parts = Vec::new();
    let mut reached = created;
    let mut add = |from: Timestamp, until: Timestamp, kind, what: String, tone| {
        parts.push(TimelinePart { from, until: until.max(from), kind, what, tone });
    };
    for (nth, attempt) in log.iter().enumerate() {
        let Some(at) = parse_time(attempt.text("at")) else { continue };
        let due = nth.checked_sub(1).and_then(|before| parse_time(log[before].text("next_at")));
        match due.filter(|due| *due > reached && *due <= at) {
            Some(due) => {
                add(reached, due, "wait", "waits for the next attempt".to_owned(), "warns");
                if at.0 - due.0 > 1_000 {
                    add(due, at, "held", "held by a check".to_owned(), "over");
                }
            }
            None if nth == 0 => add(reached, at, "queued", "queued".to_owned(), "accent"),
            None if at.0 - reached.0 > 1_000 => {
                add(reached, at, "held", "held by a check".to_owned(), "over");
            }
            None => {}
        }
        let end = Timestamp(at.0 + i64::try_from(attempt.number("latency_ms")).unwrap_or_default());
        let tone = match (attempt.text("outcome"), attempt.text("decision")) {
            ("accepted", _) => "good",
            (_, decision) if decision.starts_with("retry") || attempt.has("next_at") => "warns",
            _ => "bad",
        };
        add(
            at,
            end,
            "call",
            format!("call {}: {}", attempt.number("number"), answer_text(attempt)),
            tone,
        );
        reached = end;
    }
    if is_pending(delivery.text("state")) {
        let due = parse_time(delivery.text("due_at")).filter(|due| *due > now);
        let what = match explained.text("waits_for") {
            "" => delivery.text("state").to_owned(),
            waits_for => format!("waits for {waits_for}"),
        };
        let kind = if log.is_empty() {
            "queued"
        } else if due.is_some() {
            "wait"
        } else {
            "held"
        };
        add(reached, due.unwrap_or(now), kind, what, if due.is_some() { "warns" } else { "over" });
    }
    parts
}

pub(super) fn is_pending(state: &str) -> bool {
    ["queued", "sending", "retrying", "parked"].contains(&state)
}

/// The bars, and the same as a table.
pub(super) fn timeline(explained: &Value, now: Timestamp) -> Markup {
    let parts = parts(explained, now);
    let widths = widths(&parts);
    html! {
        figure.timeline {
            figcaption { b { "What happened when" }
                span.key { i.accent {} "queued" } span.key { i.good {} "accepted" } span.key { i.warns {} "to be repeated" }
                span.key { i.bad {} "refused" } span.key { i.over {} "held" }
            }
            svg viewBox=(format!("0 0 {WIDTH} 26")) preserveAspectRatio="none" role="img" aria-label="Timeline; the table below says the same" {
                @for (part, (x, width)) in parts.iter().zip(&widths) {
                    rect.(part.tone).(part.kind) x=(x) y=(if part.kind == "call" { "0" } else { "7" }) width=(width) height=(if part.kind == "call" { "26" } else { "12" }) {
                        title { (part.what) ", " (length(part)) }
                    }
                }
            }
            details open[parts.len() <= 6] {
                summary { "The same as a table" }
                div.scroll tabindex="0" role="region" aria-label="Timeline" {
                    table { thead { tr { th scope="col" { "From" } th.n scope="col" { "For" } th scope="col" { "What" } } }
                        tbody { @for part in &parts { tr {
                            td { (moment(&part.from.to_string(), now)) }
                            td.n { (length(part)) }
                            td.wrap { i.(part.tone).dot aria-hidden="true" {} (part.what) }
                        } } }
                    }
                }
            }
        }
    }
}

fn length(part: &TimelinePart) -> String {
    match part.until.0 - part.from.0 {
        ms if ms < 1_000 => format!("{ms} ms"),
        ms if ms < 60_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        ms => span(ms / 1_000),
    }
}

/// Place and width of each bar. Short ones get a width that can be seen; the long ones share the rest.
fn widths(parts: &[TimelinePart]) -> Vec<(f64, f64)> {
    let total: i64 = parts.iter().map(|part| part.until.0 - part.from.0).sum();
    let free = (WIDTH - WIDTH_MIN * parts.len() as f64).max(0.0);
    let mut x = 0.0;
    let widths = parts.iter().map(|part| {
        let share = (part.until.0 - part.from.0) as f64 / total.max(1) as f64;
        let width = WIDTH_MIN + share * free;
        let place = (x, (width - 1.0).max(1.0));
        x += width;
        place
    });
    widths.map(|(x, width)| ((x * 10.0).round() / 10.0, (width * 10.0).round() / 10.0)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn waits_and_calls_follow_each_other() {
        let explained = json!({"delivery": {"created_at": "2026-11-18T12:00:00.000Z", "state": "failed", "log": [
            {"number": 1, "at": "2026-11-18T12:00:02.000Z", "latency_ms": 150, "outcome": "retry_backoff",
             "decision": "retry", "status": 503, "next_at": "2026-11-18T12:00:10.000Z"},
            {"number": 2, "at": "2026-11-18T12:01:00.000Z", "latency_ms": 90, "outcome": "drop_message",
             "decision": "dead_letter", "status": 400}]}});
        let now = parse_time("2026-11-18T13:00:00.000Z").unwrap();
        let parts = parts(&explained, now);
        let kinds: Vec<_> = parts.iter().map(|part| (part.kind, part.tone)).collect();
        assert_eq!(
            kinds,
            [
                ("queued", "accent"),
                ("call", "warns"),
                ("wait", "warns"),
                ("held", "over"),
                ("call", "bad")
            ]
        );
        assert_eq!(length(&parts[3]), "50.0 s");
        assert!(widths(&parts).iter().all(|(x, width)| *width >= 1.0 && x + width <= WIDTH));
    }
}

//! Numbers, times and states as a person reads them.

use maud::{Markup, html};
use postrider_core::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// With thin spaces between thousands.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A rate with as many digits as say something.
pub(super) fn rate(value: f64) -> String {
    if value >= 100.0 { number(value.round() as u64) } else { format!("{value:.1}") }
}

pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    let instant: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp(instant.as_millisecond()))
}

/// Such as `14 min` or `2 h 5 min`.
pub(super) fn span(seconds: i64) -> String {
    match seconds {
        s if s < MINUTE => format!("{s} s"),
        s if s < HOUR => format!("{} min", s / MINUTE),
        s if s < 10 * HOUR => format!("{} h {} min", s / HOUR, s % HOUR / MINUTE),
        s if s < 2 * DAY => format!("{} h", s / HOUR),
        s => format!("{} d", s / DAY),
    }
}

/// A moment of the past, or to come: `4 min ago`, `in 20 s`.
pub(super) fn relative(at: Timestamp, now: Timestamp) -> String {
    match (now.0 - at.0) / 1_000 {
        0 => "now".to_owned(),
        past if past > 0 => format!("{} ago", span(past)),
        to_come => format!("in {}", span(-to_come)),
    }
}

/// The time of day, with the day unless it is today. The script shows it in the zone that the person chose.
pub(super) fn moment(text: &str, now: Timestamp) -> Markup {
    let Some(at) = parse_time(text) else { return html! { span.quiet { "–" } } };
    let is_today = at.0.div_euclid(DAY * 1_000) == now.0.div_euclid(DAY * 1_000);
    let time = text.get(11..19).unwrap_or(text);
    let day = text.get(5..10).unwrap_or_default();
    html! {
        time datetime=(text) title=(text) data-day=[(!is_today).then_some("1")] {
            @if !is_today { (day) " " } (time)
        }
    }
}

/// How long ago, with the moment itself on hover.
pub(super) fn ago(text: &str, now: Timestamp) -> Markup {
    let Some(at) = parse_time(text) else { return html! { span.quiet { "–" } } };
    html! { time.ago datetime=(text) title=(text) { (relative(at, now)) } }
}

/// A state by shape and word, never by colour alone.
pub(super) fn state(name: &str) -> Markup {
    let (shape, tone) = match name {
        "queued" => ("○", "waits"),
        "sending" | "running" => ("◐", "moves"),
        "retrying" | "waiting" | "half_open" | "ending" | "warning" | "paused" | "muted" => {
            ("▲", "warns")
        }
        "parked" | "held" | "acknowledged" | "notice" => ("◇", "holds"),
        "sent" | "ready" | "closed" | "ok" | "done" | "resolved" | "open_gate" => ("●", "good"),
        "delivered" | "seen" | "clicked" | "dismissed" => ("✔", "good"),
        "failed" | "blocked" | "open" | "expired_credential" | "unusable" | "critical"
        | "forced_open" | "aborted" | "refused" => ("■", "bad"),
        "gone" | "expired" | "cancelled" | "discarded" => ("×", "over"),
        _ => ("·", "plain"),
    };
    let class = format!("state {tone}");
    html! { span class=(class) { span.shape aria-hidden="true" { (shape) } (name.replace('_', " ")) } }
}

/// A breaker in the words of a person: a closed one lets calls through.
pub(super) fn breaker(name: &str) -> Markup {
    let (shape, tone, word) = match name {
        "closed" => ("●", "good", "lets calls through"),
        "open" => ("■", "bad", "open: sends nothing"),
        "half_open" => ("▲", "warns", "tries a few"),
        "forced_open" => ("■", "bad", "forced open"),
        "forced_closed" => ("▲", "warns", "forced closed"),
        other => ("·", "plain", other),
    };
    let class = format!("state {tone}");
    html! { span class=(class) { span.shape aria-hidden="true" { (shape) } (word) } }
}

/// A provider without the part that all have.
pub(super) fn provider(name: &str) -> &str {
    name.strip_prefix("https://").unwrap_or(name)
}

/// An id: the kind and the end of it, with the whole of it on hover.
pub(super) fn short_id(id: &str) -> Markup {
    let (kind, rest) = id.split_once('_').unwrap_or(("", id));
    let end: String = rest.chars().skip(rest.chars().count().saturating_sub(8)).collect();
    html! { code title=(id) { (kind) "_…" (end) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_spans_are_readable() {
        assert_eq!(number(1_234_567).replace('\u{202f}', " "), "1 234 567");
        assert_eq!(number(999), "999");
        assert_eq!(
            [5, 65, 3_900, 40_000, 200_000].map(span),
            ["5 s", "1 min", "1 h 5 min", "11 h", "2 d"]
        );
        let now = Timestamp::from_secs(1_000);
        assert_eq!(relative(Timestamp::from_secs(880), now), "2 min ago");
        assert_eq!(relative(Timestamp::from_secs(1_020), now), "in 20 s");
    }

    #[test]
    fn a_moment_of_another_day_names_the_day() {
        let now = parse_time("2026-11-18T20:00:00.000Z").unwrap();
        let today = moment("2026-11-18T03:12:09.000Z", now).into_string();
        assert!(today.contains(">03:12:09<"), "{today}");
        let before = moment("2026-11-17T03:12:09.000Z", now).into_string();
        assert!(before.contains("11-17 03:12:09"), "{before}");
    }
}

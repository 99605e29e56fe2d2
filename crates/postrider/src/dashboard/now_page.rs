//! The first page: what is wrong, for whom, since when; four numbers; what happened in the last hours.

use axum::response::IntoResponse as _;
use maud::{Markup, html};
use serde_json::Value;

use super::chart::ChartSpan;
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts, region};
use super::notes::pin_form;
use super::page_context::PageContext;
use super::page_parts::{PagePart, part};
use super::problem_pages;
use super::refusal_page::{PageResult, refusing};
use super::words::{ago, moment, number, provider, rate, short_id, span, state};

const STEP_MS: i64 = 300_000;
const STEPS: usize = 72;
/// Minutes over which the numbers of a tenant are averaged.
const RECENT: usize = 10;
const LAST_RESOLVED: [(&str, Option<&str>); 2] =
    [("state", Some("resolved")), ("limit", Some("1"))];

/// What the page is made of.
struct NowFigures {
    stats: PagePart,
    problems: PagePart,
    resolved: PagePart,
    dead: PagePart,
    attempts: PagePart,
    ended: PagePart,
}

pub(super) async fn show(page: PageContext) -> PageResult {
    let calls = &page.calls;
    let from = ChartSpan::last(page.now, STEP_MS, STEPS).from.to_string();
    let history = |kind: &'static str, by: &'static str| {
        let (calls, from) = (calls.clone(), from.clone());
        async move {
            let query = [
                ("resolution", Some("minute")),
                ("from", Some(from.as_str())),
                ("kind", Some(kind)),
                ("by", Some(by)),
            ];
            calls.get_with("/v1/stats/history", &query).await
        }
    };
    let (stats, problems, resolved, dead, attempts, ended) = tokio::join!(
        part(&page, "stats", calls.get("/v1/stats")),
        part(&page, "problems", calls.get("/v1/problems")),
        part(&page, "resolved", calls.get_with("/v1/problems", &LAST_RESOLVED)),
        part(&page, "dead", calls.get_with("/v1/dead-letters", &[("limit", Some("6"))])),
        part(&page, "attempts", history("attempts", "outcome")),
        part(&page, "ended", history("deliveries", "outcome")),
    );
    let refusing = refusing(&page);
    let figures = NowFigures {
        stats: stats.map_err(&refusing)?,
        problems: problems.map_err(&refusing)?,
        resolved: resolved.map_err(&refusing)?,
        dead: dead.map_err(&refusing)?,
        attempts: attempts.map_err(&refusing)?,
        ended: ended.map_err(&refusing)?,
    };
    let body = html! {
        (region(&page, "problems", &problems_part(&page, &figures)))
        (pin_form(&page))
        (region(&page, "numbers", &numbers(&page, &figures)))
        (region(&page, "attempts", &html! {
            (attempts_chart(&page, &figures.attempts.value))
            (figures.attempts.note(page.now))
        }))
        (region(&page, "dead", &last_failures(&page, &figures)))
    };
    let parts = PageParts {
        title: "Now",
        cli: vec!["postrider problems list".to_owned(), "postrider status".to_owned()],
        ..PageParts::default()
    };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn problems_part(page: &PageContext, figures: &NowFigures) -> Markup {
    let open = figures.problems.value.list("problems");
    if !open.is_empty() || figures.problems.is_absent() {
        return html! {
            h2 { "What is wrong" @if !open.is_empty() { span.count { (open.len()) } } }
            (figures.problems.note(page.now))
            ul.problems { @for problem in open { li { (problem_pages::card(page, problem)) } } }
        };
    }
    let last = figures.resolved.value.list("problems").first();
    let uptime = figures.stats.value.at("uptime_s").as_i64();
    html! {
        div.card.fine {
            h2 { span.state.good { span.shape aria-hidden="true" { "●" } } "Nothing is wrong" }
            @match (last, uptime) {
                (Some(last), _) => p.quiet {
                    "since " (moment(last.text("resolved_at"), page.now)) ", when "
                    a href=(page.link(&format!("/problems/{}", last.text("id")))) { (last.text("title")) }
                    " ended."
                }
                (None, Some(uptime)) => p.quiet { "since the server started " (span(uptime)) " ago." }
                (None, None) => {}
            }
            (figures.problems.note(page.now))
        }
    }
}

fn numbers(page: &PageContext, figures: &NowFigures) -> Markup {
    if figures.stats.is_absent() {
        return figures.stats.note(page.now);
    }
    let stats = &figures.stats.value;
    let server = page.sees_server();
    let recent = |history: &PagePart, counts: fn(&str) -> bool| {
        let points = history.value.list("points");
        let last = points.iter().skip(points.len().saturating_sub(RECENT));
        let rows = last.flat_map(|point| point.list("rows"));
        let sum: u64 =
            rows.filter(|row| counts(row.text("outcome"))).map(|r| r.number("count")).sum();
        (!history.is_absent()).then_some(sum as f64 / RECENT as f64)
    };
    let sent = match server {
        true => stats.at("rates.sent_per_s").as_f64(),
        false => recent(&figures.attempts, |outcome| outcome == "accepted").map(|sum| sum / 60.0),
    };
    let dead = match server {
        true => stats.at("rates.dead_lettered_per_s").as_f64().map(|per_s| per_s * 60.0),
        false => recent(&figures.ended, is_dead_reason),
    };
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), rate);
    let capacity = if server { "server_capacity" } else { "capacity" };
    let fill = stats.at(capacity).at("fill").as_f64().unwrap_or_default();
    let most = stats.at(capacity).number("deliveries_max");
    let all_dead: u64 = stats.at("states").number("failed");
    html! {
        div.numbers aria-label="Now" role="group" {
            div.number { b { (shown(sent)) } span { "sent / s" } }
            @if server {
                @let oldest = stats.at("oldest_pending_s").as_f64();
                div.number { b { (oldest.map_or_else(|| "–".to_owned(), |s| span(s as i64))) } span { "oldest pending" } }
            }
            a.number href=(page.link("/lanes")) {
                b { (number(stats.number("depth"))) }
                span { "pending" @if most > 0 { " of " (number(most)) } }
                meter min="0" max="1" high="0.8" value=(fill) aria-label="Capacity used" { (format!("{:.0} %", fill * 100.0)) }
            }
            a.number.alarm[dead.is_some_and(|dead| dead >= 1.0)] href=(page.link("/dead")) {
                b { (shown(dead)) } span { "dead letters / min, " (number(all_dead)) " in all" }
            }
        }
        (figures.stats.note(page.now))
        @if stats.has("problems") {
            ul.store-problems { @for found in stats.list("problems") { li { (found.text("what")) } } }
        }
    }
}

/// Whether the name of an end is that of a dead letter.
pub(super) fn is_dead_reason(outcome: &str) -> bool {
    postrider_core::DeadReason::parse(outcome).is_some()
}

pub(super) fn attempts_chart(page: &PageContext, history: &Value) -> Markup {
    let span = ChartSpan::last(page.now, STEP_MS, STEPS);
    let mut series = [
        span.series("accepted", "good"),
        span.series("to be repeated", "warns"),
        span.series("refused", "bad"),
        span.line("retries made", "accent"),
    ];
    span.fill(history, &mut series, |row, add| {
        let nth = match row.text("outcome") {
            "accepted" => 0,
            "gone" | "drop_message" | "config" | "expired" => 2,
            _ => 1,
        };
        add(nth, row.number("count"));
        add(3, row.number("repeats"));
    });
    let select = page.link("/deliveries");
    span.chart("attempts", "Attempts in the last 6 hours, by 5 minutes", &series, Some(&select))
}

fn last_failures(page: &PageContext, figures: &NowFigures) -> Markup {
    let items = figures.dead.value.list("items");
    html! {
        h2 { "Latest dead letters" a.more href=(page.link("/dead")) { "All, by cause" } }
        @if figures.dead.is_absent() {}
        @else if items.is_empty() { p.quiet { "There are none." } }
        @else { (delivery_rows(page, items, "Latest dead letters")) }
        (figures.dead.note(page.now))
    }
}

/// A short table of deliveries.
pub(super) fn delivery_rows(page: &PageContext, items: &[Value], label: &str) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table.cards {
                thead { tr {
                    th scope="col" { "Delivery" } th scope="col" { "State" } th scope="col" { "Provider" }
                    th scope="col" { "Last answer" } th scope="col" { "Tenant" } th scope="col" { "Changed" }
                } }
                tbody { @for item in items { (delivery_row(page, item)) } }
            }
        }
    }
}

fn delivery_row(page: &PageContext, item: &Value) -> Markup {
    let id = item.text("id");
    let last = item.list("log").last();
    html! {
        tr data-row="1" id=(format!("row-{id}")) {
            td { a href=(page.link(&format!("/deliveries/{id}"))) { (short_id(id)) } }
            td data-label="State" { (state(item.text("state"))) @if item.has("reason") { span.quiet { " " (item.text("reason").replace('_', " ")) } } }
            td data-label="Provider" { span.channel { (item.text("channel")) } " " (provider(item.text("provider"))) }
            td.answer data-label="Last answer" { @if let Some(last) = last { (answer_text(last)) } @else { span.quiet { "no attempt" } } }
            td data-label="Tenant" { (item.text("tenant")) }
            td data-label="Changed" { (ago(item.text("changed_at"), page.now)) }
        }
    }
}

/// What a provider answered, in one line.
pub(super) fn answer_text(attempt: &Value) -> String {
    let status = attempt.at("status").as_u64().map(|status| status.to_string());
    let code = Some(attempt.text("code")).filter(|code| !code.is_empty());
    let detail = Some(attempt.text("detail")).filter(|detail| !detail.is_empty());
    let parts: Vec<&str> = [status.as_deref(), code, detail].into_iter().flatten().collect();
    if parts.is_empty() { attempt.text("outcome").replace('_', " ") } else { parts.join(" · ") }
}

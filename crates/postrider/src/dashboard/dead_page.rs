//! What can be saved: dead letters by cause, with a look before anything happens to them.

use axum::response::IntoResponse as _;
use maud::{Markup, html};
use serde_json::Value;

use super::chart::ChartSpan;
use super::dead_groups::{DeadCause, DeadGroup, DeadGroups, FILTERS, dead_groups};
use super::deliveries_search::command;
use super::job_plan::JobWish;
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts, region};
use super::now_page::{answer_text, is_dead_reason};
use super::page_context::PageContext;
use super::refusal_page::{PageResult, refusing};
use super::words::{ago, moment, number, provider};

const STEP_MS: i64 = 20 * 60_000;
const STEPS: usize = 72;

pub(super) async fn show(page: PageContext) -> PageResult {
    let from = ChartSpan::last(page.now, STEP_MS, STEPS).from.to_string();
    let history = [
        ("resolution", Some("minute")),
        ("from", Some(from.as_str())),
        ("kind", Some("deliveries")),
        ("by", Some("outcome")),
    ];
    let (found, stats, history) = tokio::join!(
        dead_groups(&page),
        page.calls.get("/v1/stats"),
        page.calls.get_with("/v1/stats/history", &history)
    );
    let found = found.map_err(refusing(&page))?;
    let stats = stats.map_err(refusing(&page))?;
    let history = history.map_err(refusing(&page))?;
    let body = html! {
        (region(&page, "dead", &html! {
            (reasons(&page, &stats))
            (groups(&page, &found, &stats, &history))
        }))
        (arrivals(&page, &history))
    };
    let parts = PageParts {
        title: "Dead letters",
        cli: vec![command("postrider dead list", &page.query, &FILTERS)],
        ..PageParts::default()
    };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

/// How many dead letters there are by reason, of all and not only of the newest, and the filters in force.
fn reasons(page: &PageContext, stats: &Value) -> Markup {
    let counts = stats.at("dead_letters").as_object();
    let chosen = page.query.get("reason");
    let others = FILTERS.iter().filter(|name| **name != "reason");
    html! {
        div.facets { div.facet {
            span.quiet { "Reason" }
            @for (reason, count) in counts.into_iter().flatten() {
                @let here = chosen == Some(reason.as_str());
                @let count = count.as_u64().unwrap_or_default();
                @if count > 0 || here {
                    a.chip.on[here] href=(page.query.with("reason", (!here).then_some(reason)).to(&page.path)) {
                        (reason.replace('_', " ")) " " b { (number(count)) } @if here { span aria-label="remove" { " ×" } }
                    }
                }
            }
            @for name in others {
                @if let Some(value) = page.query.get(name) {
                    a.chip.on href=(page.query.with(name, None).to(&page.path)) { (name) ": " (provider(value)) span aria-label="remove" { " ×" } }
                }
            }
        } }
    }
}

fn groups(page: &PageContext, found: &DeadGroups, stats: &Value, history: &Value) -> Markup {
    let total: u64 = found.groups.iter().map(|group| group.count).sum();
    let counts = stats.at("dead_letters").as_object();
    let all: u64 = counts.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
    let is_filtered = FILTERS.iter().any(|name| page.query.get(name).is_some());
    html! {
        @if found.groups.is_empty() {
            div.card.empty { p {
                @if is_filtered { "No dead letter matches." }
                @else if let Some(at) = last_arrival(history) { "Empty. The last one: " (ago(at, page.now)) ", at " (moment(at, page.now)) "." }
                @else { "Empty. The last one: before the last 24 hours, or never." }
            } }
        }
        @else {
            @if found.is_partial {
                p.partial role="note" { b { "The causes of the newest " (number(found.looked_at as u64)) " only" }
                    @if all > 0 { ", of " (number(all)) " dead letters in all" }
                    ". Older ones may have other causes: choose a reason above to see its newest. An action takes all that match its cause, however old." }
            } @else {
                p.quiet { (number(total)) " dead letters of " (found.groups.len()) " causes." }
            }
            div.scroll tabindex="0" role="region" aria-label="Dead letters by cause" {
                table.cards { thead { tr { th scope="col" { "Cause" } th scope="col" { "Provider" } th scope="col" { "Tenant" } th.n scope="col" { "Count" } th scope="col" { "Newest" } th scope="col" { span.unseen { "Actions" } } } }
                    tbody { @for group in &found.groups { (group_row(page, group)) } }
                }
            }
        }
    }
}

fn group_row(page: &PageContext, group: &DeadGroup) -> Markup {
    let cause = &group.cause;
    let planned = |kind: &'static str| plan_link(page, cause, kind);
    let last = group.newest.list("log").last().map(answer_text).unwrap_or_default();
    html! {
        tr data-row="1" {
            td.wrap { b { (cause.reason.replace('_', " ")) } @if !last.is_empty() { div.answer { (last) } } }
            td data-label="Provider" { span.channel { (cause.channel) } " " (provider(&cause.provider)) }
            td data-label="Tenant" { (cause.tenant) }
            td.n data-label="Count" { b { (number(group.count)) } }
            td data-label="Newest" { a href=(page.link(&format!("/deliveries/{}", group.newest.text("id")))) { (ago(group.newest.text("changed_at"), page.now)) } }
            td.does { div.actions {
                a.button href=(planned("replay")) { "Replay …" }
                a.button.link href=(planned("discard")) { "Discard …" }
                a.button.link href=(planned("export")) { "Export …" }
            } }
        }
    }
}

/// The last step of the history in which a delivery became a dead letter.
fn last_arrival(history: &Value) -> Option<&str> {
    let arrived =
        |point: &&Value| point.list("rows").iter().any(|row| is_dead_reason(row.text("outcome")));
    history.list("points").iter().rfind(arrived).map(|point| point.text("at"))
}

fn plan_link(page: &PageContext, cause: &DeadCause, kind: &'static str) -> String {
    let mut filter = cause.exact_fields();
    if kind == "export" {
        filter.push(("state", "failed"));
    }
    JobWish::new(kind, Some(&cause.tenant), &filter).link(page)
}

fn arrivals(page: &PageContext, history: &Value) -> Markup {
    let span = ChartSpan::last(page.now, STEP_MS, STEPS);
    let mut series = [
        span.series("attempts used up", "warns"),
        span.series("permanent", "bad"),
        span.series("other reasons", "over"),
    ];
    span.fill(history, &mut series, |row, add| {
        let nth = match row.text("outcome") {
            "retries_exhausted" => 0,
            "permanent" => 1,
            outcome if is_dead_reason(outcome) => 2,
            _ => return,
        };
        add(nth, row.number("count"));
    });
    span.chart("arrivals", "Arrivals in the last 24 hours, by 20 minutes", &series, None)
}

//! What waits for what: lanes, the check that holds each, and what an operator can order.

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::action_form::{ActionForm, button, hidden, submit};
use super::api_calls::{PageCallResult, RefusedCall};
use super::cookies::ActionNotice;
use super::deliveries_search::command;
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts, region};
use super::page_context::PageContext;
use super::problem_pages::encoded;
use super::refusal_page::{PageResult, refusing};
use super::words::{ago, breaker, moment, number, provider, state};
use crate::keys::KeyScope;

/// How long a pause lasts, in seconds, with its words. The first is what the form begins with.
pub(super) const PAUSES: [(&str, &str); 5] = [
    ("3600", "for 1 hour"),
    ("900", "for 15 minutes"),
    ("14400", "for 4 hours"),
    ("86400", "for 1 day"),
    ("", "until it is resumed"),
];

const FILTERS: [&str; 4] = ["state", "channel", "provider", "class"];
/// Lanes of a view.
const SHOWN: &str = "500";

pub(super) async fn list(page: PageContext) -> PageResult {
    let asked = |names: &[&'static str]| {
        let mut query: Vec<_> = names.iter().map(|name| (*name, page.query.get(name))).collect();
        query.push(("limit", Some(SHOWN)));
        query
    };
    let (shown, of_all_states) = (asked(&FILTERS), asked(&FILTERS[1..]));
    let (found, all) = tokio::join!(
        page.calls.get_with("/v1/lanes", &shown),
        page.calls.get_with("/v1/lanes", &of_all_states),
    );
    let found = found.map_err(refusing(&page))?;
    let all = all.map_err(refusing(&page))?;
    let lanes: Vec<&Value> = found.list("lanes").iter().collect();
    let body = html! {
        (chips(&page, &all))
        (region(&page, "lanes", &table(&page, &lanes, found.has("has_more"))))
    };
    let parts = PageParts {
        title: "Lanes",
        cli: vec![command("postrider lanes list", &page.query, &FILTERS)],
        ..PageParts::default()
    };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn chips(page: &PageContext, found: &Value) -> Markup {
    let lanes = found.list("lanes");
    let more = if found.has("has_more") { "+" } else { "" };
    html! {
        div.facets {
            div.facet {
                span.quiet { "State" }
                @for name in ["ready", "waiting", "blocked"] {
                    @let here = page.query.get("state") == Some(name);
                    @let count = lanes.iter().filter(|lane| lane.text("state") == name).count();
                    a.chip.on[here] href=(page.query.with("state", (!here).then_some(name)).to(&page.path)) { (state(name)) " " b { (count) (more) } }
                }
            }
            @for name in &FILTERS[1..] {
                @if let Some(value) = page.query.get(name) {
                    a.chip.on href=(page.query.with(name, None).to(&page.path)) { (name) ": " (provider(value)) span aria-label="remove" { " ×" } }
                }
            }
        }
    }
}

fn table(page: &PageContext, lanes: &[&Value], has_more: bool) -> Markup {
    let is_filtered = FILTERS.iter().any(|name| page.query.get(name).is_some());
    let held = lanes.iter().filter(|lane| lane.text("state") != "ready").count();
    html! {
        @if lanes.is_empty() { div.card.empty { p { @if is_filtered { "No lane matches." } @else { "Nothing is pending, and no lane is paused." } } } }
        @else {
            @if has_more { p.quiet { "The " (lanes.len()) " with the most pending; there are more. Filters are asked of all lanes." } }
            @if held == 0 { p.quiet { "All ready." } }
            (lane_rows(page, lanes))
        }
    }
}

/// A table of lanes, with what holds each.
pub(super) fn lane_rows(page: &PageContext, lanes: &[&Value]) -> Markup {
    let most = lanes.iter().map(|lane| lane.number("pending")).max().unwrap_or(0).max(1);
    html! {
        div.scroll tabindex="0" role="region" aria-label="Lanes" {
            table.cards { thead { tr {
                th scope="col" { "Lane" } th scope="col" { "Provider" } th scope="col" { "Class" } th scope="col" { "Tenant" } th scope="col" { "State" }
                th scope="col" { "Held by" } th.n scope="col" { "Pending" } th.n scope="col" { "In flight" } th scope="col" { "Breaker" }
            } }
            tbody { @for lane in lanes {
                @let id = lane.number("id");
                tr data-row="1" id=(format!("row-{id}")) {
                    td { a href=(page.link(&format!("/lanes/{id}"))) { "Lane " (id) } }
                    td data-label="Provider" { span.channel { (lane.text("channel")) } " " (provider(lane.text("provider"))) }
                    td data-label="Class" { (lane.text("class")) }
                    td data-label="Tenant" { (lane.text("tenant")) }
                    td data-label="State" { (state(lane.text("state"))) }
                    td.wrap data-label="Held by" { @if lane.has("held_by") { (lane.text("held_by")) @if lane.has("until") { span.quiet { " " (ago(lane.text("until"), page.now)) } } } @else { span.quiet { "–" } } }
                    td.n data-label="Pending" { meter min="0" max=(most) value=(lane.number("pending")) aria-label="Share of the deepest lane" {} " " (number(lane.number("pending"))) }
                    td.n data-label="In flight" { (lane.number("provider_in_flight")) " / " (lane.number("provider_limit")) }
                    td data-label="Breaker" { (breaker(lane.text("breaker"))) }
                }
            } } }
        }
    }
}

pub(super) async fn show(page: PageContext, Path(id): Path<String>) -> PageResult {
    let found = page.calls.get(&format!("/v1/lanes/{}", encoded(&id))).await;
    let lane = found.map_err(refusing(&page))?;
    let title = format!("Lane {id}");
    let body = html! {
        (region(&page, "lanes", &standing(&page, &lane)))
        div.pair { (orders(&page, &lane)) (gates(&lane)) }
    };
    let parts = PageParts {
        title: &title,
        cli: vec![format!("postrider lanes show {id}")],
        ..PageParts::default()
    };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn standing(page: &PageContext, lane: &Value) -> Markup {
    let filter = [("channel", lane.text("channel")), ("state", "queued")];
    html! {
        article.card.why {
            header { (state(lane.text("state"))) b { (lane.text("channel")) " to " (provider(lane.text("provider"))) } }
            p.lead {
                @if lane.has("waits_for") { "Held by " b { (lane.text("held_by")) } ": " (lane.text("waits_for")) "." }
                @else { "Everything that is due is sent." }
                @if lane.has("until") { " It goes on by itself " (ago(lane.text("until"), page.now)) ", at " (moment(lane.text("until"), page.now)) "." }
            }
            dl.facts {
                dt { "Tenant" } dd { (lane.text("tenant")) }
                dt { "Class" } dd { (lane.text("class")) }
                dt { "Pending" } dd { a href=(page.link_with("/deliveries", &filter)) { (number(lane.number("pending"))) } ", " (number(lane.number("in_flight"))) " in flight" }
                dt { "Provider" } dd { (lane.number("provider_in_flight")) " calls in progress, at most " (lane.number("provider_limit")) " at present" }
                dt { "Breaker" } dd { (breaker(lane.text("breaker"))) }
                @if lane.has("next_due") { dt { "Next due" } dd { (moment(lane.text("next_due"), page.now)) } }
            }
        }
    }
}

fn orders(page: &PageContext, lane: &Value) -> Markup {
    let to = |action: &str| page.link(&format!("/lanes/{}/{action}", lane.number("id")));
    let is_paused = lane.text("held_by") == "lane not paused";
    let may = page.may(KeyScope::Manage);
    html! {
        section.card {
            h2 { "What you can order" }
            @if is_paused { (button(page, &to("resume"), "Resume", KeyScope::Manage, &[])) }
            @else {
                form.stack method="post" action=(to("pause")) {
                    (hidden(page, &page.here()))
                    label for="reason" { "Why it is paused" }
                    input #reason name="reason" required maxlength="200" placeholder="Their maintenance until 14:00" disabled[!may];
                    label for="for_s" { "How long" }
                    select #for_s name="for_s" disabled[!may] { @for (seconds, words) in PAUSES { option value=(seconds) { (words) } } }
                    (submit("Pause", "main", may, KeyScope::Manage))
                }
            }
            h3 { "Breaker of this provider, for all its lanes" }
            div.actions {
                (button(page, &to("breaker"), "Force open", KeyScope::Admin, &[("force", "open")]))
                (button(page, &to("breaker"), "Force closed", KeyScope::Admin, &[("force", "closed")]))
                (button(page, &to("breaker"), "By the failures", KeyScope::Admin, &[("force", "auto")]))
            }
            @if lane.has("can_do") {
                h3 { "On the command line" }
                ul.can-do { @for step in lane.list("can_do") { li { code { (step.as_str().unwrap_or_default()) } } } }
            }
        }
    }
}

fn gates(lane: &Value) -> Markup {
    html! {
        section.card {
            h2 { "Checks, in their order" }
            ul.gates { @for gate in lane.list("gates") {
                @let (shape, tone) = match gate.text("verdict") { "open" => ("●", "good"), "waiting" => ("▲", "warns"), _ => ("■", "bad") };
                li { span.state.(tone) { span.shape aria-hidden="true" { (shape) } span.unseen { (gate.text("verdict")) ": " } (gate.text("gate")) } span.quiet { (gate.text("detail")) } }
            } }
        }
    }
}

pub(super) async fn act(
    page: PageContext,
    Path((id, action)): Path<(String, String)>,
    form: ActionForm,
) -> Response {
    let done = order(&page, &id, &action, &form).await;
    page.back(form.back(), done)
}

async fn order(
    page: &PageContext,
    id: &str,
    action: &str,
    form: &ActionForm,
) -> PageCallResult<ActionNotice> {
    let path = format!("/v1/lanes/{}", encoded(id));
    let lane = page.calls.get(&path).await?;
    let calls = page.calls.for_tenant(lane.text("tenant"));
    let to = |action: &str| page.link(&format!("/lanes/{id}/{action}"));
    let (body, text, undo) = match action {
        "pause" => {
            let reason = form.get("reason").ok_or_else(|| {
                RefusedCall::new(
                    422,
                    "A reason is missing",
                    "Say why it is paused: others will want to know.",
                )
            })?;
            let for_s = form.get("for_s").and_then(|seconds| seconds.parse::<u64>().ok());
            let mut body = json!({"reason": reason});
            if let Some(for_s) = for_s {
                body["for_s"] = for_s.into();
            }
            let until = for_s.map_or("until it is resumed".to_owned(), |s| {
                format!("for {}", super::words::span(i64::try_from(s).unwrap_or(i64::MAX)))
            });
            (body, format!("Lane {id} is paused {until}."), Some(to("resume")))
        }
        "resume" => (Value::Null, format!("Lane {id} sends again."), None),
        "breaker" => {
            let force = form.get("force").unwrap_or("auto");
            (json!({"force": force}), format!("The breaker of lane {id} is set: {force}."), None)
        }
        _ => return Err(RefusedCall::new(404, "Not found", "There is no such action.")),
    };
    calls.post(&format!("{path}/{action}"), &body).await?;
    Ok(ActionNotice { text, is_bad: false, undo })
}

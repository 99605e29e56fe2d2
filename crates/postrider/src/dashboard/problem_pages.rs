//! One problem: what broke, what it touches, what Postrider does about it, and what can be done.

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::action_form::{ActionForm, button, hidden, submit};
use super::api_calls::{PageCallResult, RefusedCall};
use super::chart::ChartSpan;
use super::cookies::ActionNotice;
use super::deliveries_search::quoted;
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts, region};
use super::notes::pin_form;
use super::now_page::delivery_rows;
use super::page_context::PageContext;
use super::problem_orders;
use super::problem_samples::{ProblemPlace, samples};
use super::refusal_page::{PageResult, refusing};
use super::words::{ago, moment, number, provider, state};
use crate::keys::KeyScope;

const STEP_MS: i64 = 60_000;
const STEPS: usize = 120;

/// One problem in a list: what, for whom, since when, and one button.
pub(super) fn card(page: &PageContext, problem: &Value) -> Markup {
    let link = page.link(&format!("/problems/{}", problem.text("id")));
    html! {
        article.problem.(problem.text("severity")) data-row="1" {
            header {
                (state(problem.text("severity")))
                h3 { a href=(link) { (problem.text("title")) } }
                span.quiet { "for " (ago(problem.text("since"), page.now)) }
            }
            p { (where_and_what(problem)) }
            p.quiet { (whom(problem)) " " (problem.text("doing")) }
            div.actions {
                (remedy(page, problem))
                @if problem.has("status_page") { a.button.link href=(problem.text("status_page")) rel="noreferrer" { "What the provider says" } }
                @if problem.text("state") == "open" { (action(page, problem, "acknowledge", "Acknowledge")) }
                @else { (state(problem.text("state"))) }
            }
        }
    }
}

fn where_and_what(problem: &Value) -> Markup {
    html! {
        @if problem.has("channel") { span.channel { (problem.text("channel")) } " " }
        @if problem.has("provider") { b { (provider(problem.text("provider"))) } " · " }
        (problem.text("what"))
    }
}

fn whom(problem: &Value) -> String {
    let names: Vec<&str> = problem.list("tenants").iter().map(|t| t.text("tenant")).collect();
    let count = number(problem.number("count"));
    match names.as_slice() {
        [] => format!("Count {count}."),
        [one] => format!("Tenant {one}, count {count}."),
        [first, rest @ ..] => format!("Tenant {first} and {} more, count {count}.", rest.len()),
    }
}

fn action(page: &PageContext, problem: &Value, what: &str, label: &str) -> Markup {
    let path = format!("/problems/{}/{what}", problem.text("id"));
    button(page, &page.link(&path), label, KeyScope::Manage, &[])
}

/// The page where the problem can be solved.
fn remedy(page: &PageContext, problem: &Value) -> Markup {
    let place = ProblemPlace::of(problem);
    let (to, label) = match problem.text("kind") {
        "credential_failing" | "credential_expiring" => {
            (page.link("/providers"), "See the accounts")
        }
        "breaker_open" | "mass_gone" | "capacity" | "depth_unusual" | "lag" => {
            (page.link_with("/lanes", &place.of_lanes()), "See the lanes")
        }
        "dead_letters" | "retries_exhausted" | "bad_requests" => {
            (page.link_with("/dead", &place.of_deliveries()), "See what can be saved")
        }
        "retry_storm" => {
            let mut failing = place.of_deliveries();
            failing.push(("state", "retrying"));
            (page.link_with("/deliveries", &failing), "See what is repeated")
        }
        "many_failures" | "new_failure" => {
            (page.link(&format!("/problems/{}", problem.text("id"))), "See examples")
        }
        _ => return html! {},
    };
    html! { a.button.main href=(to) { (label) } }
}

pub(super) async fn show(page: PageContext, Path(id): Path<String>) -> PageResult {
    let refusing = refusing(&page);
    let path = format!("/v1/problems/{}", encoded(&id));
    let problem = page.calls.get(&path).await.map_err(&refusing)?;
    let place = ProblemPlace::of(&problem);
    let from = ChartSpan::last(page.now, STEP_MS, STEPS).from.to_string();
    let history = [
        ("resolution", Some("minute")),
        ("from", Some(from.as_str())),
        ("kind", Some("attempts")),
        ("channel", place.channel),
        ("provider", place.provider),
        ("by", Some("outcome")),
    ];
    let (samples, history, lanes) = tokio::join!(
        samples(&page, &problem),
        page.calls.get_with("/v1/stats/history", &history),
        problem_orders::lanes(&page, &problem),
    );
    let history = history.map_err(&refusing)?;
    let samples = samples.map_err(&refusing)?;
    let lanes = lanes.map_err(&refusing)?;
    let title = problem.text("title").to_owned();
    let orders = problem_orders::orders(&page, &problem, &lanes);
    let body = html! {
        (region(&page, "problems", &facts(&page, &problem, &orders)))
        (chart(&page, &problem, &history))
        (region(&page, "lanes", &problem_orders::lanes_part(&page, &problem, &lanes)))
        h2 { "Examples" }
        @if samples.is_empty() { p.quiet { "No delivery of it is left." } }
        @else { (delivery_rows(&page, &samples, "Examples")) }
        (pin_form(&page))
    };
    let cli = vec![format!("postrider problems show {}", quoted(&id))];
    let parts = PageParts { title: &title, cli, ..PageParts::default() };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn facts(page: &PageContext, problem: &Value, orders: &Markup) -> Markup {
    let now = page.now;
    html! {
        article.problem.(problem.text("severity")) {
            header { (state(problem.text("severity"))) (state(problem.text("state"))) }
            p.lead { (where_and_what(problem)) }
            dl.facts {
                dt { "Since" } dd { (moment(problem.text("since"), now)) " · " (ago(problem.text("since"), now)) }
                dt { "Count" } dd { (number(problem.number("count"))) ", at most " (number(problem.number("peak"))) }
                @if problem.has("outcome") { dt { "Outcome" } dd { code { (problem.text("outcome")) } } }
                @if problem.has("resolved_at") { dt { "Resolved" } dd { (moment(problem.text("resolved_at"), now)) ", by itself: its cause ended" } }
                @if problem.number("reopened") > 0 { dt { "Came back" } dd { (problem.number("reopened")) " times" } }
                @if problem.has("tenants") { dt { "Tenants" } dd {
                    @for tenant in problem.list("tenants") {
                        a.chip href=(page.query.with("tenant", Some(tenant.text("tenant"))).to(&page.path)) { (tenant.text("tenant")) " " b { (number(tenant.number("count"))) } }
                    }
                } }
                dt { "Postrider" } dd { (problem.text("doing")) }
                dt { "You can" } dd { (problem.text("remedy")) }
                @if problem.has("status_page") { dt { "Provider says" } dd { a href=(problem.text("status_page")) rel="noreferrer" { (problem.text("status_page")) } } }
                @if problem.has("acknowledged") { dt { "Acknowledged" } dd { "by " code { (problem.text("acknowledged.by")) } " " (ago(problem.text("acknowledged.at"), now)) } }
                @if problem.has("muted") { dt { "Muted" } dd { "by " code { (problem.text("muted.by")) } " until " (moment(problem.text("muted.until"), now)) } }
            }
            div.actions {
                (remedy(page, problem))
                @match problem.text("state") {
                    "resolved" => {}
                    "acknowledged" => (action(page, problem, "unacknowledge", "Take the acknowledgement back")),
                    _ => (action(page, problem, "acknowledge", "Acknowledge")),
                }
                @if problem.has("muted") { (action(page, problem, "unmute", "Unmute")) }
                @else if problem.text("state") != "resolved" { (mute(page, problem)) }
                (orders)
            }
        }
    }
}

fn mute(page: &PageContext, problem: &Value) -> Markup {
    let path = page.link(&format!("/problems/{}/mute", problem.text("id")));
    html! {
        form.inline method="post" action=(path) {
            (hidden(page, &page.here()))
            label.unseen for="for_s" { "For how long" }
            select #for_s name="for_s" { option value="3600" { "1 h" } option value="14400" { "4 h" } option value="86400" { "1 day" } }
            (submit("Mute alerts", "button", page.may(KeyScope::Manage), KeyScope::Manage))
        }
    }
}

fn chart(page: &PageContext, problem: &Value, history: &Value) -> Markup {
    let span = ChartSpan::last(page.now, STEP_MS, STEPS);
    let mut series = [span.series("failed", "bad"), span.series("accepted", "good")];
    span.fill(history, &mut series, |row, add| {
        add(usize::from(row.text("outcome") == "accepted"), row.number("count"));
    });
    let place = ProblemPlace::of(problem);
    // The history knows no accounts.
    let of = place.provider.map(provider).or(place.channel).unwrap_or("all providers");
    let title = format!("Attempts of {of} in the last 2 hours, by minute");
    span.chart("failures", &title, &series, None)
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
    match action {
        "breaker" => {
            return problem_orders::force(page, id, form.get("lane"), form.get("force")).await;
        }
        "breaker-auto" => {
            return problem_orders::force(page, id, page.query.get("lane"), Some("auto")).await;
        }
        _ => {}
    }
    let body = match action {
        "mute" => {
            json!({"for_s": form.get("for_s").and_then(|s| s.parse::<u64>().ok()).unwrap_or(3_600)})
        }
        _ => json!({}),
    };
    let (text, undo) = match action {
        "acknowledge" => ("Acknowledged. It stays until its cause ends.", Some("unacknowledge")),
        "unacknowledge" => ("The acknowledgement is taken back.", None),
        "mute" => ("No alerts about it for the chosen time.", Some("unmute")),
        "unmute" => ("Alerts about it are sent again.", None),
        _ => return Err(RefusedCall::new(404, "Not found", "There is no such action.")),
    };
    page.calls.post(&format!("/v1/problems/{}/{action}", encoded(id)), &body).await?;
    let undo = undo.map(|undo| page.link(&format!("/problems/{id}/{undo}")));
    Ok(ActionNotice { text: text.to_owned(), is_bad: false, undo })
}

/// A part of a path, so that nothing in it is read as another part.
pub(super) fn encoded(part: &str) -> String {
    url::form_urlencoded::byte_serialize(part.as_bytes()).collect::<String>().replace('+', "%20")
}

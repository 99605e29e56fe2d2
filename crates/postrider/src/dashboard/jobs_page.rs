//! How far is the replay? Jobs with their progress, and what an operator can order.

use axum::extract::Path;
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::action_form::{ActionForm, button, hidden, submit};
use super::api_calls::{PageCallResult, RefusedCall};
use super::cookies::ActionNotice;
use super::deliveries_search::command;
use super::job_plan::needed;
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts, region};
use super::page_context::PageContext;
use super::problem_pages::encoded;
use super::refusal_page::{PageResult, refusing};
use super::words::{ago, moment, number, short_id, span, state};

const KINDS: [&str; 4] = ["replay", "discard", "cancel", "export"];

pub(super) async fn list(page: PageContext) -> PageResult {
    let query = [
        ("state", page.query.get("state")),
        ("kind", page.query.get("kind")),
        ("cursor", page.query.get("cursor")),
    ];
    let found = page.calls.get_with("/v1/jobs", &query).await.map_err(refusing(&page))?;
    let items = found.list("items");
    let body = html! {
        div.facets { div.facet { span.quiet { "Kind" }
            @for kind in KINDS {
                @let here = page.query.get("kind") == Some(kind);
                a.chip.on[here] href=(page.query.with("kind", (!here).then_some(kind)).to(&page.path)) { (kind) @if here { span aria-label="remove" { " ×" } } }
            }
        } }
        (region(&page, "jobs", &html! {
            @if items.is_empty() { div.card.empty { p { "There are no jobs. Replays, discards, cancellations and exports by filter become jobs." } } }
            @else {
                div.scroll tabindex="0" role="region" aria-label="Jobs" {
                    table.cards { thead { tr { th scope="col" { "Job" } th scope="col" { "State" } th scope="col" { "Progress" } th.n scope="col" { "Per second" } th scope="col" { "Left" } th scope="col" { "Tenant" } th scope="col" { "Begun" } } }
                        tbody { @for job in items { (row(&page, job)) } }
                    }
                }
            }
            p.pages { @if found.has("next") { a.button rel="next" href=(page.query.with("cursor", None).and("cursor", found.text("next")).to(&page.path)) { "Older" } } }
        }))
    };
    let parts = PageParts {
        title: "Jobs",
        cli: vec![command("postrider jobs list", &page.query, &["state", "kind", "cursor"])],
        ..PageParts::default()
    };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn row(page: &PageContext, job: &Value) -> Markup {
    let id = job.text("id");
    html! {
        tr data-row="1" id=(format!("row-{id}")) {
            td { a href=(page.link(&format!("/jobs/{id}"))) { (job.text("kind")) " " (short_id(id)) } }
            td data-label="State" { (state(job.text("state"))) }
            td data-label="Progress" { (progress(job)) }
            td.n data-label="Per second" { (job.at("rate_per_s").as_f64().unwrap_or_default()) }
            td data-label="Left" { (left(job)) }
            td data-label="Tenant" { (if job.has("tenant") { job.text("tenant") } else { "all" }) }
            td data-label="Begun" { (ago(job.text("created_at"), page.now)) }
        }
    }
}

fn progress(job: &Value) -> Markup {
    let total = job.at("total").as_u64();
    html! {
        @if let Some(total) = total { progress.progress max=(total.max(1)) value=(job.number("done") + job.number("failed")) aria-label="Progress" {} " " }
        (number(job.number("done"))) @if let Some(total) = total { " of " (number(total)) }
        @if job.number("failed") > 0 { span.quiet { ", " (number(job.number("failed"))) " had changed" } }
    }
}

fn left(job: &Value) -> String {
    let left = job.at("eta_s").as_i64();
    left.map_or_else(|| "–".to_owned(), span)
}

pub(super) async fn show(page: PageContext, Path(id): Path<String>) -> PageResult {
    let found = page.calls.get(&format!("/v1/jobs/{}", encoded(&id))).await;
    let job = found.map_err(refusing(&page))?;
    let title = match job.text("kind") {
        "replay" => "Replay",
        "discard" => "Discard",
        "cancel" => "Cancellation",
        _ => "Export",
    };
    let body = region(&page, "jobs", &facts(&page, &job));
    let parts =
        PageParts { title, cli: vec![format!("postrider jobs show {id}")], ..PageParts::default() };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn facts(page: &PageContext, job: &Value) -> Markup {
    html! {
        article.card.why {
            header { (state(job.text("state"))) code { (job.text("id")) } }
            p.lead #progress { (progress(job)) }
            @if job.has("error") { p.error { (job.text("error")) } }
            dl.facts {
                @if job.at("eta_s").is_u64() { dt { "Left" } dd { (left(job)) } }
                dt { "Per second" } dd { "at most " (job.at("rate_per_s").as_f64().unwrap_or_default()) }
                dt { "Tenant" } dd { (if job.has("tenant") { job.text("tenant") } else { "all" }) }
                @for (name, value) in job.at("filter").as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
                    dt { (name.replace('_', " ")) } dd { (value.as_str().map_or_else(|| value.to_string(), str::to_owned)) }
                }
                @if job.has("reason") { dt { "Why" } dd { (job.text("reason")) } }
                dt { "By" } dd { code { (job.text("created_by")) } " at " (moment(job.text("created_at"), page.now)) }
                @if job.has("ended_at") { dt { "Ended" } dd { (moment(job.text("ended_at"), page.now)) } }
            }
            (orders(page, job))
        }
    }
}

fn orders(page: &PageContext, job: &Value) -> Markup {
    let to = |action: &str| page.link(&format!("/jobs/{}/{action}", job.text("id")));
    let needs = needed(job.text("kind"));
    html! {
        div.actions {
            @match job.text("state") {
                "queued" | "running" => (button(page, &to("pause"), "Pause", needs, &[])),
                "paused" => (button(page, &to("resume"), "Resume", needs, &[])),
                _ => {}
            }
            @if job.has("result_url") { a.button.main href=(to("result")) { "Download" } }
            @if ["queued", "running", "paused"].contains(&job.text("state")) {
                (button(page, &to("abort"), "Abort", needs, &[]))
                form.inline method="post" action=(to("rate")) {
                    (hidden(page, &page.here()))
                    label for="rate" { "Per second" }
                    input #rate name="rate" type="number" min="0.1" step="any" value=(job.at("rate_per_s").as_f64().unwrap_or_default());
                    (submit("Change", "button", page.may(needs), needs))
                }
            }
        }
    }
}

/// The file of a finished export.
pub(super) async fn result(page: PageContext, Path(id): Path<String>) -> PageResult {
    let path = format!("/v1/jobs/{}/result", encoded(&id));
    page.calls.streamed(Method::GET, &path).await.map_err(refusing(&page))
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
    let path = format!("/v1/jobs/{}", encoded(id));
    let (text, undo) = match action {
        "pause" => ("The job waits.", Some("resume")),
        "resume" => ("The job goes on.", None),
        "abort" => ("The job is ended. What it did stays done.", None),
        "rate" => ("The job has another pace.", None),
        _ => return Err(RefusedCall::new(404, "Not found", "There is no such action.")),
    };
    if action == "rate" {
        let rate = form.get("rate").and_then(|rate| rate.parse::<f64>().ok());
        page.calls.call(Method::PATCH, &path, Some(&json!({"rate_per_s": rate}))).await?;
    } else {
        page.calls.post(&format!("{path}/{action}"), &Value::Null).await?;
    }
    let undo = undo.map(|undo| page.link(&format!("/jobs/{id}/{undo}")));
    Ok(ActionNotice { text: text.to_owned(), is_bad: false, undo })
}

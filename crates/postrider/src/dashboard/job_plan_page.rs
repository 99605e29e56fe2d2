//! The look before a job: how many deliveries it would take, some of them, and how fast. The second click makes it.

use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::action_form::{ActionForm, hidden, submit};
use super::api_calls::RefusedCall;
use super::cookies::ActionNotice;
use super::job_plan::{JobForecast, JobWish};
use super::layout::{self, PageParts, tenant_field};
use super::now_page::delivery_rows;
use super::page_context::PageContext;
use super::refusal_page::{PageResult, refusing};
use super::words::{number, provider, span};

/// Tenants that can be chosen with one click.
const TENANTS: usize = 60;

pub(super) async fn show(page: PageContext) -> PageResult {
    let Some(wish) = JobWish::read(|name| page.query.get(name)) else {
        let detail = "There is no such job: replay, discard, cancel or export.";
        return Err(refusing(&page)(RefusedCall::new(404, "Not found", detail)));
    };
    let wish = wish.on(&page);
    let title = title(&wish);
    if wish.lacks_tenant() {
        let parts = PageParts { title, ..PageParts::default() };
        return Ok(layout::answer(&page, &parts, &tenants(&page, &wish)).into_response());
    }
    let planned = wish.forecast(&page).await.map_err(refusing(&page))?;
    let body = html! {
        article.card.plan {
            p.lead #count {
                b { (number(planned.count)) @if planned.is_partial { " or more" } }
                " " (noun(&wish)) " match. Nothing has been changed yet."
            }
            dl.facts {
                @if let Some(tenant) = &wish.tenant { dt { "tenant" } dd { (tenant) } }
                @for (name, value) in &wish.filter {
                    dt { (name.trim_end_matches("_is").replace('_', " ")) }
                    dd { @if value.is_empty() { "none was told" } @else { (provider(value)) } }
                }
                @if wish.filter.is_empty() { dt { "filter" } dd { "none: everything" } }
                @if wish.kind != "export" {
                    dt { "Takes" } dd { (span(i64::try_from(planned.takes_s).unwrap_or(i64::MAX))) " at " (wish.rate_per_s) " per second" }
                }
            }
            @if wish.kind != "export" { (pace(&page, &wish)) }
            (confirm(&page, &wish, &planned))
        }
        h2 { "For example" }
        @if planned.sample.is_empty() { p.quiet { "None." } } @else { (delivery_rows(&page, &planned.sample, "Examples")) }
    };
    let parts =
        PageParts { title, cli: wish.command().into_iter().collect(), ..PageParts::default() };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn title(wish: &JobWish) -> &'static str {
    match wish.kind {
        "replay" => "Replay dead letters",
        "discard" => "Discard dead letters",
        "cancel" => "Cancel deliveries",
        _ => "Export deliveries",
    }
}

fn noun(wish: &JobWish) -> &'static str {
    match wish.kind {
        "cancel" => "pending deliveries",
        _ if wish.is_of_dead_letters() => "dead letters",
        _ => "deliveries",
    }
}

/// The same wish for each tenant: a job that changes something is of one tenant.
fn tenants(page: &PageContext, wish: &JobWish) -> Markup {
    let names = page.app.known_tenants();
    let link = |name: &str| wish.clone().of(name).link(page);
    html! {
        article.card.plan {
            p.lead { "Of which tenant? Such a job is of one tenant." }
            div.facet { @for name in names.iter().take(TENANTS) { a.chip href=(link(name)) { (name) } } }
            @if names.len() > TENANTS { p.quiet { "And " (names.len() - TENANTS) " more: choose one above." } }
        }
    }
}

fn pace(page: &PageContext, wish: &JobWish) -> Markup {
    html! {
        form.row action="/jobs/plan" {
            (tenant_field(page))
            @for (name, value) in wish.parameters() { input type="hidden" name=(name) value=(value); }
            label for="rate" { "Per second, at most" }
            input #rate name="rate" type="number" min="0.1" step="any" value=(wish.rate_per_s);
            button { "Plan again" }
        }
    }
}

fn confirm(page: &PageContext, wish: &JobWish, planned: &JobForecast) -> Markup {
    let may = page.may(wish.needs()) && planned.count > 0;
    let count = number(planned.count);
    let (label, class) = match wish.kind {
        "replay" => (format!("Replay {count}"), "main"),
        "discard" => (format!("Discard {count} for good"), "bad"),
        "cancel" => (format!("Cancel {count} for good"), "bad"),
        _ => (format!("Export {count}"), "main"),
    };
    html! {
        form.stack method="post" action=(page.link("/jobs/plan")) {
            (hidden(page, &wish.link(page)))
            @for (name, value) in wish.parameters() { input type="hidden" name=(name) value=(value); }
            input type="hidden" name="rate" value=(wish.rate_per_s);
            @match wish.kind {
                "discard" => {
                    label for="why" { "Why they are discarded" }
                    input #why name="why" required maxlength="200";
                    p.quiet { "Bodies and addresses are erased for good. The history stays." }
                }
                "cancel" => {
                    label for="why" { "Why they are cancelled" }
                    input #why name="why" required maxlength="200";
                    p.quiet { "They are not sent any more. What a provider has in its hands at that moment is not called back." }
                }
                "export" => {
                    label for="format" { "Format" }
                    select #format name="format" { option value="ndjson" { "NDJSON" } option value="csv" { "CSV" } }
                }
                _ => {}
            }
            div.actions { (submit(&label, class, may, wish.needs())) a.button.link href=(back(page, wish)) { "Back" } }
        }
    }
}

/// The page that has such deliveries.
fn back(page: &PageContext, wish: &JobWish) -> String {
    page.link(if wish.is_of_dead_letters() { "/dead" } else { "/deliveries" })
}

pub(super) async fn act(page: PageContext, form: ActionForm) -> Response {
    let Some(wish) = JobWish::read(|name| form.get(name)) else {
        let refused = RefusedCall::new(404, "Not found", "There is no such job.");
        return page.back(form.back(), Err(refused));
    };
    let wish = wish.on(&page);
    match wish.order(&page, form.get("why")).await {
        Ok(job) => {
            let name = if wish.kind == "cancel" { "cancellation" } else { wish.kind };
            let text = format!("The {name} has begun. It goes on when you leave this page.");
            let notice = ActionNotice { text, is_bad: false, undo: None };
            page.back(&page.link(&format!("/jobs/{job}")), Ok(notice))
        }
        Err(refused) => page.back(form.back(), Err(refused)),
    }
}

//! Where is X? Deliveries by any id, recipient, key or filter, with their number over time.

use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse as _;
use maud::{Markup, html};
use serde_json::Value;

use super::api_calls::PageCallResult;
use super::chart::ChartSpan;
use super::deliveries_facets::{added, facets};
use super::deliveries_search::{DeliverySearch, FoundDeliveries, unreadable};
use super::delivery_timeline::is_pending;
use super::job_plan::JobWish;
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts, region, tenant_field};
use super::now_page::{delivery_rows, is_dead_reason};
use super::page_context::PageContext;
use super::refusal_page::{PageResult, refusing};

pub(super) async fn show(page: PageContext) -> PageResult {
    let search = DeliverySearch::new(&page);
    if let Some(to) = search.direct(&page).or_else(|| added(&page)) {
        return Ok((StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response());
    }
    let (found, stats, ends) =
        tokio::join!(search.run(&page), page.calls.get("/v1/stats"), history(&page, &search));
    let stats = stats.map_err(refusing(&page))?;
    let (found, wrong) = match found {
        Ok(found) => (found, None),
        Err(refused) if unreadable(&refused) => (FoundDeliveries::none(), Some(refused.detail)),
        Err(refused) => return Err(refusing(&page)(refused)),
    };
    let excluding = match found.items.is_empty() && wrong.is_none() {
        true => search.excluding(&page).await,
        false => Vec::new(),
    };
    let body = html! {
        (search_form(&page, &search, wrong.as_deref()))
        (facets(&page, &search, &stats, ends.as_ref().ok(), &found.items))
        @if let Ok(ends) = &ends { (region(&page, "histogram", &histogram(&page, &search, ends))) }
        (region(&page, "deliveries", &list(&page, &search, &found, &excluding)))
        (actions(&page, &search, &found))
    };
    let parts = PageParts {
        title: "Deliveries",
        cli: vec![search.cli(&found)],
        lasting_link: search.lasting_link(&page.path),
        ..PageParts::default()
    };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn search_form(page: &PageContext, search: &DeliverySearch, wrong: Option<&str>) -> Markup {
    let value = search.query.get("q").unwrap_or_default();
    html! {
        form.big-search role="search" action="/deliveries" {
            (tenant_field(page))
            @for (name, _, value) in search.filters() { input type="hidden" name=(name) value=(value); }
            @if let Some(range) = search.query.get("range") { input type="hidden" name="range" value=(range); }
            label for="q" { "Find a delivery" }
            div.row {
                input #q type="search" name="q" value=(value) autocomplete="off" spellcheck="false"
                    placeholder="dlv_…, msg_…, a recipient, an idempotency key or a tag" aria-describedby="q-help";
                button.main { "Search" }
            }
            p #q-help .quiet {
                @if let Some(wrong) = wrong { span.error role="alert" { (wrong) } }
                @else if page.one_tenant().is_none() { "An idempotency key is searched within one tenant: choose it above." }
            }
        }
    }
}

fn span_of(page: &PageContext, search: &DeliverySearch) -> (ChartSpan, &'static str) {
    match search.query.get("range") {
        Some("1h") => (ChartSpan::last(page.now, 60_000, 60), "minute"),
        Some("6h") => (ChartSpan::last(page.now, 300_000, 72), "minute"),
        Some("7d") => (ChartSpan::last(page.now, 2 * 3_600_000, 84), "hour"),
        Some("30d") => (ChartSpan::last(page.now, 12 * 3_600_000, 60), "hour"),
        _ => (ChartSpan::last(page.now, 20 * 60_000, 72), "minute"),
    }
}

async fn history(page: &PageContext, search: &DeliverySearch) -> PageCallResult<Value> {
    let (span, resolution) = span_of(page, search);
    let from = span.from.to_string();
    let query = [
        ("resolution", Some(resolution)),
        ("from", Some(from.as_str())),
        ("kind", Some("deliveries")),
        ("channel", search.query.get("channel")),
        ("provider", search.query.get("provider")),
        ("class", search.query.get("class")),
        ("by", Some("channel,provider,class,outcome")),
    ];
    page.calls.get_with("/v1/stats/history", &query).await
}

fn histogram(page: &PageContext, search: &DeliverySearch, ends: &Value) -> Markup {
    let (span, _) = span_of(page, search);
    let mut series = [
        span.series("sent", "good"),
        span.series("dead letters", "bad"),
        span.series("gone, expired, cancelled", "over"),
    ];
    span.fill(ends, &mut series, |row, add| {
        let nth = match row.text("outcome") {
            outcome if is_dead_reason(outcome) => 1,
            "gone" | "expired" | "cancelled" => 2,
            _ => 0,
        };
        add(nth, row.number("count"));
    });
    let select =
        search.query.with("range", None).with("since", None).with("until", None).to(&page.path);
    span.chart("histogram", "Deliveries by how they ended", &series, Some(&select))
}

fn list(
    page: &PageContext,
    search: &DeliverySearch,
    found: &FoundDeliveries,
    excluding: &[(String, String)],
) -> Markup {
    let is_later = search.query.get("cursor").is_some();
    html! {
        @if let Some(read_as) = found.read_as { p.quiet { "Read as " (read_as) "." } }
        @if found.items.is_empty() {
            div.card.empty {
                @if is_later { p { "Nothing more." } }
                @else if excluding.is_empty() { p { "No delivery matches." } }
                @else {
                    p { "No delivery matches. There would be some without:" }
                    @for (label, to) in excluding { " " a.chip href=(to) { (label) " ×" } }
                }
            }
        } @else { (delivery_rows(page, &found.items, "Deliveries")) }
        p.pages {
            @if is_later { a.button href=(search.query.with("cursor", None).to(&page.path)) { "Newest" } }
            @if let Some(next) = &found.next {
                a.button rel="next" href=(search.query.with("cursor", None).and("cursor", next).to(&page.path)) { "Older" }
            }
        }
    }
}

/// What can be done with everything that matches, however many there are: first a look.
fn actions(page: &PageContext, search: &DeliverySearch, found: &FoundDeliveries) -> Markup {
    let filter = search.of_job(found);
    let filter: Vec<(&str, &str)> = filter.iter().map(|(name, value)| (*name, &**value)).collect();
    let link = |kind| JobWish::new(kind, page.one_tenant(), &filter).link(page);
    let may_be_pending =
        search.query.get("state").is_none_or(is_pending) && search.query.get("reason").is_none();
    html! {
        @if !found.items.is_empty() {
            div.actions {
                span.quiet { "Everything that matches:" }
                @if may_be_pending { a.button href=(link("cancel")) { "Cancel what is pending …" } }
                a.button href=(link("export")) { "Export …" }
            }
        }
    }
}

//! Where is X? Deliveries by any id, recipient, key or filter, with their number over time.

use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse as _;
use maud::{Markup, html};
use serde_json::Value;

use super::api_calls::PageCallResult;
use super::chart::ChartSpan;
use super::deliveries_search::{DeliverySearch, FoundDeliveries, RANGES, unreadable};
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts, region, tenant_field};
use super::now_page::{delivery_rows, is_dead_reason};
use super::page_context::PageContext;
use super::refusal_page::{PageResult, refusing};
use super::words::{number, provider, state};

pub(super) async fn show(page: PageContext) -> PageResult {
    let search = DeliverySearch::new(&page);
    if let Some(to) = search.direct(&page) {
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
        (facets(&page, &search, &stats, ends.as_ref().ok()))
        @if let Ok(ends) = &ends { (region(&page, "histogram", &histogram(&page, &search, ends))) }
        (region(&page, "deliveries", &list(&page, &search, &found, &excluding)))
    };
    let parts = PageParts {
        title: "Deliveries",
        cli: vec![search.cli(&found)],
        lasting_link: search.lasting_link(&page.path),
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

/// Filters in force, and those that can be added.
fn facets(
    page: &PageContext,
    search: &DeliverySearch,
    stats: &Value,
    ends: Option<&Value>,
) -> Markup {
    let to = |name: &str, value: Option<&str>| search.query.with(name, value).to(&page.path);
    let chosen = search.query.get("state");
    let states = stats.at("states").as_object();
    let mut counts: Vec<(&str, u64)> = states
        .map(|all| all.iter().map(|(name, n)| (name.as_str(), n.as_u64().unwrap_or(0))).collect())
        .unwrap_or_default();
    counts.retain(|(name, count)| *count > 0 || chosen == Some(name));
    html! {
        div.facets {
            div.facet {
                span.quiet { "State" }
                @for (name, count) in counts {
                    @let here = chosen == Some(name);
                    a.chip.on[here] href=(to("state", (!here).then_some(name))) aria-current=[here.then_some("true")] {
                        (state(name)) " " b { (number(count)) } @if here { span aria-label="remove" { " ×" } }
                    }
                }
            }
            @for (field, label) in [("channel", "Channel"), ("provider", "Provider"), ("class", "Class")] {
                @let known = ends.map(|ends| values(ends, field)).unwrap_or_default();
                @let now = search.query.get(field);
                @if !known.is_empty() || now.is_some() {
                    div.facet {
                        span.quiet { (label) }
                        @for value in &known {
                            @let here = now == Some(value.as_str());
                            a.chip.on[here] href=(to(field, (!here).then_some(value))) { (provider(value)) @if here { span aria-label="remove" { " ×" } } }
                        }
                        @if let Some(now) = now.filter(|now| !known.iter().any(|own| own == now)) {
                            a.chip.on href=(to(field, None)) { (provider(now)) span aria-label="remove" { " ×" } }
                        }
                    }
                }
            }
            div.facet {
                span.quiet { "Time" }
                @for (name, _) in RANGES {
                    @let here = search.query.get("range") == Some(name);
                    a.chip.on[here] href=(search.query.with("since", None).with("until", None).with("range", (!here).then_some(name)).to(&page.path)) { (name) @if here { span aria-label="remove" { " ×" } } }
                }
                @if search.query.get("since").is_some() || search.query.get("until").is_some() {
                    a.chip.on href=(search.query.with("since", None).with("until", None).to(&page.path)) {
                        (search.query.get("since").unwrap_or("…")) " to " (search.query.get("until").unwrap_or("now")) span aria-label="remove" { " ×" }
                    }
                }
            }
            @for (name, label, value) in search.filters() {
                @if !["state", "channel", "provider", "class"].contains(&name) {
                    a.chip.on href=(to(name, None)) { (label) ": " (value) span aria-label="remove" { " ×" } }
                }
            }
        }
    }
}

/// The different values of a field in a history, the most frequent first.
fn values(history: &Value, field: &str) -> Vec<String> {
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    let rows = history.list("points").iter().flat_map(|point| point.list("rows"));
    for row in rows.filter(|row| row.has(field)) {
        *counts.entry(row.text(field)).or_default() += row.number("count");
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().take(12).map(|(value, _)| value.to_owned()).collect()
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
    excluding: &[(&'static str, String)],
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
                    @for (label, to) in excluding { a.chip href=(to) { (label) " ×" } }
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

//! The chips above the list of deliveries: filters in force, each with a click that takes it away, and filters that can
//! be added with a click.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::Value;

use super::deliveries_search::{DeliverySearch, FILTERS, RANGES};
use super::json_read::JsonRead as _;
use super::layout::tenant_field;
use super::page_context::PageContext;
use super::words::{number, provider, state};

/// Chips of one facet.
const CHIPS: usize = 12;
/// A longer answer of a provider is no filter that anybody clicks.
const ERROR_MAX: usize = 60;
/// Facets with chips of their own.
const WITH_CHIPS: [&str; 6] = ["state", "channel", "provider", "class", "account", "error"];

/// The filter that the form above the list adds, as the address says it.
pub(super) fn added(page: &PageContext) -> Option<String> {
    let (name, value) = (page.query.get("add")?, page.query.get("value")?);
    let known = FILTERS.iter().any(|(own, _)| *own == name);
    let query = page.query.with("add", None).with("value", None);
    Some(if known { query.with(name, Some(value)) } else { query }.to(&page.path))
}

pub(super) fn facets(
    page: &PageContext,
    search: &DeliverySearch,
    stats: &Value,
    history: Option<&Value>,
    items: &[Value],
) -> Markup {
    let of_history =
        |field: &str| history.map(|history| values(history, field)).unwrap_or_default();
    let last = |item: &Value, field: &str| {
        item.list("log").last().map(|attempt| attempt.text(field).to_owned())
    };
    let accounts = most_frequent(items.iter().filter_map(|item| last(item, "account")));
    let errors = most_frequent(items.iter().filter_map(|item| {
        let code = last(item, "code").filter(|code| !code.is_empty());
        code.or_else(|| last(item, "detail")).filter(|text| text.chars().count() <= ERROR_MAX)
    }));
    html! {
        div.facets {
            (states(page, search, stats))
            (facet(page, search, "channel", "Channel", &of_history("channel")))
            (facet(page, search, "provider", "Provider", &of_history("provider")))
            (facet(page, search, "class", "Class", &of_history("class")))
            (tenants(page, items))
            (facet(page, search, "account", "Account", &accounts))
            (facet(page, search, "error", "Error", &errors))
            (times(page, search))
            (others(page, search))
        }
    }
}

/// A chip of a filter in force, which takes it away.
fn chosen(to: &str, text: &str) -> Markup {
    html! { a.chip.on href=(to) { (text) span aria-label="remove" { " ×" } } }
}

fn states(page: &PageContext, search: &DeliverySearch, stats: &Value) -> Markup {
    let chosen = search.query.get("state");
    let counts = stats.at("states").as_object();
    let counts = counts.into_iter().flatten();
    let counts = counts.map(|(name, count)| (name.as_str(), count.as_u64().unwrap_or(0)));
    html! {
        div.facet {
            span.quiet { "State" }
            @for (name, count) in counts.filter(|(name, count)| *count > 0 || chosen == Some(*name)) {
                @let here = chosen == Some(name);
                a.chip.on[here] href=(search.query.with("state", (!here).then_some(name)).to(&page.path)) aria-current=[here.then_some("true")] {
                    (state(name)) " " b { (number(count)) } @if here { span aria-label="remove" { " ×" } }
                }
            }
        }
    }
}

fn facet(
    page: &PageContext,
    search: &DeliverySearch,
    field: &str,
    label: &str,
    known: &[String],
) -> Markup {
    let now = search.query.get(field);
    let to = |value: Option<&str>| search.query.with(field, value).to(&page.path);
    html! {
        @if !known.is_empty() || now.is_some() {
            div.facet {
                span.quiet { (label) }
                @if let Some(now) = now { (chosen(&to(None), provider(now))) }
                @for value in known.iter().filter(|value| now != Some(value.as_str())) {
                    a.chip href=(to(Some(value))) { (provider(value)) }
                }
            }
        }
    }
}

/// For a key of all tenants: the tenant in force, or those of the list.
fn tenants(page: &PageContext, items: &[Value]) -> Markup {
    if !page.caller.all_tenants {
        return html! {};
    }
    let known = most_frequent(items.iter().map(|item| item.text("tenant").to_owned()));
    let to = |value: Option<&str>| page.query.with("tenant", value).to(&page.path);
    html! {
        @if page.one_tenant().is_some() || known.len() > 1 {
            div.facet {
                span.quiet { "Tenant" }
                @if let Some(now) = page.one_tenant() { (chosen(&to(None), now)) }
                @else { @for name in &known { a.chip href=(to(Some(name))) { (name) } } }
            }
        }
    }
}

fn times(page: &PageContext, search: &DeliverySearch) -> Markup {
    let free = search.query.with("since", None).with("until", None).with("range", None);
    let (since, until) = (search.query.get("since"), search.query.get("until"));
    html! {
        div.facet {
            span.quiet { "Time" }
            @for (name, _) in RANGES {
                @let here = search.query.get("range") == Some(name);
                a.chip.on[here] href=(free.with("range", (!here).then_some(name)).to(&page.path)) { (name) @if here { span aria-label="remove" { " ×" } } }
            }
            @if since.is_some() || until.is_some() {
                (chosen(&free.to(&page.path), &format!("{} to {}", since.unwrap_or("…"), until.unwrap_or("now"))))
            }
        }
    }
}

/// Filters without chips of their own, and a form that adds any filter.
fn others(page: &PageContext, search: &DeliverySearch) -> Markup {
    let kept = search.query.pairs().filter(|(name, _)| *name != "tenant" && *name != "cursor");
    html! {
        div.facet {
            span.quiet { "Other" }
            @for (name, label, value) in search.filters() {
                @if !WITH_CHIPS.contains(&name) {
                    (chosen(&search.query.with(name, None).to(&page.path), &format!("{label}: {value}")))
                }
            }
            form.row.add-filter action=(page.path) {
                (tenant_field(page))
                @for (name, value) in kept { input type="hidden" name=(name) value=(value); }
                label.unseen for="add" { "Filter" }
                select #add name="add" {
                    @for (name, label) in FILTERS.iter().filter(|(name, _)| *name != "state") {
                        option value=(name) selected[*name == "tag"] { (label) }
                    }
                }
                label.unseen for="value" { "Its value" }
                input #value name="value" required autocomplete="off" spellcheck="false" placeholder="value";
                button { "Add" }
            }
        }
    }
}

/// The different values of a field in a history, the most frequent first.
fn values(history: &Value, field: &str) -> Vec<String> {
    let mut counts = BTreeMap::<&str, u64>::new();
    let rows = history.list("points").iter().flat_map(|point| point.list("rows"));
    for row in rows.filter(|row| row.has(field)) {
        *counts.entry(row.text(field)).or_default() += row.number("count");
    }
    first(counts.into_iter().map(|(value, count)| (value.to_owned(), count)).collect())
}

fn most_frequent(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut counts = BTreeMap::<String, u64>::new();
    for text in texts.filter(|text| !text.is_empty()) {
        *counts.entry(text).or_default() += 1;
    }
    first(counts.into_iter().collect())
}

fn first(mut counts: Vec<(String, u64)>) -> Vec<String> {
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().take(CHIPS).map(|(value, _)| value).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_come_by_how_frequent_they_are() {
        let row = |class: &str, count: u64| json!({"class": class, "count": count});
        let history = json!({"points": [{"rows": [row("otp", 1), row("news", 5)]}, {"rows": [row("otp", 9)]}]});
        assert_eq!(values(&history, "class"), ["otp", "news"]);
        let texts = ["b", "", "a", "b"].map(str::to_owned);
        assert_eq!(most_frequent(texts.into_iter()), ["b", "a"]);
    }
}

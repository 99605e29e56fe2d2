//! Who did what? Entries of the audit log, with what changed.

use std::io;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use maud::{Markup, html};
use serde_json::Value;

use super::api_calls::{ApiCalls, PageCallResult};
use super::deliveries_search::command;
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts, tenant_field};
use super::page_context::PageContext;
use super::refusal_page::{PageResult, refusing};
use super::words::{moment, number, short_id, state};

const FILTERS: [&str; 4] = ["action", "key", "since", "until"];

pub(super) async fn show(page: PageContext) -> PageResult {
    let mut query: Vec<(&str, Option<&str>)> =
        FILTERS.map(|name| (name, page.query.get(name))).to_vec();
    query.push(("cursor", page.query.get("cursor")));
    query.push(("limit", Some("60")));
    // Without a tenant, an admin of the server sees the entries of all.
    let calls = match (page.one_tenant(), page.caller.all_tenants) {
        (None, true) => page.calls.without_tenant(),
        _ => page.calls.clone(),
    };
    if page.query.get("export").is_some() {
        return export(calls, &page).await.map_err(refusing(&page));
    }
    let found = calls.get_with("/v1/audit", &query).await.map_err(refusing(&page))?;
    let body = html! {
        (filters(&page))
        (entries(&page, found.list("items")))
        p.pages {
            @if page.query.get("cursor").is_some() { a.button href=(page.query.with("cursor", None).to(&page.path)) { "Newest" } }
            @if found.has("next") { a.button rel="next" href=(page.query.with("cursor", None).and("cursor", found.text("next")).to(&page.path)) { "Older" } }
            a.button.link href=(page.query.with("export", Some("1")).to(&page.path)) { "Export these as NDJSON" }
        }
    };
    let cli = command("postrider audit list", &page.query, &FILTERS);
    let parts = PageParts { title: "Audit", cli: vec![cli], ..PageParts::default() };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

/// The entries of an export that are not sent yet.
struct AuditExport {
    calls: ApiCalls,
    filters: Vec<(&'static str, Option<String>)>,
    /// A page that is read already.
    ready: Option<Value>,
    cursor: Option<String>,
}

impl AuditExport {
    async fn read(&self) -> PageCallResult<Value> {
        let mut query: Vec<_> =
            self.filters.iter().map(|(name, value)| (*name, value.as_deref())).collect();
        query.extend([("cursor", self.cursor.as_deref()), ("limit", Some("1000"))]);
        self.calls.get_with("/v1/audit", &query).await
    }

    /// Lines of the next page. An error ends the download, so that nobody takes a part for the whole.
    async fn next(mut self) -> Option<(io::Result<String>, Option<Self>)> {
        let page = match self.ready.take() {
            Some(page) => Ok(page),
            None => self.read().await,
        };
        let page = match page {
            Ok(page) => page,
            Err(refused) => return Some((Err(io::Error::other(refused.detail)), None)),
        };
        let lines = page.list("items").iter().map(|item| format!("{item}\n")).collect();
        self.cursor = Some(page.text("next").to_owned()).filter(|next| !next.is_empty());
        let rest = self.cursor.is_some().then_some(self);
        Some((Ok(lines), rest))
    }
}

/// All entries that match, page by page as the browser reads them.
async fn export(calls: ApiCalls, page: &PageContext) -> PageCallResult<Response> {
    let filters = FILTERS.map(|name| (name, page.query.get(name).map(str::to_owned))).to_vec();
    let mut export = AuditExport { calls, filters, ready: None, cursor: None };
    export.ready = Some(export.read().await?);
    let lines = stream::unfold(Some(export), async |export| export?.next().await);
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("content-disposition", "attachment; filename=\"audit.ndjson\""),
    ];
    Ok((headers, Body::from_stream(lines)).into_response())
}

fn filters(page: &PageContext) -> Markup {
    html! {
        form.row.filters action="/audit" {
            (tenant_field(page))
            @for (name, hint) in [("action", "such as lane.pause"), ("key", "key_…"), ("since", "2026-11-18T00:00:00Z"), ("until", "")] {
                div { label for=(name) { (name) } input id=(name) name=(name) value=(page.query.get(name).unwrap_or_default()) placeholder=(hint) autocomplete="off"; }
            }
            button { "Show" }
        }
    }
}

fn entries(page: &PageContext, items: &[Value]) -> Markup {
    html! {
        @if items.is_empty() { div.card.empty { p { "No entry matches." } } }
        @else {
            div.scroll tabindex="0" role="region" aria-label="Audit log" {
                table.cards { thead { tr { th scope="col" { "When" } th scope="col" { "Who" } th scope="col" { "Did" } th scope="col" { "To" } th.n scope="col" { "Count" } th scope="col" { "Result" } th scope="col" { "What changed" } } }
                    tbody { @for item in items { (entry(page, item.at("entry"))) } }
                }
            }
        }
    }
}

fn entry(page: &PageContext, entry: &Value) -> Markup {
    let outcome = entry.text("outcome");
    html! {
        tr data-row="1" {
            td { (moment(entry.text("at"), page.now)) }
            td data-label="Who" { @if entry.has("key") { a href=(page.query.with("key", Some(entry.text("key"))).to(&page.path)) { @if entry.text("key").starts_with("key_") { (short_id(entry.text("key"))) } @else { (entry.text("key")) } } } @else { span.quiet { "nobody known" } }
                @if entry.has("address") { span.quiet { " from " (entry.text("address")) } } }
            td data-label="Did" { a href=(page.query.with("action", Some(entry.text("action"))).to(&page.path)) { (entry.text("action")) } }
            td.wrap data-label="To" { (entry.text("subject")) @if entry.has("tenant") { span.quiet { " " (entry.text("tenant")) } } }
            td.n data-label="Count" { (number(entry.number("count"))) }
            td data-label="Result" { (state(if outcome.starts_with("refused") { "refused" } else { "done" })) @if outcome.starts_with("refused") { span.quiet { (outcome.trim_start_matches("refused")) } } }
            td.wrap data-label="What changed" { (changes(entry)) }
        }
    }
}

fn changes(entry: &Value) -> Markup {
    html! {
        @if entry.has("filter") { code { (entry.at("filter").to_string()) } }
        @if entry.has("before") || entry.has("after") {
            details { summary { "before and after" }
                dl.facts { dt { "Before" } dd { code { (entry.at("before").to_string()) } } dt { "After" } dd { code { (entry.at("after").to_string()) } } }
            }
        }
    }
}

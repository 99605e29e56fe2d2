//! Are credentials alive, and who is slow? Accounts, their credentials, and the calls of the last day by provider.

use std::collections::BTreeMap;

use axum::response::IntoResponse as _;
use maud::{Markup, html};
use postrider_core::Timestamp;
use serde_json::Value;

use super::json_read::JsonRead as _;
use super::layout::{self, PageParts, region};
use super::page_context::PageContext;
use super::provider_orders::{account_actions, order_text, paused_part, provider_actions};
use super::refusal_page::{PageResult, refusing};
use super::words::{ago, moment, number, provider, state};

const DAY_MS: i64 = 86_400_000;

/// The calls to one provider.
#[derive(Debug, Default)]
struct ProviderCalls {
    accepted: u64,
    all: u64,
    /// Calls by how long they took.
    times: Vec<u64>,
}

impl ProviderCalls {
    fn add(&mut self, row: &Value) {
        let count = row.number("count");
        self.all += count;
        self.accepted += if row.text("outcome") == "accepted" { count } else { 0 };
        let times = row.list("latency").iter().map(|n| n.as_u64().unwrap_or_default());
        for (index, n) in times.enumerate() {
            if self.times.len() <= index {
                self.times.push(0);
            }
            self.times[index] += n;
        }
    }

    /// The end of the bucket with the call at this share.
    fn quantile(&self, share: f64, ends: &[u64]) -> Option<u64> {
        let all: u64 = self.times.iter().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut seen = 0;
        let place = self.times.iter().position(|n| {
            seen += n;
            seen >= wanted.max(1)
        })?;
        Some(ends.get(place).or(ends.last()).copied().unwrap_or_default())
    }
}

pub(super) async fn show(page: PageContext) -> PageResult {
    let from = Timestamp(page.now.0 - DAY_MS).to_string();
    let history = [
        ("resolution", Some("hour")),
        ("from", Some(from.as_str())),
        ("kind", Some("attempts")),
        ("by", Some("channel,provider,outcome")),
    ];
    let (history, accounts, paused) = tokio::join!(
        page.calls.get_with("/v1/stats/history", &history),
        page.calls.get("/v1/accounts"),
        page.calls.get("/v1/providers/paused"),
    );
    let history = history.map_err(refusing(&page))?;
    let body = html! {
        @match &accounts {
            Ok(found) => (region(&page, "lanes", &accounts_part(&page, found))),
            Err(refused) if refused.status == 403 => p.quiet { "Accounts belong to the whole server; your key sees the providers of its tenant." },
            Err(refused) => p.error { (refused.detail) },
        }
        @if let Ok(paused) = &paused { (paused_part(&page, paused)) }
        (providers_part(&page, &history))
    };
    let parts = PageParts {
        title: "Providers",
        cli: vec!["postrider accounts list".to_owned()],
        ..PageParts::default()
    };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn accounts_part(page: &PageContext, found: &Value) -> Markup {
    let accounts = found.list("accounts");
    html! {
        h2 { "Accounts" span.count { (accounts.len()) } }
        @if accounts.is_empty() { div.card.empty { p { "No account is configured. Webhooks and Web Push need none." } } }
        @else {
            div.scroll tabindex="0" role="region" aria-label="Accounts" {
                table.cards { thead { tr { th scope="col" { "Account" } th scope="col" { "Tenant" } th scope="col" { "State" } th scope="col" { "Credentials" } th.n scope="col" { "Priority" } th.n scope="col" { "Calls" } th.n scope="col" { "Taken over" } th scope="col" { span.unseen { "Actions" } } } }
                    tbody { @for account in accounts { tr data-row="1" {
                        td { span.channel { (account.text("channel")) } " " b { (account.text("name")) } }
                        td data-label="Tenant" { (if account.text("tenant") == "*" { "all" } else { account.text("tenant") }) }
                        td.wrap data-label="State" { (state(account.text("state"))) @if account.has("held_by") { span.quiet { " by " (account.text("held_by")) } } @if account.has("until") { span.quiet { " " (ago(account.text("until"), page.now)) } }
                            @if account.has("paused") { (order_text(page, account.at("paused"))) } }
                        td.wrap data-label="Credentials" { (credentials(page, account)) }
                        td.n data-label="Priority" { (account.number("priority")) }
                        td.n data-label="Calls" { (number(account.number("calls"))) }
                        td.n data-label="Taken over" { (number(account.number("failovers"))) }
                        td.does { (account_actions(page, account)) }
                    } } }
                }
            }
        }
    }
}

fn credentials(page: &PageContext, account: &Value) -> Markup {
    let all = account.list("credentials");
    html! {
        @if all.is_empty() { span.quiet { "not checked yet" } }
        @for own in all {
            div { (state(if own.text("state") == "expired" { "expired_credential" } else { own.text("state") })) " " span.quiet { (own.text("kind").replace('_', " ")) }
                @if own.has("expires_at") { span.quiet { ", ends " (moment(own.text("expires_at"), page.now)) } }
                @if own.has("problem") { div.answer { (own.text("problem")) } }
            }
        }
    }
}

fn providers_part(page: &PageContext, history: &Value) -> Markup {
    let ends: Vec<u64> = history.list("buckets_ms").iter().filter_map(Value::as_u64).collect();
    let mut calls = BTreeMap::<(&str, &str), ProviderCalls>::new();
    for row in history.list("points").iter().flat_map(|point| point.list("rows")) {
        calls.entry((row.text("channel"), row.text("provider"))).or_default().add(row);
    }
    let mut calls: Vec<_> = calls.into_iter().collect();
    calls.sort_by_key(|(_, own)| std::cmp::Reverse(own.all));
    let ms = |found: Option<u64>| found.map_or_else(|| "–".to_owned(), |ms| format!("≤ {ms} ms"));
    html! {
        h2 { "Calls of the last 24 hours" }
        @if calls.is_empty() { div.card.empty { p { "Nobody was called." } } }
        @else {
            div.scroll tabindex="0" role="region" aria-label="Calls by provider" {
                table.cards { thead { tr { th scope="col" { "Provider" } th.n scope="col" { "Calls" } th scope="col" { "Accepted" } th.n scope="col" { "Half within" } th.n scope="col" { "95 % within" } th scope="col" { span.unseen { "Actions" } } } }
                    tbody { @for ((channel, name), own) in &calls {
                        @let share = own.accepted as f64 / own.all.max(1) as f64;
                        tr data-row="1" {
                            td { a href=(page.link_with("/lanes", &[("channel", channel), ("provider", name)])) { span.channel { (channel) } " " (provider(name)) } }
                            td.n data-label="Calls" { (number(own.all)) }
                            td data-label="Accepted" { meter min="0" max="1" low="0.9" optimum="1" value=(share) aria-label="Share of accepted calls" {} " " (format!("{:.1} %", share * 100.0)) }
                            td.n data-label="Half within" { (ms(own.quantile(0.5, &ends))) }
                            td.n data-label="95 % within" { (ms(own.quantile(0.95, &ends))) }
                            td.does { @if is_origin(channel, name) { (provider_actions(page, channel, name)) } }
                        }
                    } }
                }
            }
        }
    }
}

/// Whether it is no channel with accounts, no account, and not the rest of many.
fn is_origin(channel: &str, name: &str) -> bool {
    name != channel && name.contains("://")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_of_several_hours_are_added_up() {
        let mut calls = ProviderCalls::default();
        calls.add(&json!({"outcome": "accepted", "count": 9, "latency": [5, 4, 0]}));
        calls.add(&json!({"outcome": "retry_backoff", "count": 1, "latency": [0, 0, 1]}));
        assert_eq!((calls.all, calls.accepted), (10, 9));
        let ends = [10, 20];
        assert_eq!(
            [0.5, 0.9, 1.0].map(|q| calls.quantile(q, &ends)),
            [Some(10), Some(20), Some(20)]
        );
        assert_eq!(ProviderCalls::default().quantile(0.5, &ends), None);
    }
}

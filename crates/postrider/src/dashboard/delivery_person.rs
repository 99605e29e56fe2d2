//! Whom a delivery is for, as far as the page of the delivery shows it: the zone, and what else was sent to the same
//! address. Knows no address, only its keyed hash.

use maud::{Markup, html};
use serde_json::Value;

use super::api_calls::ApiCalls;
use super::json_read::JsonRead as _;
use super::now_page::delivery_rows;
use super::page_context::PageContext;
use super::problem_pages::encoded;

/// Deliveries of the recipient that are looked at, and shown.
const LOOKED_AT: &str = "50";
const SHOWN: usize = 8;

/// What is known besides the delivery itself. Nothing of it is needed: a call that fails leaves its part out.
#[derive(Debug, Default)]
pub(super) struct DeliveryPerson {
    pub(super) zone: Option<String>,
    others: Vec<Value>,
}

impl DeliveryPerson {
    pub(super) async fn of(page: &PageContext, delivery: &Value) -> Self {
        let calls = page.calls.for_tenant(delivery.text("tenant"));
        let (zone, others) = tokio::join!(zone(&calls, delivery), others(&calls, delivery));
        Self { zone, others }
    }

    /// The recent deliveries to the same address.
    pub(super) fn history(&self, page: &PageContext, delivery: &Value) -> Markup {
        if !delivery.has("recipient") {
            return html! {};
        }
        html! {
            h2 { "Others to this address"
                a.more href=(page.link_with("/deliveries", &[("recipient", delivery.text("recipient"))])) { "All of the recipient" }
            }
            @if self.others.is_empty() { p.quiet { "None of the recipient's latest " (LOOKED_AT) "." } }
            @else { (delivery_rows(page, &self.others, "Others to this address")) }
        }
    }
}

/// The zone of the address, or else of its recipient.
async fn zone(calls: &ApiCalls, delivery: &Value) -> Option<String> {
    let zone = |found: &Value, path: &str| {
        Some(found.text(path).to_owned()).filter(|zone| !zone.is_empty())
    };
    if delivery.has("address") {
        let path = format!("/v1/addresses/{}", encoded(delivery.text("address")));
        let own = calls.get(&path).await.ok().and_then(|found| zone(&found, "facts.zone"));
        if own.is_some() {
            return own;
        }
    }
    if !delivery.has("recipient") {
        return None;
    }
    let path = format!("/v1/recipients/{}", encoded(delivery.text("recipient")));
    calls.get(&path).await.ok().and_then(|found| zone(&found, "zone"))
}

async fn others(calls: &ApiCalls, delivery: &Value) -> Vec<Value> {
    if !delivery.has("recipient") {
        return Vec::new();
    }
    let query = [
        ("recipient", Some(delivery.text("recipient"))),
        ("channel", Some(delivery.text("channel"))),
        ("limit", Some(LOOKED_AT)),
    ];
    let Ok(found) = calls.get_with("/v1/deliveries", &query).await else { return Vec::new() };
    let is_other = |item: &&Value| {
        item.text("address_hash") == delivery.text("address_hash")
            && item.text("id") != delivery.text("id")
    };
    found.list("items").iter().filter(is_other).take(SHOWN).cloned().collect()
}

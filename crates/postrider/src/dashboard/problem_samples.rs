//! What a problem is about: where it is, as deliveries, lanes and the history name that place, and deliveries there.

use std::collections::BTreeMap;

use serde_json::Value;

use super::api_calls::PageCallResult;
use super::json_read::JsonRead as _;
use super::now_page::is_dead_reason;
use super::page_context::PageContext;

/// States of deliveries that a problem can hold up or end.
const STATES: [&str; 4] = ["failed", "retrying", "parked", "queued"];
const SHOWN: usize = 8;
const READ: &str = "200";

/// Where a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProblemPlace<'a> {
    pub(super) channel: Option<&'a str>,
    /// Absent if it is an account: then the channel is the provider.
    pub(super) provider: Option<&'a str>,
    pub(super) account: Option<&'a str>,
}

impl<'a> ProblemPlace<'a> {
    pub(super) fn of(problem: &'a Value) -> Self {
        let given = |name| Some(problem.text(name)).filter(|text| !text.is_empty());
        let account = given("account");
        let provider = given("provider").filter(|_| account.is_none());
        Self { channel: given("channel"), provider, account }
    }

    /// As parameters of pages that show lanes.
    pub(super) fn of_lanes(self) -> Vec<(&'static str, &'a str)> {
        let fields = [("channel", self.channel), ("provider", self.provider)];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// As parameters of pages that show deliveries.
    pub(super) fn of_deliveries(self) -> Vec<(&'static str, &'a str)> {
        let mut fields = self.of_lanes();
        fields.extend(self.account.map(|account| ("account", account)));
        fields
    }
}

/// Deliveries that it is about, the newest first, and of each state some.
pub(super) async fn samples(page: &PageContext, problem: &Value) -> PageCallResult<Vec<Value>> {
    let place = ProblemPlace::of(problem);
    let outcome = problem.text("outcome");
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    for state in STATES {
        let reason = (state == "failed" && is_dead_reason(outcome)).then_some(outcome);
        let mut all = read(page, place, state, reason, place.account).await?;
        if place.account.is_some() && matches!(state, "parked" | "queued") {
            // What was never attempted went through no account yet.
            let others = read(page, place, state, reason, None).await?;
            all.extend(others.into_iter().filter(|item| !has_account(item)));
        }
        let exact = all.iter().any(|item| has_outcome(item, outcome));
        all.retain(|item| !exact || has_outcome(item, outcome));
        found.extend(all.into_iter().take(SHOWN).map(|item| (item.text("id").to_owned(), item)));
    }
    let exact = found.values().any(|item| has_outcome(item, outcome));
    // Ids grow with time. What was answered says more than what waits.
    let mut newest: Vec<_> = found.into_values().rev().collect();
    newest.retain(|item| !exact || has_outcome(item, outcome));
    newest.sort_by_key(|item| item.list("log").is_empty());
    newest.truncate(SHOWN);
    Ok(newest)
}

async fn read(
    page: &PageContext,
    place: ProblemPlace<'_>,
    state: &str,
    reason: Option<&str>,
    account: Option<&str>,
) -> PageCallResult<Vec<Value>> {
    let query = [
        ("state", Some(state)),
        ("reason", reason),
        ("channel", place.channel),
        ("provider", place.provider),
        ("account", account),
        ("limit", Some(READ)),
    ];
    let found = page.calls.get_with("/v1/deliveries", &query).await?;
    Ok(found.list("items").to_vec())
}

fn has_account(item: &Value) -> bool {
    item.list("log").iter().any(|attempt| attempt.has("account"))
}

/// Whether the last attempt or the delivery ended so. Every delivery fits a problem without an outcome.
fn has_outcome(item: &Value, outcome: &str) -> bool {
    let last = item.list("log").last().map_or("", |last| last.text("outcome"));
    outcome.is_empty() || outcome == last || outcome == item.text("reason")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_account_is_found_by_its_channel_and_its_name() {
        let of_account = json!({"channel": "apns", "provider": "apple", "account": "apple"});
        let place = ProblemPlace::of(&of_account);
        assert_eq!(place.of_lanes(), [("channel", "apns")]);
        assert_eq!(place.of_deliveries(), [("channel", "apns"), ("account", "apple")]);
        let of_origin = json!({"channel": "webhook", "provider": "https://a"});
        let place = ProblemPlace::of(&of_origin);
        assert_eq!(place.of_deliveries(), [("channel", "webhook"), ("provider", "https://a")]);
    }
}

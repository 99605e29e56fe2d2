//! Dead letters by their cause: tenant, channel, provider, reason and error.

use std::collections::BTreeMap;

use serde_json::Value;

use super::api_calls::PageCallResult;
use super::json_read::JsonRead as _;
use super::page_context::PageContext;

/// Dead letters that are looked at, the newest.
pub(super) const LOOKED_AT: usize = 2_000;
const PAGE: usize = 1_000;
/// Filters that the page passes on to the API.
pub(super) const FILTERS: [&str; 6] =
    ["reason", "channel", "provider", "class", "account", "error"];

/// What dead letters of one cause have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeadCause {
    pub(super) tenant: String,
    pub(super) channel: String,
    pub(super) provider: String,
    pub(super) reason: String,
    /// The code of the last answer, or what it said.
    pub(super) error: String,
}

/// Dead letters of one cause.
#[derive(Debug, Clone)]
pub(super) struct DeadGroup {
    pub(super) cause: DeadCause,
    pub(super) count: u64,
    pub(super) newest: Value,
    pub(super) oldest_at: String,
}

/// All groups, and whether there are dead letters that were not looked at.
pub(super) struct DeadGroups {
    pub(super) groups: Vec<DeadGroup>,
    pub(super) looked_at: usize,
    pub(super) is_partial: bool,
}

impl DeadCause {
    pub(super) fn of(item: &Value) -> Self {
        let last = item.list("log").last().cloned().unwrap_or_default();
        let error = if last.has("code") { last.text("code") } else { last.text("detail") };
        Self {
            tenant: item.text("tenant").to_owned(),
            channel: item.text("channel").to_owned(),
            provider: item.text("provider").to_owned(),
            reason: item.text("reason").to_owned(),
            error: error.to_owned(),
        }
    }

    /// Exactly this cause, by the names of the API, but for the tenant. Only the error may be empty: then the last
    /// attempt told none.
    pub(super) fn exact_fields(&self) -> Vec<(&'static str, &str)> {
        let exact = [
            ("channel", &*self.channel),
            ("provider", &*self.provider),
            ("reason", &*self.reason),
            ("error_is", &*self.error),
        ];
        exact.into_iter().filter(|(name, value)| *name == "error_is" || !value.is_empty()).collect()
    }
}

/// The groups of the newest dead letters, the largest first.
pub(super) async fn dead_groups(page: &PageContext) -> PageCallResult<DeadGroups> {
    let mut found: BTreeMap<DeadCause, DeadGroup> = BTreeMap::new();
    let (mut cursor, mut looked_at) = (None::<String>, 0);
    let limit = PAGE.to_string();
    let has_more = loop {
        let query = [("limit", Some(limit.as_str())), ("cursor", cursor.as_deref())];
        let asked = FILTERS.iter().map(|name| (*name, page.query.get(name)));
        let query: Vec<_> = query.into_iter().chain(asked).collect();
        let answer = page.calls.get_with("/v1/dead-letters", &query).await?;
        for item in answer.list("items") {
            looked_at += 1;
            add(&mut found, item);
        }
        cursor = Some(answer.text("next").to_owned()).filter(|next| !next.is_empty());
        if cursor.is_none() || looked_at >= LOOKED_AT {
            break cursor.is_some();
        }
    };
    let mut groups: Vec<_> = found.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    Ok(DeadGroups { groups, looked_at, is_partial: has_more })
}

fn add(found: &mut BTreeMap<DeadCause, DeadGroup>, item: &Value) {
    let cause = DeadCause::of(item);
    let group = found.entry(cause.clone()).or_insert_with(|| DeadGroup {
        cause,
        count: 0,
        newest: item.clone(),
        oldest_at: String::new(),
    });
    group.count += 1;
    item.text("changed_at").clone_into(&mut group.oldest_at);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dead_letters_of_one_cause_are_one_group() {
        let item = |tenant: &str, at: &str| {
            json!({"tenant": tenant, "channel": "webhook", "provider": "https://a.example",
                "reason": "permanent", "changed_at": at, "log": [{"code": "http_400", "detail": "no"}]})
        };
        let mut found = BTreeMap::new();
        for (tenant, at) in [("a", "3"), ("b", "2"), ("a", "1")] {
            add(&mut found, &item(tenant, at));
        }
        let counts: Vec<_> = found.values().map(|g| (g.count, g.oldest_at.as_str())).collect();
        assert_eq!(counts, [(2, "1"), (1, "2")]);
        let cause = found.into_keys().next().unwrap();
        let expected = [
            ("channel", "webhook"),
            ("provider", "https://a.example"),
            ("reason", "permanent"),
            ("error_is", "http_400"),
        ];
        assert_eq!(cause.exact_fields(), expected);
        let silent = DeadCause { error: String::new(), ..cause };
        assert_eq!(silent.exact_fields()[3], ("error_is", ""), "not those that told an error");
    }
}

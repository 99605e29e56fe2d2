//! What a person asked for on the page of deliveries: filters, a time, and one search box for any id.

use postrider_core::Timestamp;
use serde_json::Value;

use super::api_calls::{ApiCalls, PageCallResult, RefusedCall};
use super::json_read::JsonRead as _;
use super::page_context::{ALL, PageContext};
use super::query::PageQuery;

/// Filters that the page passes on to the API, each with its name on the page.
pub(super) const FILTERS: [(&str, &str); 12] = [
    ("state", "state"),
    ("reason", "reason"),
    ("channel", "channel"),
    ("provider", "provider"),
    ("class", "class"),
    ("account", "account"),
    ("error", "error"),
    ("campaign", "campaign"),
    ("tag", "tag"),
    ("recipient", "recipient"),
    ("message", "message"),
    ("idempotency_key", "idempotency key"),
];
/// Times back from now: name, and seconds.
pub(super) const RANGES: [(&str, i64); 5] =
    [("1h", 3_600), ("6h", 21_600), ("24h", 86_400), ("7d", 604_800), ("30d", 2_592_000)];
const LIMIT: &str = "50";

/// What the address of the page asks for.
#[derive(Debug, Clone)]
pub(super) struct DeliverySearch {
    pub(super) query: PageQuery,
    pub(super) since: Option<String>,
    pub(super) until: Option<String>,
    now: Timestamp,
}

/// A page of what was found.
pub(super) struct FoundDeliveries {
    pub(super) items: Vec<Value>,
    pub(super) next: Option<String>,
    /// How the text of the search box was understood.
    pub(super) read_as: Option<&'static str>,
    /// The filter that the text was.
    pub(super) field: Option<&'static str>,
}

impl FoundDeliveries {
    pub(super) fn none() -> Self {
        Self { items: Vec::new(), next: None, read_as: None, field: None }
    }
}

impl DeliverySearch {
    pub(super) fn new(page: &PageContext) -> Self {
        let query = page.query.clone();
        let range = RANGES.iter().find(|(name, _)| query.get("range") == Some(name));
        let since = match query.get("since") {
            Some(since) => Some(since.to_owned()),
            None => range.map(|(_, s)| Timestamp(page.now.0 - s * 1_000).to_string()),
        };
        Self { since, until: query.get("until").map(str::to_owned), now: page.now, query }
    }

    /// The filters in force: parameter, name and value.
    pub(super) fn filters(&self) -> Vec<(&'static str, &'static str, &str)> {
        let own = FILTERS.iter();
        own.filter_map(|(name, label)| Some((*name, *label, self.query.get(name)?))).collect()
    }

    /// The page of one id; `None` if the text of the search box names none.
    pub(super) fn direct(&self, page: &PageContext) -> Option<String> {
        let text = self.query.get("q")?;
        let folder = match text.split_once('_')?.0 {
            "dlv" => "/deliveries",
            "prb" => "/problems",
            _ => return None,
        };
        Some(page.link(&format!("{folder}/{}", super::problem_pages::encoded(text))))
    }

    /// What the API finds. A text of the search box is a message, a recipient, an idempotency key or a tag: the first
    /// of these that finds anything.
    pub(super) async fn run(&self, page: &PageContext) -> PageCallResult<FoundDeliveries> {
        self.run_with(&page.calls, page.one_tenant().is_some()).await
    }

    async fn run_with(
        &self,
        calls: &ApiCalls,
        is_of_one_tenant: bool,
    ) -> PageCallResult<FoundDeliveries> {
        let Some(text) = self.query.get("q") else { return self.find(calls, None).await };
        if text.starts_with("msg_") {
            let mut found = self.find(calls, Some(("message", text))).await?;
            found.read_as = Some("the id of a message");
            return Ok(found);
        }
        let mut tries = vec![("recipient", "a recipient")];
        // A key is unique for one tenant only.
        if is_of_one_tenant {
            tries.push(("idempotency_key", "an idempotency key"));
        }
        tries.push(("tag", "a tag"));
        let mut refused = None;
        for (field, read_as) in tries {
            match self.find(calls, Some((field, text))).await {
                Ok(found) if !found.items.is_empty() => {
                    let (read_as, field) = (Some(read_as), Some(field));
                    return Ok(FoundDeliveries { read_as, field, ..found });
                }
                Ok(_) => {}
                // A text that can be no recipient may be a key.
                Err(error) if error.status == 422 => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        match refused {
            Some(error) if self.query.get("state").is_none() => Err(error),
            _ => Ok(FoundDeliveries::none()),
        }
    }

    async fn find(
        &self,
        calls: &ApiCalls,
        more: Option<(&str, &str)>,
    ) -> PageCallResult<FoundDeliveries> {
        let mut query: Vec<(&str, Option<&str>)> =
            self.filters().into_iter().map(|(name, _, value)| (name, Some(value))).collect();
        if let Some((name, value)) = more {
            query.retain(|(own, _)| *own != name);
            query.push((name, Some(value)));
        }
        query.push(("since", self.since.as_deref()));
        query.push(("until", self.until.as_deref()));
        query.push(("cursor", self.query.get("cursor")));
        query.push(("limit", Some(LIMIT)));
        let found = calls.get_with("/v1/deliveries", &query).await?;
        let next = Some(found.text("next").to_owned()).filter(|next| !next.is_empty());
        Ok(FoundDeliveries { items: found.list("items").to_vec(), next, ..FoundDeliveries::none() })
    }

    /// The filters without any one of which something would be found, as words and addresses. If there is no such
    /// filter, all of them together exclude everything.
    pub(super) async fn excluding(&self, page: &PageContext) -> Vec<(String, String)> {
        let own = self.filters().into_iter();
        let mut names: Vec<(&str, String)> =
            own.map(|(name, label, value)| (name, format!("{label} {value}"))).collect();
        names.extend(self.query.get("q").map(|text| ("q", format!("search for {text}"))));
        if self.since.is_some() || self.until.is_some() {
            names.push(("time", "time".to_owned()));
        }
        let is_of_one_tenant = page.one_tenant().is_some();
        let mut found = Vec::new();
        for (name, label) in &names {
            let other = self.without(name);
            let run = other.run_with(&page.calls, is_of_one_tenant).await;
            if run.is_ok_and(|found| !found.items.is_empty()) {
                found.push((label.clone(), other.query.to(&page.path)));
            }
        }
        if let Some(tenant) = page.one_tenant().filter(|_| page.caller.all_tenants) {
            let other = Self { query: self.query.with("tenant", None), ..self.clone() };
            let run = other.run_with(&page.calls.for_tenant(ALL), false).await;
            if run.is_ok_and(|found| !found.items.is_empty()) {
                found.push((format!("tenant {tenant}"), other.query.to(&page.path)));
            }
        }
        if found.is_empty() && names.len() > 1 {
            let free = names.iter().fold(self.clone(), |other, (name, _)| other.without(name));
            let run = free.run_with(&page.calls, is_of_one_tenant).await;
            if run.is_ok_and(|found| !found.items.is_empty()) {
                let all: Vec<_> = names.into_iter().map(|(_, label)| label).collect();
                found.push((format!("all of: {}", all.join(", ")), free.query.to(&page.path)));
            }
        }
        found
    }

    /// The same without one of its filters; `time` stands for all that say a time.
    fn without(&self, name: &str) -> Self {
        if name != "time" {
            return Self { query: self.query.with(name, None), ..self.clone() };
        }
        let query = self.query.with("range", None).with("since", None).with("until", None);
        Self { query, since: None, until: None, ..self.clone() }
    }

    /// What was found as the filter of a job, with absolute times.
    pub(super) fn of_job(&self, found: &FoundDeliveries) -> Vec<(&'static str, String)> {
        let own = self.filters().into_iter().map(|(name, _, value)| (name, value.to_owned()));
        let mut filter: Vec<(&'static str, String)> = own.collect();
        if let Some(text) = self.query.get("q") {
            let field = Self::field_of(text, found);
            filter.retain(|(name, _)| *name != field);
            filter.push((field, text.to_owned()));
        }
        filter.extend(self.since.clone().map(|since| ("since", since)));
        filter.extend(self.until.clone().map(|until| ("until", until)));
        filter
    }

    /// The filter that the text of the search box was understood as.
    fn field_of(text: &str, found: &FoundDeliveries) -> &'static str {
        match text.starts_with("msg_") {
            true => "message",
            false => found.field.unwrap_or("recipient"),
        }
    }

    /// The same on the command line. The text of the search box is what it was understood as.
    pub(super) fn cli(&self, found: &FoundDeliveries) -> String {
        let searched = self.query.get("q").map_or(self.query.clone(), |text| {
            self.query.with(Self::field_of(text, found), Some(text))
        });
        let names = FILTERS.map(|(name, _)| name);
        let mut text = command("postrider deliveries list", &searched, &names);
        for (name, value) in [("since", &self.since), ("until", &self.until)] {
            if let Some(value) = value {
                text += &format!(" --{name} {value}");
            }
        }
        text
    }

    /// The address with absolute times; `None` if it has no relative one.
    pub(super) fn lasting_link(&self, path: &str) -> Option<String> {
        self.query.get("range")?;
        let until = self.until.clone().unwrap_or_else(|| self.now.to_string());
        let query = self.query.with("range", None).with("since", self.since.as_deref());
        Some(query.with("until", Some(&until)).to(path))
    }
}

/// A command with the parameters of the page as options of the same names.
pub(super) fn command(start: &str, query: &PageQuery, names: &[&str]) -> String {
    let given = names.iter().filter_map(|name| Some((*name, query.get(name)?)));
    given.fold(start.to_owned(), |text, (name, value)| {
        format!("{text} --{} {}", name.replace('_', "-"), quoted(value))
    })
}

/// A value for a shell.
pub(super) fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+".contains(c);
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

/// A text that names a time for which nothing can be found.
pub(super) fn unreadable(refused: &RefusedCall) -> bool {
    refused.status == 422 || refused.status == 400
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_quoted_for_the_shell() {
        assert_eq!(quoted("https://a.example"), "https://a.example");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}

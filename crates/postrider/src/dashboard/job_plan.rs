//! A job before it is made: what it would do, read from an address or a form, asked of the API, and as a command.
//! Changes nothing until it is ordered.

use serde_json::{Map, Value, json};

use super::api_calls::{ApiCalls, PageCallResult};
use super::deliveries_search::quoted;
use super::json_read::JsonRead as _;
use super::page_context::PageContext;
use super::query::PageQuery;
use crate::keys::KeyScope;

const KINDS: [&str; 4] = ["replay", "discard", "cancel", "export"];
const FORMATS: [&str; 2] = ["ndjson", "csv"];
const RATE: f64 = 50.0;
/// Filters of jobs by their names in the API.
const FILTERS: [&str; 15] = [
    "state",
    "reason",
    "channel",
    "provider",
    "class",
    "account",
    "error",
    "error_is",
    "campaign",
    "tag",
    "recipient",
    "message",
    "idempotency_key",
    "since",
    "until",
];
/// Stands for an empty `error_is`: an address has no empty parameters.
const NO_ERROR: &str = "no_error";

/// What a person wants a job to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JobWish {
    pub(super) kind: &'static str,
    /// Absent for all tenants: only an export can have them.
    pub(super) tenant: Option<String>,
    pub(super) filter: Vec<(&'static str, String)>,
    pub(super) rate_per_s: f64,
    format: &'static str,
}

/// What a job would take.
pub(super) struct JobForecast {
    pub(super) count: u64,
    pub(super) sample: Vec<Value>,
    pub(super) takes_s: u64,
    /// There are more than were counted.
    pub(super) is_partial: bool,
}

impl JobWish {
    pub(super) fn new(kind: &'static str, tenant: Option<&str>, filter: &[(&str, &str)]) -> Self {
        let value = |name: &str| filter.iter().find(|(own, _)| *own == name).map(|(_, v)| *v);
        let known = FILTERS.into_iter().filter_map(|name| Some((name, value(name)?.to_owned())));
        let (filter, tenant) = (known.collect(), tenant.map(str::to_owned));
        Self { kind, tenant, filter, rate_per_s: RATE, format: FORMATS[0] }
    }

    /// From the parameters of an address, or the fields of a form. `None` if there is no such kind.
    pub(super) fn read<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let kind = KINDS.into_iter().find(|kind| get("kind") == Some(kind))?;
        let mut filter: Vec<(&str, &str)> =
            FILTERS.into_iter().filter_map(|name| Some((name, get(name)?))).collect();
        if get(NO_ERROR).is_some() {
            filter.push(("error_is", ""));
        }
        let rate = get("rate").and_then(|rate| rate.parse::<f64>().ok());
        let rate = rate.filter(|rate| rate.is_finite() && *rate > 0.0);
        let format = FORMATS.into_iter().find(|format| get("format") == Some(format));
        Some(Self {
            rate_per_s: rate.unwrap_or(RATE),
            format: format.unwrap_or(FORMATS[0]),
            ..Self::new(kind, get("of"), &filter)
        })
    }

    /// Everything but the rate, as parameters of an address or fields of a form.
    pub(super) fn parameters(&self) -> Vec<(&'static str, &str)> {
        let mut all = vec![("kind", self.kind)];
        all.extend(self.tenant.as_deref().map(|tenant| ("of", tenant)));
        all.extend(self.filter.iter().map(|(name, value)| match (*name, value.as_str()) {
            ("error_is", "") => (NO_ERROR, "1"),
            (name, value) => (name, value),
        }));
        all
    }

    /// The address of its plan.
    pub(super) fn link(&self, page: &PageContext) -> String {
        let begin = page.query.only(&["tenant"]);
        let add = |query: PageQuery, (name, value): (&str, &str)| query.with(name, Some(value));
        self.parameters().into_iter().fold(begin, add).to("/jobs/plan")
    }

    /// The same for the tenant that the page is about, unless it names one.
    pub(super) fn on(self, page: &PageContext) -> Self {
        let tenant = self.tenant.or_else(|| page.one_tenant().map(str::to_owned));
        Self { tenant, ..self }
    }

    pub(super) fn of(self, tenant: &str) -> Self {
        Self { tenant: Some(tenant.to_owned()), ..self }
    }

    /// Whether it has to be of one tenant, and is not.
    pub(super) fn lacks_tenant(&self) -> bool {
        self.tenant.is_none() && self.kind != "export"
    }

    pub(super) fn is_of_dead_letters(&self) -> bool {
        matches!(self.kind, "replay" | "discard")
    }

    /// The right that it needs.
    pub(super) fn needs(&self) -> KeyScope {
        needed(self.kind)
    }

    /// Changes nothing.
    pub(super) async fn forecast(&self, page: &PageContext) -> PageCallResult<JobForecast> {
        let mut body = self.body(None);
        body["dry_run"] = true.into();
        let found = self.calls(page).post("/v1/jobs", &body).await?;
        Ok(JobForecast {
            count: found.number("count"),
            sample: found.list("sample").to_vec(),
            takes_s: found.number("takes_s"),
            is_partial: found.has("count_is_at_least"),
        })
    }

    /// Makes the job, and returns its id.
    pub(super) async fn order(
        &self,
        page: &PageContext,
        reason: Option<&str>,
    ) -> PageCallResult<String> {
        let job = self.calls(page).post("/v1/jobs", &self.body(reason)).await?;
        Ok(job.text("id").to_owned())
    }

    fn calls(&self, page: &PageContext) -> ApiCalls {
        page.calls.for_tenant(self.tenant.as_deref().unwrap_or(&page.tenant))
    }

    fn body(&self, reason: Option<&str>) -> Value {
        let filter = self.filter.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        let filter: Map<String, Value> = filter.collect();
        let mut body = json!({"kind": self.kind, "filter": filter, "rate_per_s": self.rate_per_s});
        if self.kind == "export" {
            body["format"] = self.format.into();
        }
        if let Some(reason) = reason {
            body["reason"] = reason.into();
        }
        body
    }

    /// The same on the command line; `None` if no command has these filters.
    pub(super) fn command(&self) -> Option<String> {
        let has = |name: &str| self.filter.iter().any(|(own, _)| *own == name);
        if self.kind == "cancel" && has("reason") {
            return None;
        }
        let is_dead_export = self.kind == "export"
            && self.filter.contains(&("state", "failed".to_owned()))
            && !has("message");
        let is_of_dead_letters = self.is_of_dead_letters() || is_dead_export;
        let noun = if is_of_dead_letters { "dead" } else { "deliveries" };
        let mut text = format!("postrider {noun} {}", self.kind);
        if let Some(tenant) = &self.tenant {
            text += &format!(" --tenant {}", quoted(tenant));
        }
        let mut is_filtered = false;
        for (name, value) in &self.filter {
            if !(is_dead_export && *name == "state") {
                text += &format!(" --{} {}", name.replace('_', "-"), quoted(value));
                is_filtered = true;
            }
        }
        if !is_filtered && self.kind != "export" {
            text += " --all";
        }
        match self.kind {
            "export" if !is_dead_export => text += &format!(" --format {}", self.format),
            "replay" | "cancel" => text += &format!(" --rate {}", self.rate_per_s),
            _ => {}
        }
        Some(text)
    }
}

/// The right that a job of this kind needs.
pub(super) fn needed(kind: &str) -> KeyScope {
    match kind {
        "cancel" => KeyScope::Send,
        "export" => KeyScope::Read,
        _ => KeyScope::Replay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Option<JobWish> {
        JobWish::read(|name| pairs.iter().find(|(own, _)| *own == name).map(|(_, v)| *v))
    }

    #[test]
    fn a_wish_is_read_as_its_parameters_say() {
        let filter = [("channel", "webhook"), ("error_is", ""), ("unknown", "x")];
        let wish = JobWish::new("replay", Some("acme"), &filter);
        assert_eq!(wish.filter.len(), 2, "{wish:?}");
        assert_eq!(read(&wish.parameters()), Some(wish.clone()));
        assert_eq!(wish.body(None)["filter"]["error_is"], "", "not those that told an error");
        assert_eq!(read(&[("kind", "explode")]), None);
        let paced = read(&[("kind", "cancel"), ("rate", "-3")]).unwrap();
        assert!(paced.lacks_tenant() && (paced.rate_per_s - RATE).abs() < f64::EPSILON);
    }

    #[test]
    fn a_command_does_exactly_the_same() {
        let command = |kind, tenant, filter: &[(&str, &str)]| {
            JobWish::new(kind, tenant, filter).command().unwrap_or_default()
        };
        assert_eq!(
            command("cancel", Some("acme"), &[("state", "retrying"), ("idempotency_key", "a b")]),
            "postrider deliveries cancel --tenant acme --state retrying --idempotency-key 'a b' --rate 50"
        );
        assert_eq!(
            command("replay", Some("acme"), &[("error_is", "")]),
            "postrider dead replay --tenant acme --error-is '' --rate 50"
        );
        assert_eq!(
            command("export", None, &[("state", "failed"), ("reason", "ttl")]),
            "postrider dead export --reason ttl"
        );
        assert_eq!(
            command("export", None, &[("tag", "orders")]),
            "postrider deliveries export --tag orders --format ndjson"
        );
        let all = command("cancel", Some("a"), &[]);
        assert_eq!(all, "postrider deliveries cancel --tenant a --all --rate 50");
        assert_eq!(command("cancel", Some("a"), &[("reason", "ttl")]), "", "not more than that");
    }
}

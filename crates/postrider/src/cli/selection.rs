//! What a command is for: ids, a filter, or everything.

use super::prelude::*;

/// The fields of a filter by their names in the API.
pub(super) type FilterFields<const N: usize> = [(&'static str, Option<String>); N];

/// Which deliveries, as `list` and `release` of `deliveries` take it.
#[derive(Debug, Args)]
pub(super) struct DeliveryChoiceArgs {
    /// Only this channel, e.g. webhook
    #[arg(long)]
    channel: Option<String>,
    #[arg(long)]
    recipient: Option<String>,
    /// msg_…
    #[arg(long)]
    message: Option<String>,
    /// One of the tags of the message.
    #[arg(long)]
    tag: Option<String>,
    /// Not older than this, e.g. 2026-11-15T06:00:00Z
    #[arg(long)]
    since: Option<String>,
    /// Older than this.
    #[arg(long)]
    until: Option<String>,
}

impl DeliveryChoiceArgs {
    pub(super) fn fields(self) -> FilterFields<6> {
        [
            ("channel", self.channel),
            ("recipient", self.recipient),
            ("message", self.message),
            ("tag", self.tag),
            ("since", self.since),
            ("until", self.until),
        ]
    }
}

/// Which lane, account, error and campaign, for deliveries and dead letters.
#[derive(Debug, Clone, Args)]
pub(super) struct LaneChoiceArgs {
    /// Only this provider, e.g. https://hooks.example.com
    #[arg(long)]
    provider: Option<String>,
    /// Only this class
    #[arg(long)]
    class: Option<String>,
    /// The account that the last attempt went through
    #[arg(long)]
    account: Option<String>,
    /// Part of the last attempt's code or detail
    #[arg(long)]
    error: Option<String>,
    /// Exactly its code, or its detail if it has no code; '' for neither
    #[arg(long)]
    error_is: Option<String>,
    /// Only this campaign
    #[arg(long)]
    campaign: Option<String>,
}

impl LaneChoiceArgs {
    pub(super) fn fields(&self) -> FilterFields<6> {
        [
            ("provider", self.provider.clone()),
            ("class", self.class.clone()),
            ("account", self.account.clone()),
            ("error", self.error.clone()),
            ("error_is", self.error_is.clone()),
            ("campaign", self.campaign.clone()),
        ]
    }
}

/// The part of a request that selects `what`. Selecting all needs `--all`.
pub(super) fn selection(
    what: &str,
    ids: &[String],
    fields: impl IntoIterator<Item = (&'static str, Option<String>)>,
    all: bool,
) -> Result<Map<String, Value>, CliError> {
    let mut filter = Map::new();
    for (name, value) in fields {
        filter.extend(value.map(|value| (name.to_owned(), Value::from(value))));
    }
    let entry = match (ids.is_empty(), filter.is_empty(), all) {
        (false, true, false) => ("ids".to_owned(), json!(ids)),
        (true, false, false) | (true, true, true) => ("filter".to_owned(), Value::Object(filter)),
        (true, true, false) => {
            let text = format!("select {what} by ids, by a filter, or with --all");
            return Err(CliError::Usage(text));
        }
        _ => return Err(CliError::Usage("give only one of ids, a filter and --all".to_owned())),
    };
    Ok(Map::from_iter([entry]))
}

/// How many were changed, and how many of the ids were not, because they `are_not` what was to be changed.
pub(super) fn result(ids: &[String], done: &Value, verb: &str, are_not: &str) -> String {
    match (ids.len() as u64).saturating_sub(done.as_u64().unwrap_or(0)) {
        0 => format!("{done} {verb}"),
        n => format!("{done} {verb}, {n} {are_not}"),
    }
}

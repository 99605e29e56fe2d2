//! The differences between two configurations, and which of them need a restart. Pure.

use serde_json::Value;

use super::ReloadReport;
use crate::config::{Config, ConfigError};

/// Sections that can change as a whole while the server runs.
const SECTIONS: [&str; 14] = [
    "encryption",
    "classes",
    "tenants",
    "classify",
    "dispatch",
    "breaker",
    "retry_budget",
    "strikes",
    "capacity",
    "limits",
    "retention",
    "problems",
    "alerts",
    "templates",
];

/// Single settings that can change while the server runs.
const SETTINGS: [&str; 19] = [
    "server.body_bytes_max",
    "server.batch_results_bytes_max",
    "server.batch_idle_timeout_s",
    "server.request_timeout_s",
    "server.metrics_public",
    "server.trusted_proxies",
    "server.key_requests_per_s",
    "server.key_requests_burst",
    "server.key_calls_max",
    "server.key_event_streams_max",
    "server.address_requests_per_s",
    "server.address_requests_burst",
    "receipts.address_per_s",
    "receipts.address_burst",
    "receipts.per_s_max",
    "receipts.burst_max",
    "rollups.minutes_kept_h",
    "rollups.hours_kept_days",
    "log.level",
];

/// Whether a setting can change while the server runs. An unknown setting cannot.
pub(super) fn is_live(path: &str) -> bool {
    let (section, field) = path.split_once('.').unwrap_or((path, ""));
    // Rates and concurrency of any channel.
    let is_pace = field == "concurrency" || field.starts_with("rate_");
    SECTIONS.contains(&section) || SETTINGS.contains(&path) || is_pace
}

/// The wanted configuration, except for the settings that need a restart: they stay as they are.
pub(super) fn applicable(
    running: &Config,
    wanted: Config,
) -> Result<(Config, ReloadReport), ConfigError> {
    let (old, mut new) = (json(running)?, json(&wanted)?);
    let (changed, needs_restart): (Vec<_>, Vec<_>) =
        differences(&old, &new).into_iter().partition(|path| is_live(path));
    if needs_restart.is_empty() {
        return Ok((wanted, ReloadReport { changed, needs_restart }));
    }
    for path in &needs_restart {
        restore(&mut new, &old, path);
    }
    Ok((wanted.with_values(new)?, ReloadReport { changed, needs_restart }))
}

pub(super) fn json(config: &Config) -> Result<Value, ConfigError> {
    serde_json::to_value(config).map_err(|error| ConfigError::malformed("the configuration", error))
}

/// The paths of all values that differ.
fn differences(old: &Value, new: &Value) -> Vec<String> {
    fn walk(path: &str, old: Option<&Value>, new: Option<&Value>, into: &mut Vec<String>) {
        if old == new {
            return;
        }
        if let (Some(Value::Object(old)), Some(Value::Object(new))) = (old, new) {
            let only_new = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(only_new) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                walk(&path, old.get(key), new.get(key), into);
            }
            return;
        }
        into.push(path.to_owned());
    }
    let mut found = Vec::new();
    walk("", Some(old), Some(new), &mut found);
    found.sort();
    found
}

/// Puts the old value back.
fn restore(new: &mut Value, old: &Value, path: &str) {
    let (head, rest) = path.split_once('.').unwrap_or((path, ""));
    let Value::Object(new) = new else { return };
    if let (false, Some(inner), Some(old)) = (rest.is_empty(), new.get_mut(head), old.get(head)) {
        return restore(inner, old, rest);
    }
    match old.get(head) {
        Some(value) => new.insert(head.to_owned(), value.clone()),
        None => new.remove(head),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    fn config(text: &str) -> Config {
        Config::parse(text, "test", &Environment::empty()).unwrap()
    }

    #[test]
    fn settings_that_need_a_restart_are_named_and_stay_and_all_others_change() {
        let runs = config("[server]\nlisten = \"127.0.0.1:1\"\n[webhook]\nrate_per_s = 5");
        let wanted = config(
            "[server]\nlisten = \"127.0.0.1:2\"\n[webhook]\nrate_per_s = 7\ntimeout_s = 9\n\
             [classes.news]\nttl_s = 60\n[tenants.acme]\nweight = 2\n[log]\nlevel = \"debug\"",
        );
        let (config, report) = applicable(&runs, wanted).unwrap();
        assert_eq!(
            report.changed,
            ["classes.news", "log.level", "tenants", "webhook.rate_per_s"],
            "in the order of their names"
        );
        assert_eq!(report.needs_restart, ["server.listen", "webhook.timeout_s"]);
        assert_eq!(config.server.listen.port(), 1);
        assert_eq!(
            (config.channels.webhook.rate_per_s, config.channels.webhook.timeout_s),
            (7.0, 30)
        );
        assert_eq!(&*config.classes["news"].name, "news");
    }

    #[test]
    fn the_same_again_changes_nothing() {
        let text = "[[classify]]\nservice = \"webhook\"\nstatus = 404\noutcome = \"gone\"";
        let (_, report) = applicable(&config(text), config(text)).unwrap();
        assert!(report.changed.is_empty() && report.needs_restart.is_empty());
    }

    #[test]
    fn a_secret_that_appears_later_needs_a_restart_and_is_not_shown() {
        let wanted = config("[admin]\nkey = \"QyHn0v6kPz3tXwLm9aBsRf2uJd8eGc5iVo7TqYhK1xE\"");
        let (config, report) = applicable(&config(""), wanted).unwrap();
        assert_eq!(report.needs_restart, ["admin.key"]);
        assert!(config.admin.key.is_none());
    }
}

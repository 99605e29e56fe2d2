//! `classes`, `tenants` and `limits`: what holds, where it comes from, and how to change it at once.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::output::{Output, cell, items, table};
use super::{CliError, CliResult, ConnectionArgs, path_segment};
use crate::client::Client;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  postrider classes list
  postrider classes set news ttl_s=600 priority=low retry.retries=3
  postrider classes reset news")]
pub(super) struct ClassesArgs {
    #[command(subcommand)]
    what: SettingCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  postrider limits show
  postrider limits set webhook rate_per_s=50 rate_burst=20
  postrider limits set capacity tenant_deliveries_max=100000
  postrider limits reset webhook")]
pub(super) struct LimitsArgs {
    #[command(subcommand)]
    what: LimitsCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  postrider tenants list
  postrider tenants set acme weight=3 rate_per_s=50
  postrider tenants pause acme")]
pub(super) struct TenantsArgs {
    #[command(subcommand)]
    what: TenantsCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum SettingCommand {
    /// All of them, and where their values come from: the default, the file or the API.
    List,
    /// Every value of one.
    Show { name: String },
    /// Change values, at once and across restarts, over what the file says (admin key).
    Set {
        name: String,
        /// FIELD=VALUE, the value as JSON or as plain text.
        #[arg(required = true, value_name = "FIELD=VALUE")]
        values: Vec<String>,
    },
    /// Take back what was set, so that the file holds again (admin key).
    Reset { name: String },
}

#[derive(Debug, Subcommand)]
enum TenantsCommand {
    #[command(flatten)]
    Setting(SettingCommand),
    /// Send nothing of a tenant until it is resumed, also across restarts (admin key).
    Pause { name: String },
    /// Send a paused tenant's work again (admin key).
    Resume { name: String },
}

#[derive(Debug, Subcommand)]
enum LimitsCommand {
    /// All limits, or those of one section: a channel, dispatch, breaker, retry_budget, strikes or capacity.
    Show { section: Option<String> },
    /// Change limits, at once and across restarts, over what the file says (admin key).
    Set {
        section: String,
        /// SETTING=VALUE
        #[arg(required = true, value_name = "SETTING=VALUE")]
        values: Vec<String>,
    },
    /// Take back what was set for a section, so that the file holds again (admin key).
    Reset { section: String },
}

pub(super) async fn classes(args: ClassesArgs) -> CliResult {
    let noun = SettingsClient::new("/v1/classes", &args.connection)?;
    match args.what {
        SettingCommand::List => {
            let list = noun.client.get(noun.path).await?;
            noun.out.show(&list, |list| {
                let classes: Vec<_> = list["classes"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(_, c)| c.clone())
                    .collect();
                table(&classes, &CLASS_COLUMNS)
            })
        }
        other => noun.run(other).await,
    }
}

pub(super) async fn tenants(args: TenantsArgs) -> CliResult {
    let noun = SettingsClient::new("/v1/tenants", &args.connection)?;
    let (name, act) = match args.what {
        TenantsCommand::Setting(SettingCommand::List) => {
            let list = noun.client.get(noun.path).await?;
            return noun.out.show(&list, |list| table(items(list, "tenants"), &TENANT_COLUMNS));
        }
        TenantsCommand::Setting(other) => return noun.run(other).await,
        TenantsCommand::Pause { name } => (name, "pause"),
        TenantsCommand::Resume { name } => (name, "resume"),
    };
    let path = format!("{}/{act}", noun.one(&name)?);
    noun.out.show(&noun.client.post(&path, &Value::Null).await?, detail)
}

pub(super) async fn limits(args: LimitsArgs) -> CliResult {
    let noun = SettingsClient::new("/v1/limits", &args.connection)?;
    match args.what {
        LimitsCommand::Show { section: None } => {
            let list = noun.client.get(noun.path).await?;
            let text = |list: &Value| {
                let all: Vec<_> = items(list, "limits").iter().map(detail).collect();
                all.join("\n")
            };
            noun.out.show(&list, text)
        }
        LimitsCommand::Show { section: Some(name) } => {
            noun.run(SettingCommand::Show { name }).await
        }
        LimitsCommand::Set { section: name, values } => {
            noun.run(SettingCommand::Set { name, values }).await
        }
        LimitsCommand::Reset { section: name } => noun.run(SettingCommand::Reset { name }).await,
    }
}

/// One kind of setting at the server.
struct SettingsClient {
    path: &'static str,
    client: Client,
    out: Output,
}

impl SettingsClient {
    fn new(path: &'static str, connection: &ConnectionArgs) -> Result<Self, CliError> {
        Ok(Self { path, client: connection.client()?, out: connection.output() })
    }

    fn one(&self, name: &str) -> Result<String, CliError> {
        Ok(format!("{}/{}", self.path, path_segment(name)?))
    }

    async fn run(&self, command: SettingCommand) -> CliResult {
        match command {
            SettingCommand::List => Ok(()),
            SettingCommand::Show { name } => {
                self.out.show(&self.client.get(&self.one(&name)?).await?, detail)
            }
            SettingCommand::Set { name, values } => {
                let path = self.one(&name)?;
                let mut set = self.set_so_far(&path).await?;
                for assignment in &values {
                    assign(&mut set, assignment)?;
                }
                let body = Value::Object(set);
                self.out.show(&self.client.json(Method::PUT, &path, Some(&body)).await?, detail)
            }
            SettingCommand::Reset { name } => {
                self.client.delete(&self.one(&name)?).await?;
                let done = json!({"reset": name});
                self.out.show(&done, |done| format!("{} is as the file says", cell(done, "/reset")))
            }
        }
    }

    /// What was set before stays set: `set` adds to it.
    async fn set_so_far(&self, path: &str) -> Result<Map<String, Value>, CliError> {
        match self.client.get(path).await {
            Ok(shown) => Ok(shown["set"].as_object().cloned().unwrap_or_default()),
            Err(crate::client::ClientError::Refused(refused)) if refused.status == 404 => {
                Ok(Map::new())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// `retry.retries=3` becomes `{"retry": {"retries": 3}}`.
fn assign(set: &mut Map<String, Value>, assignment: &str) -> Result<(), CliError> {
    let wrong = || CliError::Usage(format!("{assignment:?} is not of the form FIELD=VALUE"));
    let (path, text) = assignment.split_once('=').ok_or_else(wrong)?;
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    put(set, path, value).ok_or_else(wrong)
}

/// Puts a value where the path leads; nothing if it leads nowhere.
pub(super) fn put(set: &mut Map<String, Value>, path: &str, value: Value) -> Option<()> {
    let mut keys: Vec<&str> = path.split('.').collect();
    let last = keys.pop().filter(|last| !last.is_empty())?;
    let mut at = set;
    for key in keys {
        let inner = at.entry(key).or_insert_with(|| Value::Object(Map::new()));
        at = inner.as_object_mut()?;
    }
    at.insert(last.to_owned(), value);
    Some(())
}

/// Fields that say something about the setting, not what it is set to.
const ABOUT: [&str; 7] = ["name", "source", "set", "set_by", "set_at", "paused", "capacity"];

fn detail(shown: &Value) -> String {
    let mut text = format!("{} ({})", cell(shown, "/name"), cell(shown, "/source"));
    if shown["set_by"].is_string() {
        text += &format!(", set by {} at {}", cell(shown, "/set_by"), cell(shown, "/set_at"));
    }
    if shown["paused"].is_object() {
        let (by, at) = (cell(shown, "/paused/by"), cell(shown, "/paused/at"));
        text += &format!("\npaused by {by} at {at}");
    }
    let fields = shown.as_object().into_iter().flatten();
    let rows: Vec<_> = fields
        .filter(|(name, _)| !ABOUT.contains(&name.as_str()))
        .map(|(name, value)| {
            let set = shown["set"].get(name).map(|_| "api");
            json!({"field": name, "value": value, "set": set})
        })
        .collect();
    let columns = [("FIELD", "/field"), ("VALUE", "/value"), ("SET BY", "/set")];
    format!("{text}\n{}", table(&rows, &columns))
}

const CLASS_COLUMNS: [(&str, &str); 6] = [
    ("CLASS", "/name"),
    ("SOURCE", "/source"),
    ("TTL S", "/ttl_s"),
    ("PRIORITY", "/priority"),
    ("RETRIES", "/retry/retries"),
    ("ON AMBIGUOUS", "/on_ambiguous"),
];

const TENANT_COLUMNS: [(&str, &str); 8] = [
    ("TENANT", "/name"),
    ("SOURCE", "/source"),
    ("WEIGHT", "/weight"),
    ("RATE PER S", "/rate_per_s"),
    ("PENDING", "/capacity/deliveries"),
    ("FULL", "/capacity/fill"),
    ("PAUSED SINCE", "/paused/at"),
    ("PAUSED BY", "/paused/by"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_is_read_as_json_or_as_text_and_may_lead_into_a_table() {
        let mut set = Map::new();
        for text in ["ttl_s=600", "priority=low", "retry.retries=3", "retry.kind=fixed"] {
            assign(&mut set, text).unwrap();
        }
        let wanted =
            json!({"ttl_s": 600, "priority": "low", "retry": {"retries": 3, "kind": "fixed"}});
        assert_eq!(Value::Object(set), wanted);
    }

    #[test]
    fn what_is_no_assignment_is_refused() {
        for wrong in ["ttl_s", "=5", "a.=5", "ttl_s.x=5"] {
            let mut set = Map::from_iter([("ttl_s".to_owned(), json!(1))]);
            assert!(assign(&mut set, wrong).is_err(), "{wrong}");
        }
    }
}

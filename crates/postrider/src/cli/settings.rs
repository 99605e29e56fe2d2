//! `classes`, `tenants` and `limits`: show and change settings while the server runs.

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
    /// List all, with the source of their values: default, file or API.
    List,
    /// Show all values of one.
    Show { name: String },
    /// Change values (admin key). They win over the file, take effect at once and survive restarts.
    Set {
        name: String,
        /// FIELD=VALUE; the value is JSON or plain text.
        #[arg(required = true, value_name = "FIELD=VALUE")]
        values: Vec<String>,
    },
    /// Remove what was set, so that the file applies again (admin key).
    Reset { name: String },
}

#[derive(Debug, Subcommand)]
enum TenantsCommand {
    #[command(flatten)]
    Setting(SettingCommand),
    /// Pause a tenant: send nothing until it is resumed, also after a restart (admin key).
    Pause { name: String },
    /// Resume a paused tenant (admin key).
    Resume { name: String },
}

#[derive(Debug, Subcommand)]
enum LimitsCommand {
    /// Show all limits, or those of one section: a channel, dispatch, breaker, retry_budget, strikes or capacity.
    Show { section: Option<String> },
    /// Change limits (admin key). They win over the file, take effect at once and survive restarts.
    Set {
        section: String,
        /// SETTING=VALUE
        #[arg(required = true, value_name = "SETTING=VALUE")]
        values: Vec<String>,
    },
    /// Remove what was set for a section, so that the file applies again (admin key).
    Reset { section: String },
}

pub(super) async fn classes(args: ClassesArgs) -> CliResult {
    let settings = SettingsClient::new("/v1/classes", &args.connection)?;
    match args.what {
        SettingCommand::List => {
            let list = settings.client.get(settings.path).await?;
            settings.out.show(&list, |list| {
                let classes: Vec<_> = list["classes"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(_, c)| c.clone())
                    .collect();
                table(&classes, &CLASS_COLUMNS)
            })
        }
        other => settings.run(other).await,
    }
}

pub(super) async fn tenants(args: TenantsArgs) -> CliResult {
    let settings = SettingsClient::new("/v1/tenants", &args.connection)?;
    let (name, action) = match args.what {
        TenantsCommand::Setting(SettingCommand::List) => {
            let list = settings.client.get(settings.path).await?;
            return settings.out.show(&list, |list| table(items(list, "tenants"), &TENANT_COLUMNS));
        }
        TenantsCommand::Setting(other) => return settings.run(other).await,
        TenantsCommand::Pause { name } => (name, "pause"),
        TenantsCommand::Resume { name } => (name, "resume"),
    };
    let path = format!("{}/{action}", settings.one(&name)?);
    settings.out.show(&settings.client.post(&path, &Value::Null).await?, detail)
}

pub(super) async fn limits(args: LimitsArgs) -> CliResult {
    let settings = SettingsClient::new("/v1/limits", &args.connection)?;
    match args.what {
        LimitsCommand::Show { section: None } => {
            let list = settings.client.get(settings.path).await?;
            let text = |list: &Value| {
                let all: Vec<_> = items(list, "limits").iter().map(detail).collect();
                all.join("\n")
            };
            settings.out.show(&list, text)
        }
        LimitsCommand::Show { section: Some(name) } => {
            settings.run(SettingCommand::Show { name }).await
        }
        LimitsCommand::Set { section: name, values } => {
            settings.run(SettingCommand::Set { name, values }).await
        }
        LimitsCommand::Reset { section: name } => {
            settings.run(SettingCommand::Reset { name }).await
        }
    }
}

/// A client for one kind of setting.
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
                let mut set = self.current_values(&path).await?;
                for assignment in &values {
                    assign(&mut set, assignment)?;
                }
                let body = Value::Object(set);
                self.out.show(&self.client.json(Method::PUT, &path, Some(&body)).await?, detail)
            }
            SettingCommand::Reset { name } => {
                self.client.delete(&self.one(&name)?).await?;
                let done = json!({"reset": name});
                self.out.show(&done, |done| format!("{} is as in the file", cell(done, "/reset")))
            }
        }
    }

    /// The values that are set already: `set` adds to them.
    async fn current_values(&self, path: &str) -> Result<Map<String, Value>, CliError> {
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
    let malformed = || CliError::Usage(format!("{assignment:?} is not of the form FIELD=VALUE"));
    let (path, text) = assignment.split_once('=').ok_or_else(malformed)?;
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    put(set, path, value).ok_or_else(malformed)
}

/// Puts a value at a path; `None` if the path is not valid.
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

/// Fields of the response that are not values of the setting.
const META_FIELDS: [&str; 7] = ["name", "source", "set", "set_by", "set_at", "paused", "capacity"];

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
        .filter(|(name, _)| !META_FIELDS.contains(&name.as_str()))
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
    fn an_assignment_is_json_or_text_and_may_set_a_nested_field() {
        let mut set = Map::new();
        for text in ["ttl_s=600", "priority=low", "retry.retries=3", "retry.kind=fixed"] {
            assign(&mut set, text).unwrap();
        }
        let wanted =
            json!({"ttl_s": 600, "priority": "low", "retry": {"retries": 3, "kind": "fixed"}});
        assert_eq!(Value::Object(set), wanted);
    }

    #[test]
    fn a_text_that_is_not_an_assignment_is_refused() {
        for wrong in ["ttl_s", "=5", "a.=5", "ttl_s.x=5"] {
            let mut set = Map::from_iter([("ttl_s".to_owned(), json!(1))]);
            assert!(assign(&mut set, wrong).is_err(), "{wrong}");
        }
    }
}

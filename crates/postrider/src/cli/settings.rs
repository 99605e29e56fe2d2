//! `classes`, `tenants` and `limits`: show and change settings while the server runs.

use super::prelude::*;

/// Not at the commands themselves: `tenants` has them, too.
pub(super) const CLASSES_EXAMPLES: &str = "Examples:
  postrider classes list
  postrider classes set news ttl_s=600 priority=low retry.retries=3
  postrider classes reset news";

#[derive(Debug, Subcommand)]
pub(super) enum SettingCommand {
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
#[command(after_help = "Examples:
  postrider tenants list
  postrider tenants set acme weight=3 rate_per_s=50
  postrider tenants pause acme")]
pub(super) enum TenantsCommand {
    #[command(flatten)]
    Setting(SettingCommand),
    /// Pause a tenant: send nothing until it is resumed, also after a restart (admin key).
    Pause { name: String },
    /// Resume a paused tenant (admin key).
    Resume { name: String },
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider limits show
  postrider limits set webhook rate_per_s=50 rate_burst=20
  postrider limits set capacity tenant_deliveries_max=100000
  postrider limits reset webhook")]
pub(super) enum LimitsCommand {
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

pub(super) async fn classes(command: SettingCommand, session: ServerSession) -> CliResult {
    let list = |list: &Value| {
        let by_name = list["classes"].as_object().into_iter().flatten();
        table(&by_name.map(|(_, class)| class.clone()).collect::<Vec<_>>(), &CLASS_COLUMNS)
    };
    change(&session, "/v1/classes", command, list).await
}

pub(super) async fn tenants(command: TenantsCommand, session: ServerSession) -> CliResult {
    let path = "/v1/tenants";
    let (name, action) = match command {
        TenantsCommand::Setting(command) => {
            let list = |list: &Value| table(items(list, "tenants"), &TENANT_COLUMNS);
            return change(&session, path, command, list).await;
        }
        TenantsCommand::Pause { name } => (name, "pause"),
        TenantsCommand::Resume { name } => (name, "resume"),
    };
    let path = format!("{path}/{}/{action}", path_segment(&name)?);
    session.post(&path, &Value::Null, detail).await
}

pub(super) async fn limits(command: LimitsCommand, session: ServerSession) -> CliResult {
    let command = match command {
        LimitsCommand::Show { section: None } => SettingCommand::List,
        LimitsCommand::Show { section: Some(name) } => SettingCommand::Show { name },
        LimitsCommand::Set { section: name, values } => SettingCommand::Set { name, values },
        LimitsCommand::Reset { section: name } => SettingCommand::Reset { name },
    };
    let list =
        |list: &Value| items(list, "limits").iter().map(detail).collect::<Vec<_>>().join("\n");
    change(&session, "/v1/limits", command, list).await
}

/// Shows or changes settings of one kind; `list` prints all of them.
async fn change(
    session: &ServerSession,
    path: &str,
    command: SettingCommand,
    list: impl FnOnce(&Value) -> String,
) -> CliResult {
    let one = |name: &str| Ok::<_, CliError>(format!("{path}/{}", path_segment(name)?));
    match command {
        SettingCommand::List => session.get(path, list).await,
        SettingCommand::Show { name } => session.get(&one(&name)?, detail).await,
        SettingCommand::Set { name, values } => {
            let path = one(&name)?;
            let mut set = current_values(session, &path).await?;
            for assignment in &values {
                assign(&mut set, assignment)?;
            }
            session.put(&path, &Value::Object(set), detail).await
        }
        SettingCommand::Reset { name } => {
            session.client.delete(&one(&name)?).await?;
            session.out.show(&json!({"reset": name}), |_| format!("{name} is as in the file"))
        }
    }
}

/// The values that are set already: `set` adds to them.
async fn current_values(
    session: &ServerSession,
    path: &str,
) -> Result<Map<String, Value>, CliError> {
    match session.client.get(path).await {
        Ok(shown) => Ok(shown["set"].as_object().cloned().unwrap_or_default()),
        Err(ClientError::Refused(refused)) if refused.status == 404 => Ok(Map::new()),
        Err(error) => Err(error.into()),
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
const META_FIELDS: [&str; 8] =
    ["name", "source", "set", "set_by", "set_at", "paused", "capacity", "quotas"];

pub(super) fn detail(shown: &Value) -> String {
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
    let text = format!("{text}\n{}", table(&rows, &columns));
    match shown["quotas"].as_array() {
        Some(quotas) => format!("{text}\n\n{}", table(quotas, &QUOTA_COLUMNS)),
        None => text,
    }
}

const QUOTA_COLUMNS: [(&str, &str); 3] =
    [("LIMIT", "/quota"), ("USED", "/used"), ("ALLOWED", "/allowed")];

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

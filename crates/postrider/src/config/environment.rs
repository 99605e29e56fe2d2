//! Applies `POSTRIDER_SECTION__FIELD` variables to a parsed file. With `_FILE` at its end, a variable is the
//! path of a file that has the value.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml::{Table, Value};

use super::{Config, ConfigError, sections};

const PREFIX: &str = "POSTRIDER_";

/// Variables with a name of their own, and the setting that they stand for.
const ALIASES: [(&str, &str); 2] = [
    ("POSTRIDER_ADMIN_KEY", "POSTRIDER_ADMIN__KEY"),
    ("VAPID_PRIVATE_KEY", "POSTRIDER_WEBPUSH__VAPID_PRIVATE_KEY"),
];

/// The variables that configure the server.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    pub fn of_process() -> Self {
        Self::of(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }))
    }

    pub fn empty() -> Self {
        Self::default()
    }

    pub fn of<N: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut found = BTreeMap::new();
        for (name, value) in variables {
            let (name, value) = (name.into(), value.into());
            if let Some(name) = canonical(&name) {
                found.insert(name, value);
            }
        }
        Self(found)
    }

    pub(super) fn apply(&self, table: &mut Table) -> Result<(), ConfigError> {
        let defaults = Value::try_from(Config::default()).unwrap_or(Value::Table(Table::new()));
        for (name, value) in &self.0 {
            let (name, value) = match name.strip_suffix("_FILE") {
                Some(base) if known(&path_of(base)) => (base, read(value)?),
                _ => (name.as_str(), value.clone()),
            };
            let path = path_of(name);
            if !known(&path) {
                return Err(ConfigError::UnknownVariable { variable: name.to_owned() });
            }
            set(table, &path, typed(&value, lookup(&defaults, &path)));
        }
        Ok(())
    }
}

/// The full name of a variable that configures the server; `None` for others, e.g. `POSTRIDER_KEY` of the
/// client commands.
fn canonical(name: &str) -> Option<String> {
    for (alias, target) in ALIASES {
        if let Some(rest) = name.strip_prefix(alias)
            && (rest.is_empty() || rest == "_FILE")
        {
            return Some(format!("{target}{rest}"));
        }
    }
    let is_setting =
        |rest: &&str| rest.contains("__") || matches!(*rest, "CLASSIFY" | "CLASSIFY_FILE");
    name.strip_prefix(PREFIX).filter(is_setting).map(|_| name.to_owned())
}

fn path_of(name: &str) -> Vec<String> {
    name.trim_start_matches(PREFIX).split("__").map(str::to_ascii_lowercase).collect()
}

fn known(path: &[String]) -> bool {
    match path {
        [section, _, _, ..] => {
            ["classes", "tenants", "accounts", "templates"].contains(&section.as_str())
        }
        [section, field] => {
            let named = sections::all().into_iter().find(|known| known.name == section);
            named.is_some_and(|known| known.settings.iter().any(|s| s.name == field))
        }
        // The rows of [[classify]], all of them as one list.
        [section] => section == "classify",
        _ => false,
    }
}

fn read(path: &str) -> Result<String, ConfigError> {
    let path = PathBuf::from(path);
    std::fs::read_to_string(&path)
        .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
        .map_err(|source| ConfigError::Unreadable { path, source })
}

/// The value as TOML, or as plain text if the default is a text or the value is not TOML.
fn typed(value: &str, default: Option<&Value>) -> Value {
    let parsed = || {
        let table: Option<Table> = toml::from_str(&format!("v = {value}")).ok();
        table.and_then(|mut t| t.remove("v"))
    };
    match default {
        Some(Value::String(_)) => None,
        _ => parsed(),
    }
    .unwrap_or_else(|| Value::String(value.to_owned()))
}

fn lookup<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    // A secret has no default, and is always a text.
    const TEXT: Value = Value::String(String::new());
    if let [_, field] = path
        && (field.ends_with("key") || field.ends_with("_file"))
    {
        return Some(const { &TEXT });
    }
    path.iter().try_fold(value, |v, key| v.get(key))
}

fn set(mut table: &mut Table, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    for key in parents {
        let slot = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(inner) = slot else { return };
        table = inner;
    }
    table.insert(last.clone(), value);
}

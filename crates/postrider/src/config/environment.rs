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

/// Sections that are tables by name.
const NAMED_TABLES: [&str; 4] = ["classes", "tenants", "accounts", "templates"];

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
                Some(base) if known(&path_of(base), &defaults) => (base, read(value)?),
                _ => (name.as_str(), value.clone()),
            };
            let path = path_of(name);
            if !known(&path, &defaults) {
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

/// Whether there is such a setting. What is in a table by name is checked when it is read.
fn known(path: &[String], defaults: &Value) -> bool {
    match path {
        [section, field, _, ..] => {
            let is_table = |value: &Value| {
                value.get(section).and_then(|s| s.get(field)).is_some_and(Value::is_table)
            };
            NAMED_TABLES.contains(&section.as_str()) || is_table(defaults)
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
    let default = path.iter().try_fold(value, |v, key| v.get(key));
    default.or_else(|| match path {
        [_, field] if field.ends_with("key") || field.ends_with("_file") => Some(const { &TEXT }),
        _ => None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(path: &[&str]) -> String {
        format!("{PREFIX}{}", path.join("__").to_ascii_uppercase())
    }

    fn applied(variables: &[(String, String)]) -> Table {
        let mut table = Table::new();
        Environment::of(variables.iter().cloned()).apply(&mut table).unwrap();
        table
    }

    #[test]
    fn every_setting_of_every_section_is_set_by_a_variable() {
        let defaults = Value::try_from(Config::default()).unwrap();
        let mut count = 0;
        for section in sections::all() {
            for setting in section.settings {
                let default = defaults.get(section.name).and_then(|s| s.get(setting.name));
                let (text, expected) = match default {
                    Some(Value::Boolean(is)) => ((!is).to_string(), Value::Boolean(!is)),
                    Some(Value::Integer(n)) => ((n + 1).to_string(), Value::Integer(n + 1)),
                    Some(Value::Float(n)) => ("0.25".to_owned(), Value::Float(n * 0.0 + 0.25)),
                    Some(Value::Array(_)) => ("[\"a\"]".to_owned(), Value::Array(vec!["a".into()])),
                    Some(Value::Table(_)) => {
                        let inner = Table::from_iter([("a".to_owned(), Value::from("b"))]);
                        ("{ a = \"b\" }".to_owned(), Value::Table(inner))
                    }
                    _ => ("some text".to_owned(), Value::from("some text")),
                };
                let name = variable(&[section.name, setting.name]);
                let found = applied(&[(name.clone(), text)]);
                assert_eq!(found[section.name][setting.name], expected, "{name}");
                count += 1;
            }
        }
        assert!(count > 150, "{count} settings");
    }

    #[test]
    fn every_default_can_be_written_into_the_environment() {
        let plain = Config::parse("", "test", &Environment::empty()).unwrap();
        let defaults = Value::try_from(plain).unwrap();
        let mut variables = Vec::new();
        for section in sections::all() {
            for (name, value) in defaults[section.name].as_table().unwrap() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                variables.push((variable(&[section.name, name]), text));
            }
        }
        let config = Config::parse("", "test", &Environment::of(variables)).unwrap();
        assert_eq!(Value::try_from(config).unwrap(), defaults);
    }

    #[test]
    fn tables_by_name_have_one_part_more_wherever_they_are() {
        let of = |name: &[&str], value: &str| (variable(name), value.to_owned());
        let config = Config::parse(
            "",
            "test",
            &Environment::of([
                of(&["alerts", "routes", "ops", "kind"], "webhook"),
                of(&["alerts", "routes", "ops", "url"], "https://alerts.example/x"),
                of(&["alerts", "routes", "ops", "severity"], "critical"),
                of(&["traces", "headers", "authorization"], "env:TOKEN"),
                of(&["network", "hosts", "internal"], "10.0.0.7"),
                of(&["tenants", "acme", "weight"], "2"),
                of(&["classes", "otp", "ttl_s"], "61"),
                of(&["accounts", "mail", "channel"], "email"),
                of(&["accounts", "mail", "tenant"], "*"),
                of(&["accounts", "mail", "from"], "a@shop.example"),
                of(&["accounts", "mail", "host"], "mail.shop.example"),
                of(&["templates", "hello", "locales", "en", "title"], "Hello"),
            ]),
        )
        .unwrap();
        let value = Value::try_from(&config).unwrap();
        assert_eq!(value["alerts"]["routes"]["ops"]["severity"].as_str(), Some("critical"));
        assert_eq!(value["traces"]["headers"]["authorization"].as_str(), Some("env:TOKEN"));
        assert_eq!(value["network"]["hosts"]["internal"].as_str(), Some("10.0.0.7"));
        assert_eq!(value["accounts"]["mail"]["channel"].as_str(), Some("email"));
        assert_eq!(config.classes["otp"].ttl_s, 61);
        for wrong in [&["server", "listen", "x"][..], &["alerts", "rutes", "ops", "kind"]] {
            let wrong = Environment::of([of(wrong, "1")]);
            let error = Config::parse("", "test", &wrong).unwrap_err().to_string();
            assert!(error.contains("POSTRIDER_"), "{error}");
        }
    }
}

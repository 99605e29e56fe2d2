//! Settings that were set by API. They are kept in the store and win over file and environment. Does not
//! write to the store.

use std::collections::BTreeMap;

use postrider_channels::registry;
use postrider_core::Timestamp;
use postrider_core::ports::store::{Document, Store, StoreResult};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::change::{is_live, json};
use crate::config::{Config, ConfigError};

/// The kind of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingKind {
    Class,
    Tenant,
    /// A section of the configuration with rates and limits.
    Limits,
}

/// Sections that can be set by API, beside those of the channels. Only settings that need no restart.
const LIMITS: [&str; 6] = ["dispatch", "breaker", "retry_budget", "strikes", "capacity", "limits"];

impl SettingKind {
    const ALL: [Self; 3] = [Self::Class, Self::Tenant, Self::Limits];

    fn prefix(self) -> &'static str {
        match self {
            Self::Class => "class/",
            Self::Tenant => "tenant/",
            Self::Limits => "limits/",
        }
    }

    pub(super) fn parse(setting: &str) -> Option<(Self, &str)> {
        Self::ALL.into_iter().find_map(|kind| Some((kind, setting.strip_prefix(kind.prefix())?)))
    }

    pub(super) fn path(self, name: &str) -> String {
        self.keys(name).join(".")
    }

    /// Its path in a configuration.
    fn keys(self, name: &str) -> Vec<&str> {
        match self {
            Self::Class => vec!["classes", name],
            Self::Tenant => vec!["tenants", name],
            Self::Limits => vec![name],
        }
    }
}

/// The values, with the key and the time of the change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Override {
    pub values: Map<String, Value>,
    pub by: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Overrides(BTreeMap<(SettingKind, String), Override>);

impl Overrides {
    /// Skips and logs stored settings that cannot be read.
    pub(super) async fn load(store: &dyn Store) -> StoreResult<Self> {
        let mut all = BTreeMap::new();
        for kind in SettingKind::ALL {
            for Document { name, json, .. } in store.documents(kind.prefix()).await? {
                let Some((_, setting)) = SettingKind::parse(&name) else { continue };
                if let Some(loaded) = json.and_then(|text| read(&name, &text)) {
                    all.insert((kind, setting.to_owned()), loaded);
                }
            }
        }
        Ok(Self(all))
    }

    /// The names of their documents.
    pub(super) fn documents(&self) -> Vec<String> {
        self.0.keys().map(|(kind, name)| setting(*kind, name)).collect()
    }

    /// A copy with what a document says; the same if it is about something else or cannot be read.
    pub(super) fn with_document(&self, document: &str, text: Option<&str>) -> Self {
        let Some((kind, name)) = SettingKind::parse(document) else { return self.clone() };
        match text.map(|text| read(document, text)) {
            Some(None) => self.clone(),
            Some(Some(new)) => self.with(kind, name, Some(new)),
            None => self.with(kind, name, None),
        }
    }

    pub(super) fn get(&self, kind: SettingKind, name: &str) -> Option<&Override> {
        self.0.get(&(kind, name.to_owned()))
    }

    pub(super) fn names(&self, kind: SettingKind) -> impl Iterator<Item = &str> {
        self.0.keys().filter(move |(of, _)| *of == kind).map(|(_, name)| name.as_str())
    }

    /// A copy with one setting added or removed.
    pub(super) fn with(&self, kind: SettingKind, name: &str, new: Option<Override>) -> Self {
        let mut all = self.0.clone();
        match new {
            Some(new) => all.insert((kind, name.to_owned()), new),
            None => all.remove(&(kind, name.to_owned())),
        };
        Self(all)
    }

    /// The configuration with all settings applied to it.
    pub(super) fn apply_to(&self, base: &Config) -> Result<Config, ConfigError> {
        if self.0.is_empty() {
            return Ok(base.clone());
        }
        let mut values = json(base)?;
        for ((kind, name), setting) in &self.0 {
            check_settable(*kind, name, &setting.values)?;
            merge(slot(&mut values, &kind.keys(name)), &Value::Object(setting.values.clone()));
        }
        base.with_values(values)
    }

    /// The same at start. Skips and logs settings that do not fit the file any more.
    pub(super) fn apply_or_drop(&mut self, base: &Config) -> Config {
        let mut accepted = Self::default();
        let mut config = base.clone();
        for ((kind, name), stored) in std::mem::take(&mut self.0) {
            let more = accepted.with(kind, &name, Some(stored));
            match more.apply_to(base) {
                Ok(merged) => (accepted, config) = (more, merged),
                Err(error) => {
                    let setting = setting(kind, &name);
                    tracing::error!(setting, %error, "a setting that was set by API cannot be used any more");
                }
            }
        }
        *self = accepted;
        config
    }
}

fn read(setting: &str, text: &str) -> Option<Override> {
    let read = serde_json::from_str(text);
    read.inspect_err(|error| {
        tracing::error!(setting, %error, "a setting that was set by API cannot be read");
    })
    .ok()
}

/// The name of its document.
pub(super) fn setting(kind: SettingKind, name: &str) -> String {
    format!("{}{name}", kind.prefix())
}

pub(super) fn sections() -> impl Iterator<Item = String> {
    let channels = registry::all().map(|channel| channel.section().name);
    channels.chain(LIMITS).map(str::to_owned)
}

/// Refuses settings that need a restart: they would not take effect.
fn check_settable(
    kind: SettingKind,
    name: &str,
    values: &Map<String, Value>,
) -> Result<(), ConfigError> {
    if kind != SettingKind::Limits {
        return Ok(());
    }
    match values.keys().map(|field| format!("{name}.{field}")).find(|path| !is_live(path)) {
        Some(path) => Err(ConfigError::invalid(
            &path,
            "a setting that does not exist or needs a restart",
            "settings that `GET /v1/limits` lists; all others belong into postrider.toml",
        )),
        None => Ok(()),
    }
}

fn slot<'a>(values: &'a mut Value, keys: &[&str]) -> &'a mut Value {
    keys.iter().fold(values, |at, key| {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        &mut at[*key]
    })
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// The values of one setting in a configuration that can be set by API.
pub(super) fn values(config: &Config, kind: SettingKind, name: &str) -> Option<Map<String, Value>> {
    let all = json(config).ok()?;
    let found = kind.keys(name).iter().try_fold(&all, |at, key| at.get(key))?;
    let mut values = found.as_object()?.clone();
    if kind == SettingKind::Limits {
        values.retain(|field, _| is_live(&format!("{name}.{field}")));
    }
    Some(values)
}

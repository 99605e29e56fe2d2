//! The configuration in force, and how it changes while the server runs: by reading it anew and by
//! settings made by API, all of a change or none of it, checked before anything is touched. Decides
//! nothing about deliveries.

mod change;
mod operator;
mod overrides;
mod templates;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_channels::CurrentAnswerTable;
use postrider_core::ports::store::{Store, StoreError, StoreResult};
use postrider_dispatch::Lanes;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::config::{Config, ConfigError};
use crate::serve::parts;
use crate::telemetry;
pub use operator::OperatorActions;
use overrides::Overrides;
pub use overrides::{Override, SettingKind};
pub use templates::{TemplateEntry, TemplateError, TemplateStore};

/// Reads file, environment and flags anew.
pub type ConfigReader = Box<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// A configuration that never reads differently.
pub fn fixed(config: Config) -> ConfigReader {
    Box::new(move || Ok(config.clone()))
}

/// What reading anew has changed, as paths of settings.
#[derive(Debug, Default)]
pub struct ReloadReport {
    pub changed: Vec<String>,
    /// Different from what runs, but fixed until the next start.
    pub needs_restart: Vec<String>,
}

/// One thing that can be set by API, as it holds now.
#[derive(Debug, Clone)]
pub struct SettingView {
    pub name: String,
    /// `default`, `file` (or environment) or `api`.
    pub source: &'static str,
    pub values: Map<String, Value>,
    pub made: Option<Override>,
}

impl SettingView {
    /// A tenant that nothing is said about.
    pub fn of_nobody(name: &str) -> Self {
        let default = serde_json::to_value(crate::config::sections::Tenant::default());
        let values = default.ok().and_then(|value| value.as_object().cloned()).unwrap_or_default();
        Self { name: name.to_owned(), source: "default", values, made: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LiveConfigError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The parts of which the configuration is made.
pub struct ConfigSources {
    read: ConfigReader,
    /// What file, environment and flags said last.
    base: Config,
    overrides: Overrides,
}

impl ConfigSources {
    /// The configuration to start with, and where it came from.
    pub async fn open(
        base: Config,
        read: ConfigReader,
        store: &dyn Store,
    ) -> StoreResult<(Config, Self)> {
        let mut overrides = Overrides::load(store).await?;
        let config = overrides.apply_or_drop(&base);
        Ok((config, Self { read, base, overrides }))
    }
}

/// The configuration in force. It can change while the server runs.
pub struct LiveConfig {
    store: Arc<dyn Store>,
    lanes: Arc<Lanes>,
    answers: Arc<CurrentAnswerTable>,
    templates: Arc<TemplateStore>,
    in_force: RwLock<Arc<Config>>,
    /// Locked during a change: one change at a time.
    sources: Mutex<ConfigSources>,
}

impl LiveConfig {
    pub fn new(
        sources: ConfigSources,
        config: Config,
        store: Arc<dyn Store>,
        lanes: Arc<Lanes>,
        answers: Arc<CurrentAnswerTable>,
        templates: Arc<TemplateStore>,
    ) -> Self {
        let in_force = RwLock::new(Arc::new(config));
        Self { store, lanes, answers, templates, in_force, sources: Mutex::new(sources) }
    }

    pub fn now(&self) -> Arc<Config> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads everything anew and lets it hold, as far as it can without a restart.
    pub async fn reload(&self) -> Result<ReloadReport, ConfigError> {
        let mut sources = self.sources.lock().await;
        let base = (sources.read)()?;
        let report = self.enforce(sources.overrides.apply_to(&base)?)?;
        sources.base = base;
        Ok(report)
    }

    /// Lets values hold over what the file says; `None` goes back to that. Durable on return. False if
    /// there was nothing to go back from.
    pub async fn set(
        &self,
        kind: SettingKind,
        name: &str,
        made: Option<Override>,
    ) -> Result<bool, LiveConfigError> {
        let mut sources = self.sources.lock().await;
        let was_set = sources.overrides.get(kind, name).is_some();
        let is_set = made.is_some();
        let text = made.as_ref().and_then(|made| serde_json::to_string(made).ok());
        let overrides = sources.overrides.with(kind, name, made);
        let config = overrides.apply_to(&sources.base)?;
        change::applicable(&self.now(), config.clone())?;
        self.store.put_setting(&overrides::setting(kind, name), text.as_deref()).await?;
        self.enforce(config)?;
        sources.overrides = overrides;
        Ok(was_set || is_set)
    }

    /// As it holds now; nothing if there is no such thing.
    pub async fn show(&self, kind: SettingKind, name: &str) -> Option<SettingView> {
        let sources = self.sources.lock().await;
        self.shown(&sources, kind, name)
    }

    /// All that are configured or set, by name.
    pub async fn list(&self, kind: SettingKind) -> Vec<SettingView> {
        let sources = self.sources.lock().await;
        let config = self.now();
        let mut names: BTreeSet<String> =
            sources.overrides.names(kind).map(str::to_owned).collect();
        match kind {
            SettingKind::Class => names.extend(config.classes.keys().cloned()),
            SettingKind::Tenant => names.extend(config.tenants.keys().cloned()),
            SettingKind::Limits => names.extend(overrides::sections()),
        }
        names.iter().filter_map(|name| self.shown(&sources, kind, name)).collect()
    }

    fn shown(&self, sources: &ConfigSources, kind: SettingKind, name: &str) -> Option<SettingView> {
        if kind == SettingKind::Limits && !overrides::is_section(name) {
            return None;
        }
        let values = overrides::values(&self.now(), kind, name)?;
        let made = sources.overrides.get(kind, name).cloned();
        let source = match &made {
            Some(_) => "api",
            None if sources.base.names(&kind.path(name)) => "file",
            None => "default",
        };
        Some(SettingView { name: name.to_owned(), source, values, made })
    }

    fn enforce(&self, wanted: Config) -> Result<ReloadReport, ConfigError> {
        let (config, report) = change::applicable(&self.now(), wanted)?;
        self.lanes.adopt(parts::policy(&config));
        self.answers.replace(parts::answers(&config));
        if report.changed.iter().any(|path| path.starts_with("templates")) {
            self.templates.adopt(&config);
        }
        telemetry::log::set_level(&config.log.level);
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        if !report.needs_restart.is_empty() {
            let settings = report.needs_restart.join(", ");
            tracing::warn!(settings, "these settings hold from the next start on");
        }
        Ok(report)
    }
}

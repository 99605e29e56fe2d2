//! The configuration in force. It changes while the server runs: by a reload, and by settings that are set by
//! API. A change is checked first, and applied as a whole or not at all. Decides nothing about deliveries.

mod audience;
mod change;
mod notes;
mod operator;
mod overrides;
mod templates;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_channels::CurrentAnswerTable;
use postrider_channels::accounts::AccountListing;
use postrider_core::ports::store::{DocumentChanges, Store, StoreError, StoreResult};
use postrider_dispatch::Lanes;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use utoipa::ToSchema;

use crate::config::{Config, ConfigError};
use crate::documents::{OwnWrites, overwrite};
use crate::serve::parts;
use crate::telemetry;
pub use audience::AudienceSettings;
pub use notes::{NoteAudience, NoteBoard, NoteError, NoteRecord};
pub use operator::{OperatorActions, OrderedProvider, PauseError};
use overrides::Overrides;
pub use overrides::{Override, SettingKind};
pub use templates::{TemplateEntry, TemplateError, TemplateLimits, TemplateStore};

/// Reads file, environment and flags.
pub type ConfigReader = Box<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// A reader that always returns the same configuration.
pub fn fixed(config: Config) -> ConfigReader {
    Box::new(move || Ok(config.clone()))
}

/// The result of a reload, as paths of settings.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Reloaded)]
pub struct ReloadReport {
    /// Settings that are in force from now on.
    pub changed: Vec<String>,
    /// Settings that differ from the running ones. They need a restart.
    pub needs_restart: Vec<String>,
}

/// A class, a tenant or a section of limits, with the values in force.
#[derive(Debug, Clone)]
pub struct SettingView {
    pub name: String,
    /// `default`, `file` (or environment) or `api`.
    pub source: &'static str,
    pub values: Map<String, Value>,
    /// What was set by API.
    pub set: Option<Override>,
}

impl SettingView {
    /// A tenant without any setting.
    pub fn unset_tenant(name: &str) -> Self {
        let default = serde_json::to_value(crate::config::sections::TenantSection::default());
        let values = default.ok().and_then(|value| value.as_object().cloned()).unwrap_or_default();
        Self { name: name.to_owned(), source: "default", values, set: None }
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
    own: OwnWrites,
}

impl ConfigSources {
    /// The configuration to start with, and its sources.
    pub async fn open(
        base: Config,
        read: ConfigReader,
        store: &dyn Store,
    ) -> StoreResult<(Config, Self)> {
        let mut overrides = Overrides::load(store).await?;
        let config = overrides.apply_or_drop(&base);
        Ok((config, Self { read, base, overrides, own: OwnWrites::default() }))
    }
}

/// The configuration in force. It can change while the server runs.
pub struct LiveConfig {
    store: Arc<dyn Store>,
    lanes: Arc<Lanes>,
    answers: Arc<CurrentAnswerTable>,
    templates: Arc<TemplateStore>,
    /// The accounts of the channels that have any.
    accounts: Vec<Arc<dyn AccountListing>>,
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
        let (in_force, sources) = (RwLock::new(Arc::new(config)), Mutex::new(sources));
        Self { store, lanes, answers, templates, accounts: Vec::new(), in_force, sources }
    }

    /// The breakers of these accounts follow the configuration, too.
    pub fn with_accounts(self, accounts: Vec<Arc<dyn AccountListing>>) -> Self {
        Self { accounts, ..self }
    }

    pub fn now(&self) -> Arc<Config> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads everything again and applies all changes that need no restart.
    pub async fn reload(&self) -> Result<ReloadReport, ConfigError> {
        let mut sources = self.sources.lock().await;
        let base = (sources.read)()?;
        let report = self.apply(sources.overrides.apply_to(&base)?)?;
        sources.base = base;
        Ok(report)
    }

    /// Sets values that win over the file; `None` goes back to the file. Durable on return. False if there
    /// was nothing to remove.
    pub async fn set(
        &self,
        kind: SettingKind,
        name: &str,
        new: Option<Override>,
    ) -> Result<bool, LiveConfigError> {
        let mut sources = self.sources.lock().await;
        let was_set = sources.overrides.get(kind, name).is_some();
        let is_set = new.is_some();
        let text = new.as_ref().and_then(|new| serde_json::to_string(new).ok());
        let overrides = sources.overrides.with(kind, name, new);
        let config = overrides.apply_to(&sources.base)?;
        change::applicable(&self.now(), config.clone())?;
        let document = overrides::setting(kind, name);
        let version = overwrite(&*self.store, &document, text.as_deref()).await?;
        sources.own.note(&document, version);
        self.apply(config)?;
        sources.overrides = overrides;
        Ok(was_set || is_set)
    }

    /// Applies what other nodes set. Skips and logs what does not fit the file of this node.
    pub async fn follow(&self, changes: &DocumentChanges) {
        let mut sources = self.sources.lock().await;
        let old = sources.overrides.clone();
        let is_setting = |name: &str| SettingKind::parse(name).is_some();
        let news = sources.own.news(changes, is_setting, || old.documents());
        let mut new =
            news.into_iter().fold(old.clone(), |all, (name, text)| all.with_document(&name, text));
        if new == old {
            return;
        }
        let config = new.apply_or_drop(&sources.base);
        match self.apply(config) {
            Ok(_) => sources.overrides = new,
            Err(error) => tracing::error!(%error, "settings of another node cannot be used"),
        }
    }

    /// The values in force; `None` if there is no such setting.
    pub async fn show(&self, kind: SettingKind, name: &str) -> Option<SettingView> {
        let sources = self.sources.lock().await;
        self.view(&sources, kind, name)
    }

    /// All that are configured or set by API, by name.
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
        names.iter().filter_map(|name| self.view(&sources, kind, name)).collect()
    }

    fn view(&self, sources: &ConfigSources, kind: SettingKind, name: &str) -> Option<SettingView> {
        if kind == SettingKind::Limits && !overrides::sections().any(|section| section == name) {
            return None;
        }
        let values = overrides::values(&self.now(), kind, name)?;
        let set = sources.overrides.get(kind, name).cloned();
        let source = match &set {
            Some(_) => "api",
            None if sources.base.names(&kind.path(name)) => "file",
            None => "default",
        };
        Some(SettingView { name: name.to_owned(), source, values, set })
    }

    fn apply(&self, wanted: Config) -> Result<ReloadReport, ConfigError> {
        let (config, report) = change::applicable(&self.now(), wanted)?;
        self.lanes.adopt(parts::policy(&config));
        self.accounts.iter().for_each(|book| book.adopt_breaker(config.breaker.policy()));
        self.answers.replace(parts::answers(&config));
        if report.changed.iter().any(|path| path.starts_with("templates")) {
            self.templates.adopt(&config);
        }
        telemetry::log::set_level(&config.log.level);
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        if !report.needs_restart.is_empty() {
            let settings = report.needs_restart.join(", ");
            tracing::warn!(settings, "these settings need a restart to take effect");
        }
        Ok(report)
    }
}

//! The configuration in force, and how it changes while the server runs: by reading it anew and by
//! settings made by API, all of a change or none of it, checked before anything is touched. Decides
//! nothing about deliveries.

mod change;
mod orders;
mod overrides;
mod templates;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_channels::Tables;
use postrider_core::ports::store::{Store, StoreError, StoreResult};
use postrider_dispatch::Lanes;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::config::{Config, ConfigError};
use crate::serve::parts;
use crate::telemetry;
pub use orders::Orders;
use overrides::Overrides;
pub use overrides::{Kind, Override};
pub use templates::{Entry, TemplateBook, TemplateError};

/// Reads file, environment and flags anew.
pub type Reader = Box<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// A configuration that never reads differently.
pub fn fixed(config: Config) -> Reader {
    Box::new(move || Ok(config.clone()))
}

/// What reading anew has changed, as paths of settings.
#[derive(Debug, Default)]
pub struct Reloaded {
    pub changed: Vec<String>,
    /// Different from what runs, but fixed until the next start.
    pub needs_restart: Vec<String>,
}

/// One thing that can be set by API, as it holds now.
#[derive(Debug, Clone)]
pub struct Shown {
    pub name: String,
    /// `default`, `file` (or environment) or `api`.
    pub source: &'static str,
    pub values: Map<String, Value>,
    pub made: Option<Override>,
}

impl Shown {
    /// A tenant that nothing is said about.
    pub fn of_nobody(name: &str) -> Self {
        let default = serde_json::to_value(crate::config::sections::Tenant::default());
        let values = default.ok().and_then(|value| value.as_object().cloned()).unwrap_or_default();
        Self { name: name.to_owned(), source: "default", values, made: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the configuration is made of, before a server runs by it.
pub struct Sources {
    read: Reader,
    base: Config,
    overrides: Overrides,
}

impl Sources {
    /// The configuration to start with, and where it came from.
    pub async fn open(
        base: Config,
        read: Reader,
        store: &dyn Store,
    ) -> StoreResult<(Config, Self)> {
        let mut overrides = Overrides::load(store).await?;
        let config = overrides.over_or_without(&base);
        Ok((config, Self { read, base, overrides }))
    }
}

pub struct Live {
    read: Reader,
    store: Arc<dyn Store>,
    lanes: Arc<Lanes>,
    tables: Arc<Tables>,
    templates: Arc<TemplateBook>,
    in_force: RwLock<Arc<Config>>,
    /// One change at a time.
    known: Mutex<Known>,
}

struct Known {
    /// What file and environment said last.
    base: Config,
    overrides: Overrides,
}

impl Live {
    pub fn new(
        sources: Sources,
        config: Config,
        store: Arc<dyn Store>,
        lanes: Arc<Lanes>,
        tables: Arc<Tables>,
        templates: Arc<TemplateBook>,
    ) -> Self {
        let Sources { read, base, overrides } = sources;
        let known = Mutex::new(Known { base, overrides });
        let in_force = RwLock::new(Arc::new(config));
        Self { read, store, lanes, tables, templates, in_force, known }
    }

    pub fn now(&self) -> Arc<Config> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads everything anew and lets it hold, as far as it can without a restart.
    pub async fn reload(&self) -> Result<Reloaded, ConfigError> {
        let mut known = self.known.lock().await;
        let base = (self.read)()?;
        let told = self.enforce(known.overrides.over(&base)?)?;
        known.base = base;
        Ok(told)
    }

    /// Lets values hold over what the file says; `None` goes back to that. Durable on return. False if
    /// there was nothing to go back from.
    pub async fn set(
        &self,
        kind: Kind,
        name: &str,
        made: Option<Override>,
    ) -> Result<bool, LiveError> {
        let mut known = self.known.lock().await;
        let was_set = known.overrides.get(kind, name).is_some();
        let is_set = made.is_some();
        let text = made.as_ref().and_then(|made| serde_json::to_string(made).ok());
        let overrides = known.overrides.with(kind, name, made);
        let config = overrides.over(&known.base)?;
        change::possible(&self.now(), config.clone())?;
        self.store.put_setting(&overrides::setting(kind, name), text.as_deref()).await?;
        self.enforce(config)?;
        known.overrides = overrides;
        Ok(was_set || is_set)
    }

    /// As it holds now; nothing if there is no such thing.
    pub async fn show(&self, kind: Kind, name: &str) -> Option<Shown> {
        let known = self.known.lock().await;
        self.shown(&known, kind, name)
    }

    /// All that are configured or set, by name.
    pub async fn list(&self, kind: Kind) -> Vec<Shown> {
        let known = self.known.lock().await;
        let config = self.now();
        let mut names: BTreeSet<String> = known.overrides.names(kind).map(str::to_owned).collect();
        match kind {
            Kind::Class => names.extend(config.classes.keys().cloned()),
            Kind::Tenant => names.extend(config.tenants.keys().cloned()),
            Kind::Limits => names.extend(overrides::sections()),
        }
        names.iter().filter_map(|name| self.shown(&known, kind, name)).collect()
    }

    fn shown(&self, known: &Known, kind: Kind, name: &str) -> Option<Shown> {
        if kind == Kind::Limits && !overrides::is_section(name) {
            return None;
        }
        let values = overrides::values(&self.now(), kind, name)?;
        let made = known.overrides.get(kind, name).cloned();
        let source = match &made {
            Some(_) => "api",
            None if known.base.names(&kind.path(name)) => "file",
            None => "default",
        };
        Some(Shown { name: name.to_owned(), source, values, made })
    }

    fn enforce(&self, wanted: Config) -> Result<Reloaded, ConfigError> {
        let (config, told) = change::possible(&self.now(), wanted)?;
        self.lanes.adopt(parts::policy(&config));
        self.tables.replace(parts::table(&config));
        if told.changed.iter().any(|path| path.starts_with("templates")) {
            self.templates.adopt(&config);
        }
        telemetry::log::set_level(&config.log.level);
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        if !told.needs_restart.is_empty() {
            let settings = told.needs_restart.join(", ");
            tracing::warn!(settings, "these settings hold from the next start on");
        }
        Ok(told)
    }
}

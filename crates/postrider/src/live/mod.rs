//! The configuration in force, and how it changes while the server runs: all of a change or none of it,
//! checked before anything is touched. Decides nothing about deliveries.

mod change;

use std::sync::{Arc, PoisonError, RwLock};

use postrider_channels::Tables;
use postrider_dispatch::Lanes;
use tokio::sync::Mutex;

use crate::config::{Config, ConfigError};
use crate::serve::parts;
use crate::telemetry;

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

pub struct Live {
    read: Reader,
    lanes: Arc<Lanes>,
    tables: Arc<Tables>,
    in_force: RwLock<Arc<Config>>,
    /// One change at a time.
    changing: Mutex<()>,
}

impl Live {
    pub fn new(read: Reader, config: Config, lanes: Arc<Lanes>, tables: Arc<Tables>) -> Self {
        let in_force = RwLock::new(Arc::new(config));
        Self { read, lanes, tables, in_force, changing: Mutex::default() }
    }

    pub fn now(&self) -> Arc<Config> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads everything anew and lets it hold, as far as it can without a restart.
    pub async fn reload(&self) -> Result<Reloaded, ConfigError> {
        let _alone = self.changing.lock().await;
        self.enforce((self.read)()?)
    }

    fn enforce(&self, wanted: Config) -> Result<Reloaded, ConfigError> {
        let (config, told) = change::possible(&self.now(), wanted)?;
        self.lanes.adopt(parts::policy(&config));
        self.tables.replace(parts::table(&config));
        telemetry::log::set_level(&config.log.level);
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        if !told.needs_restart.is_empty() {
            let settings = told.needs_restart.join(", ");
            tracing::warn!(settings, "these settings hold from the next start on");
        }
        Ok(told)
    }
}

//! Logs on standard error, for people or for machines.

use std::io::IsTerminal as _;
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;

use crate::config::sections::LogSection;

/// Sets up the logs of the process. A second call changes nothing.
pub fn init(config: &LogSection) {
    let filter = EnvFilter::try_new(&config.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let reloaded = match config.format.as_str() {
        "json" => {
            let json = base.json().flatten_event(true).with_current_span(false);
            let json = json.with_filter_reloading();
            let handle = json.reload_handle();
            json.try_init().map(|()| setter(move |filter| drop(handle.reload(filter))))
        }
        _ => {
            let compact = base.with_ansi(std::io::stderr().is_terminal()).compact();
            let compact = compact.with_filter_reloading();
            let handle = compact.reload_handle();
            compact.try_init().map(|()| setter(move |filter| drop(handle.reload(filter))))
        }
    };
    if let Ok(set) = reloaded {
        let _ = SET.set(set);
    }
}

type LevelSetter = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// Changes the level of the logs that were set up.
static SET: OnceLock<LevelSetter> = OnceLock::new();

fn setter(set: impl Fn(EnvFilter) + Send + Sync + 'static) -> LevelSetter {
    Box::new(set)
}

/// Changes the level while the process runs. Does nothing before [`init`].
pub fn set_level(level: &str) {
    if let (Some(set), Ok(filter)) = (SET.get(), EnvFilter::try_new(level)) {
        set(filter);
    }
}

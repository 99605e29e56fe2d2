//! Logs on standard error, for people or for machines.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::sections::Log;

/// Sets the process's logs up. A second call changes nothing.
pub fn init(config: &Log) {
    let filter = EnvFilter::try_new(&config.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match config.format.as_str() {
        "json" => base.json().flatten_event(true).with_current_span(false).try_init(),
        _ => base.with_ansi(std::io::stderr().is_terminal()).compact().try_init(),
    };
}

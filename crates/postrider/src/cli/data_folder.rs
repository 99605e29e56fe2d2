//! The arguments by which commands find a data folder, and the bar that shows how far a long copy is.

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};

use super::prelude::*;
use crate::config::{Config, Environment};

#[derive(Debug, Clone, Args)]
pub(super) struct DataFolderArgs {
    /// The data folder [default: ./postrider-data].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The configuration file that names the data folder [default: postrider.toml if there is one].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl DataFolderArgs {
    pub(super) fn folder(self) -> Result<PathBuf, CliError> {
        if let Some(data) = self.data {
            return Ok(data);
        }
        let config = Config::load(self.config.as_deref(), &Environment::of_process());
        Ok(config.map_err(|e| CliError::Usage(e.to_string()))?.store.data)
    }
}

/// A bar of bytes on standard error. Shows nothing if that is no terminal.
pub(super) fn byte_bar(what: &'static str) -> ProgressBar {
    bar(what, "{msg} {wide_bar} {bytes} of {total_bytes}, {eta} left")
}

/// A bar of records.
pub(super) fn record_bar(what: &'static str) -> ProgressBar {
    bar(what, "{msg} {wide_bar} {human_pos} of about {human_len}, {eta} left")
}

fn bar(what: &'static str, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(0).with_message(what);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

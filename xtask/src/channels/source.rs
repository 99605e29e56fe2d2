//! What the page is made of: the sheets of rows, and the lists of mistakes, TTL fields and proofs beside them.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use super::sheets::{self, Sheet};

/// In the order of the page; a sheet belongs to the channel that its name begins with.
const CHANNELS: [&str; 9] =
    ["rules", "webpush", "fcm", "apns", "email", "sms", "webhook", "http", "chat"];

pub(super) struct Source {
    pub(super) sheets: Vec<Sheet>,
    pub(super) lists: Lists,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lists {
    /// How each channel says how long a message lives.
    #[serde(default)]
    pub(super) ttl: Vec<TtlField>,
    /// What other senders got wrong.
    #[serde(default)]
    pub(super) mistake: Vec<Entry>,
    /// Our side held against other people's programs.
    #[serde(default)]
    pub(super) proof: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TtlField {
    pub(super) channel: String,
    pub(super) field: String,
    pub(super) value: String,
    pub(super) tests: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) what: String,
    pub(super) tests: Vec<String>,
}

impl Source {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let folder = root.join("crates/postrider-core/tests/rows");
        let mut sheets = sheets::read(&folder).map_err(|error| anyhow!(error))?;
        let place = |sheet: &Sheet| {
            let channel = sheet.name.split('.').next().unwrap_or_default();
            CHANNELS.iter().position(|known| *known == channel).unwrap_or(CHANNELS.len())
        };
        sheets.sort_by_key(place);
        let file = root.join("xtask/channels.toml");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let lists = toml::from_str(&text).with_context(|| file.display().to_string())?;
        Ok(Self { sheets, lists })
    }

    pub(super) fn row_count(&self) -> usize {
        self.sheets.iter().map(|sheet| sheet.rows.len()).sum()
    }
}

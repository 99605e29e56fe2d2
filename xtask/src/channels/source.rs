//! Reads the content of the page: the sheets of answers, and the lists of rules, mistakes, TTL fields and proofs.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use super::sheets::{self, AnswerSheet};

/// The order of the page. A sheet belongs to the channel that its name begins with.
const CHANNELS: [&str; 9] =
    ["rules", "webpush", "fcm", "apns", "email", "sms", "webhook", "http", "chat"];

pub(super) struct PageSource {
    pub(super) sheets: Vec<AnswerSheet>,
    pub(super) lists: PageLists,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageLists {
    /// The field in which each channel tells the provider how long a message lives.
    #[serde(default)]
    pub(super) ttl: Vec<TtlField>,
    /// Frequent mistakes of senders.
    #[serde(default)]
    pub(super) mistake: Vec<PageEntry>,
    /// Tests against programs that others wrote.
    #[serde(default)]
    pub(super) proof: Vec<PageEntry>,
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
pub(super) struct PageEntry {
    pub(super) name: String,
    pub(super) what: String,
    pub(super) tests: Vec<String>,
}

impl PageSource {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let channels = root.join("crates/postrider-channels/src");
        let mut sheets = sheets::read_all(&channels).map_err(|error| anyhow!(error))?;
        let rules = sheets::read(&root.join("xtask/rules.toml")).map_err(|error| anyhow!(error))?;
        sheets.push(rules);
        for sheet in &mut sheets {
            sheet.file = sheet.file.strip_prefix(root).unwrap_or(&sheet.file).to_owned();
        }
        let place = |sheet: &AnswerSheet| {
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

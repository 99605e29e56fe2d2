//! Reads the content of the page: the sheets of answers, and the lists of rules, mistakes, TTL fields and proofs.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use super::sheets::{self, AnswerSheet};

pub(super) struct PageSource {
    /// The general rules, then the channels by name.
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
        let rules = sheets::read(&root.join("xtask/rules.toml")).map_err(|error| anyhow!(error))?;
        let mut sheets = vec![rules];
        sheets.extend(sheets::read_all(&channels).map_err(|error| anyhow!(error))?);
        for sheet in &mut sheets {
            sheet.file = sheet.file.strip_prefix(root).unwrap_or(&sheet.file).to_owned();
        }
        let file = root.join("xtask/channels.toml");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let lists = toml::from_str(&text).with_context(|| file.display().to_string())?;
        Ok(Self { sheets, lists })
    }

    pub(super) fn row_count(&self) -> usize {
        self.sheets.iter().map(|sheet| sheet.rows.len()).sum()
    }
}

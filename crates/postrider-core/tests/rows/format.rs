//! How the rows of the providers' tables are written down (`*.toml` in this folder). The table test runs
//! them, and `cargo xtask channels` prints them; decides nothing about answers itself.

use std::path::Path;

use serde::Deserialize;

/// One table: the rows of one provider, or of one stage of a conversation with it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sheet {
    /// The file's name without `.toml`: the table's name in tests and links.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) title: String,
    /// Every row must hold for each of these services.
    pub(crate) services: Vec<String>,
    /// Where the provider puts its code.
    pub(crate) code: Option<String>,
    pub(crate) about: Option<String>,
    #[serde(rename = "row")]
    pub(crate) rows: Vec<Row>,
}

/// One line of a table. With `status`, every pair of a status and a code is asked of the real table; what
/// one answer cannot show is described by `answer` and shown by `tests`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// Only where status and code do not make a name of their own.
    pub(crate) id: Option<String>,
    #[serde(default)]
    pub(crate) status: Several<u16>,
    /// An empty one is an answer without a code.
    #[serde(default)]
    pub(crate) code: Several<String>,
    pub(crate) retry_after: Option<String>,
    pub(crate) token_age_s: Option<u64>,
    #[serde(default)]
    pub(crate) retry_all: bool,
    pub(crate) answer: Option<String>,
    pub(crate) outcome: String,
    pub(crate) means: String,
    /// What is done, where the outcome alone does not say it.
    pub(crate) does: Option<String>,
    /// Why this is not what the provider's own documents ask for.
    pub(crate) differs: Option<String>,
    /// Tests beside the table's own, by `package::target::path`.
    #[serde(default)]
    pub(crate) tests: Vec<String>,
}

/// One, or a list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Several<T> {
    Many(Vec<T>),
    One(T),
}

impl<T> Default for Several<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<T> Several<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::Many(all) => all,
            Self::One(one) => std::slice::from_ref(one),
        }
    }
}

impl Row {
    /// Whether the real table can be asked.
    pub(crate) fn is_asked(&self) -> bool {
        !self.status.as_slice().is_empty()
    }

    /// What the row is called within its sheet.
    pub(crate) fn name(&self) -> String {
        if let Some(id) = &self.id {
            return id.clone();
        }
        let mut parts: Vec<String> =
            self.status.as_slice().iter().take(1).map(u16::to_string).collect();
        parts.extend(self.code.as_slice().iter().take(1).map(|code| slug(code)));
        parts.extend(self.retry_after.iter().map(|_| "told".to_owned()));
        parts.extend(self.retry_all.then(|| "retry_all".to_owned()));
        parts.retain(|part| !part.is_empty());
        parts.join("_")
    }
}

fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    let text: String = text.chars().take(40).map(plain).collect();
    text.trim_matches('_').to_owned()
}

/// Every sheet of the folder, by name.
pub(crate) fn read(folder: &Path) -> Result<Vec<Sheet>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{folder:?}: {error}"))?;
    let mut sheets = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".toml") else { continue };
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let sheet: Sheet = toml::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
        sheets.push(Sheet { name: name.to_owned(), ..sheet });
    }
    sheets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sheets)
}

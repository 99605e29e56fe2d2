//! Categories: what messages are about, and what holds for somebody who said nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a person answers, or what holds without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    Yes,
    No,
}

/// What messages of a category are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Part of something that the person does or has: sent unless they said no.
    #[default]
    Transactional,
    /// Sent only to those who said yes.
    Marketing,
}

/// What messages are about.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Category {
    /// Its name for people, by language; `en` where a language is missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub titles: BTreeMap<Box<str>, Box<str>>,
    #[serde(default)]
    pub purpose: Purpose,
    /// What holds for somebody who said nothing. By its purpose if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Choice>,
    /// Preferences do not count, as for security codes and receipts of payment.
    #[serde(default)]
    pub mandatory: bool,
}

impl Purpose {
    pub fn default_choice(self) -> Choice {
        match self {
            Self::Transactional => Choice::Yes,
            Self::Marketing => Choice::No,
        }
    }
}

impl Category {
    /// What holds for somebody who said nothing: what the category says, else its tenant, else its purpose.
    pub fn default_choice(&self, tenant: Option<Choice>) -> Choice {
        self.default.or(tenant).unwrap_or_else(|| self.purpose.default_choice())
    }
}

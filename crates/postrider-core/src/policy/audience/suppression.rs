//! Suppressions of an address: three kinds, each with its own reach.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::resolution::WithheldReason;
use crate::model::time::Timestamp;

/// When something is suppressed since, and who said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuppressionMark {
    pub at: Timestamp,
    /// Such as `api`, `link` or `import`.
    pub source: Box<str>,
}

/// What is not sent to an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suppression {
    /// Nothing arrives there: covers everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undeliverable: Option<SuppressionMark>,
    /// Its owner complained, or answered STOP: covers everything on that channel, which is the address' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complaint: Option<SuppressionMark>,
    /// Its owner wants nothing that is not mandatory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsubscribed: Option<SuppressionMark>,
    /// Its owner wants nothing of these categories.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<Box<str>, SuppressionMark>,
}

impl Suppression {
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }

    /// Why this address gets nothing of a category, if that is so.
    pub fn covers(&self, category: Option<&str>, is_mandatory: bool) -> Option<WithheldReason> {
        if self.undeliverable.is_some() {
            return Some(WithheldReason::Undeliverable);
        }
        if self.complaint.is_some() {
            return Some(WithheldReason::Complaint);
        }
        let of_category = category.is_some_and(|name| self.categories.contains_key(name));
        let unsubscribed = !is_mandatory && (self.unsubscribed.is_some() || of_category);
        unsubscribed.then_some(WithheldReason::Unsubscribed)
    }
}

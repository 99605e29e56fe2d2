//! A person's own words: what they want and what they do not, as they said it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::category::Choice;
use crate::model::channel::ChannelKind;
use crate::model::time::Timestamp;

/// What a person said. A choice for everything deletes none for something.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preferences {
    /// For everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<Choice>,
    /// For everything on a channel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<ChannelKind, Choice>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<Box<str>, CategoryPreference>,
    /// Nothing before then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snooze_until: Option<Timestamp>,
}

/// What a person said about a category.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CategoryPreference {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// For this category on a channel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<ChannelKind, Choice>,
    /// Nothing of this category before then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snooze_until: Option<Timestamp>,
}

impl Preferences {
    /// Any covering no wins, else any covering yes; `None` if nothing covers it.
    pub fn choice(&self, category: Option<&str>, channel: ChannelKind) -> Option<Choice> {
        let own = category.and_then(|name| self.categories.get(name));
        let said = [
            self.all,
            self.channels.get(&channel).copied(),
            own.and_then(|own| own.choice),
            own.and_then(|own| own.channels.get(&channel).copied()),
        ];
        match said.contains(&Some(Choice::No)) {
            true => Some(Choice::No),
            false => said.into_iter().flatten().next(),
        }
    }

    /// Whether the person wants to be left alone at this time.
    pub fn is_snoozed(&self, category: Option<&str>, now: Timestamp) -> bool {
        let own = category.and_then(|name| self.categories.get(name)?.snooze_until);
        [self.snooze_until, own].into_iter().flatten().any(|until| now < until)
    }

    /// How many choices it holds.
    pub fn size(&self) -> usize {
        let own = self.categories.values().map(|own| 1 + own.channels.len());
        self.channels.len() + own.sum::<usize>()
    }
}

//! A topic as it is stored.

use std::borrow::Cow;

use postrider_core::ChannelKind;
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::target::ChannelTarget;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NtfyTarget<'a> {
    /// A secret on a server that is open to all: who knows the topic can read it.
    #[serde(borrow)]
    pub topic: Cow<'a, str>,
}

impl<'a> ChannelTarget<'a> for NtfyTarget<'a> {
    const KIND: ChannelKind = KIND;

    fn into_locator(self) -> Cow<'a, str> {
        self.topic
    }
}

//! A chat service's incoming webhook as it is stored.

use std::borrow::Cow;

use postrider_core::ChannelKind;
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::target::ChannelTarget;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChatTarget<'a> {
    #[serde(borrow)]
    pub url: Cow<'a, str>,
}

impl<'a> ChannelTarget<'a> for ChatTarget<'a> {
    const KIND: ChannelKind = KIND;
    const IS_URL: bool = true;

    fn into_locator(self) -> Cow<'a, str> {
        self.url
    }
}

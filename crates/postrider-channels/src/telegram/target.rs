//! A chat as it is stored.

use std::borrow::Cow;

use postrider_core::ChannelKind;
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::target::ChannelTarget;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TelegramTarget<'a> {
    /// A number, or `@name` in lower case.
    #[serde(borrow)]
    pub chat_id: Cow<'a, str>,
    /// The supergroup that the group became, once a call has told it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<Cow<'a, str>>,
}

impl<'a> ChannelTarget<'a> for TelegramTarget<'a> {
    const KIND: ChannelKind = KIND;

    fn into_locator(self) -> Cow<'a, str> {
        self.chat_id
    }
}

//! A chat as it is stored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::target::impl_target;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TelegramTarget<'a> {
    /// A number, or `@name` in lower case.
    #[serde(borrow)]
    pub chat_id: Cow<'a, str>,
    /// The supergroup that the group became, once a call has told it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<Cow<'a, str>>,
}

impl_target!(TelegramTarget, locator = chat_id, is_url = false);

//! An e-mail address as it is stored.

use std::borrow::Cow;

use postrider_core::ChannelKind;
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::target::ChannelTarget;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EmailTarget<'a> {
    #[serde(borrow)]
    pub email: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
}

impl<'a> ChannelTarget<'a> for EmailTarget<'a> {
    const KIND: ChannelKind = KIND;

    fn into_locator(self) -> Cow<'a, str> {
        self.email
    }
}

//! A phone number as it is stored.

use std::borrow::Cow;

use postrider_core::ChannelKind;
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::target::ChannelTarget;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SmsTarget<'a> {
    /// E.164: a plus sign and up to 15 digits.
    #[serde(borrow)]
    pub phone: Cow<'a, str>,
}

impl<'a> ChannelTarget<'a> for SmsTarget<'a> {
    const KIND: ChannelKind = KIND;

    fn into_locator(self) -> Cow<'a, str> {
        self.phone
    }
}

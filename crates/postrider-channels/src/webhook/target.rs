//! A webhook endpoint as it is stored.

use std::borrow::Cow;

use postrider_core::ChannelKind;
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::target::ChannelTarget;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WebhookTarget<'a> {
    #[serde(borrow)]
    pub url: Cow<'a, str>,
    /// `whsec_…` secrets of this endpoint, newest first; the tenant's own if empty.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Cow<'a, str>>,
}

impl<'a> ChannelTarget<'a> for WebhookTarget<'a> {
    const KIND: ChannelKind = KIND;
    const IS_URL: bool = true;

    fn into_locator(self) -> Cow<'a, str> {
        self.url
    }
}

//! A webhook endpoint as it is stored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::target::impl_target;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WebhookTarget<'a> {
    #[serde(borrow)]
    pub url: Cow<'a, str>,
    /// `whsec_…` secrets of this endpoint, newest first; the tenant's own if empty.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Cow<'a, str>>,
}

impl_target!(WebhookTarget, locator = url, is_url = true);

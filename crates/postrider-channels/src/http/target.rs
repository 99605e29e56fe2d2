//! An HTTP request's address as it is stored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::target::impl_target;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HttpTarget<'a> {
    #[serde(borrow)]
    pub method: Cow<'a, str>,
    #[serde(borrow)]
    pub url: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    /// A reference that the credential resolver turns into a header at send, never the secret.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Cow<'a, str>>,
}

impl_target!(HttpTarget, locator = url, is_url = true);

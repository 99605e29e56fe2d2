//! A topic as it is stored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::target::impl_target;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NtfyTarget<'a> {
    /// A secret on a server that is open to all: who knows the topic can read it.
    #[serde(borrow)]
    pub topic: Cow<'a, str>,
}

impl_target!(NtfyTarget, locator = topic, is_url = false);

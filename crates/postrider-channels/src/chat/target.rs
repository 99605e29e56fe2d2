//! A chat service's incoming webhook as it is stored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::target::impl_target;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChatTarget<'a> {
    #[serde(borrow)]
    pub url: Cow<'a, str>,
}

impl_target!(ChatTarget, locator = url, is_url = true);

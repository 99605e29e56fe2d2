//! An e-mail address as it is stored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::target::impl_target;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EmailTarget<'a> {
    #[serde(borrow)]
    pub email: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
}

impl_target!(EmailTarget, locator = email, is_url = false);

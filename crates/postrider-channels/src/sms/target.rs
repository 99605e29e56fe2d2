//! A phone number as it is stored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::target::impl_target;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SmsTarget<'a> {
    /// E.164: a plus sign and up to 15 digits.
    #[serde(borrow)]
    pub phone: Cow<'a, str>,
}

impl_target!(SmsTarget, locator = phone, is_url = false);

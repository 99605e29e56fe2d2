//! An Apple device as it is stored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::target::impl_target;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApnsTarget<'a> {
    /// Hexadecimal, in lower case.
    #[serde(borrow)]
    pub token: Cow<'a, str>,
    /// The app's bundle id.
    #[serde(borrow)]
    pub topic: Cow<'a, str>,
    /// Where it registered; if absent, both environments are tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<ApnsEnvironment>,
    /// Where it was last accepted. A device that is unknown there is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worked: Option<ApnsEnvironment>,
}

impl_target!(ApnsTarget, locator = token, is_url = false);

/// Devices with development builds have an environment of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApnsEnvironment {
    Production,
    Sandbox,
}

impl ApnsEnvironment {
    pub fn name(self) -> &'static str {
        match self {
            Self::Production => "production",
            Self::Sandbox => "sandbox",
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::Production => Self::Sandbox,
            Self::Sandbox => Self::Production,
        }
    }
}

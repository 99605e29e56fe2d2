//! An Apple device as it is stored.

use std::borrow::Cow;

use postrider_core::ChannelKind;
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::target::ChannelTarget;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApnsTarget<'a> {
    /// Hexadecimal, in lower case.
    #[serde(borrow)]
    pub token: Cow<'a, str>,
    /// The app's bundle id.
    #[serde(borrow)]
    pub topic: Cow<'a, str>,
    /// Where it registered; found by asking where nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<ApnsEnvironment>,
    /// Where it was last accepted, if that is known: a device that is unknown there is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worked: Option<ApnsEnvironment>,
}

impl<'a> ChannelTarget<'a> for ApnsTarget<'a> {
    const KIND: ChannelKind = KIND;

    fn into_locator(self) -> Cow<'a, str> {
        self.token
    }
}

/// Apple keeps devices that run development builds apart.
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

//! A device as FCM knows it, as it is stored.

use std::borrow::Cow;

use postrider_core::ChannelKind;
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::target::ChannelTarget;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FcmTarget<'a> {
    #[serde(borrow)]
    pub device: FcmDevice<'a>,
    /// The Firebase project that it registered with; that of the tenant's first account if absent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Cow<'a, str>>,
}

/// What Firebase calls one installation of an app: the old kind of name or the new one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FcmDevice<'a> {
    /// A registration token.
    #[serde(borrow)]
    Token(Cow<'a, str>),
    /// A Firebase installation id.
    #[serde(borrow)]
    Fid(Cow<'a, str>),
}

impl FcmDevice<'_> {
    pub fn name(&self) -> &str {
        match self {
            Self::Token(name) | Self::Fid(name) => name,
        }
    }
}

impl<'a> ChannelTarget<'a> for FcmTarget<'a> {
    const KIND: ChannelKind = KIND;

    fn into_locator(self) -> Cow<'a, str> {
        match self.device {
            FcmDevice::Token(name) | FcmDevice::Fid(name) => name,
        }
    }
}

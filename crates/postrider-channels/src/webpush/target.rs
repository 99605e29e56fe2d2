//! A push subscription as it is stored.

use std::borrow::Cow;

use postrider_core::{KeyId, Target};
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::target::{ChannelTarget as _, impl_target};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WebpushTarget<'a> {
    #[serde(borrow)]
    pub endpoint: Cow<'a, str>,
    /// 65 bytes, uncompressed point, base64url without padding.
    #[serde(borrow)]
    pub p256dh: Cow<'a, str>,
    /// 16 bytes, base64url without padding.
    #[serde(borrow)]
    pub auth: Cow<'a, str>,
    /// The VAPID key that the subscription was made with; the tenant's active key if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vapid_key: Option<KeyId>,
}

impl WebpushTarget<'_> {
    /// The same subscription with its key, where it is a subscription that names none. A push service
    /// binds a subscription to the key that it was made with.
    pub fn with_vapid_key(target: &Target, key: impl FnOnce() -> Option<KeyId>) -> Option<Target> {
        if target.channel() != KIND {
            return None;
        }
        let mut fields: WebpushTarget<'_> = target.read().ok()?;
        if fields.vapid_key.is_some() {
            return None;
        }
        fields.vapid_key = Some(key()?);
        Some(fields.to_target())
    }
}

impl_target!(WebpushTarget, locator = endpoint, is_url = true);

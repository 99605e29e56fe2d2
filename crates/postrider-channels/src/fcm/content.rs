//! `content.fcm`: what a message says on this channel alone.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::definition::impl_content;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FcmContent<'a> {
    /// A `Message` of FCM HTTP v1 without its target; `android.ttl` and `collapseKey` are added where it
    /// has none.
    #[serde(borrow, default)]
    pub message: Option<&'a RawValue>,
}

impl_content!(FcmContent);

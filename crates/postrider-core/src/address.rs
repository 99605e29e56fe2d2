//! Where a message goes: a channel and what that channel needs to reach one place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{AddressId, KeyId};
use crate::message::TenantId;
use crate::time::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    Webpush,
    Webhook,
    Http,
}

impl ChannelKind {
    pub const ALL: [Self; 3] = [Self::Webpush, Self::Webhook, Self::Http];

    pub fn name(self) -> &'static str {
        match self {
            Self::Webpush => "webpush",
            Self::Webhook => "webhook",
            Self::Http => "http",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }
}

impl fmt::Display for ChannelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A validated place to deliver to. Built by the gate only; what a store gives back was validated
/// when it went in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "channel", rename_all = "lowercase")]
pub enum Target {
    Webpush {
        endpoint: Box<str>,
        /// 65 bytes, uncompressed point, base64url without padding.
        p256dh: Box<str>,
        /// 16 bytes, base64url without padding.
        auth: Box<str>,
        /// The VAPID key that the subscription was made with; the tenant's active key if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vapid_key: Option<KeyId>,
    },
    Webhook {
        url: Box<str>,
        /// `whsec_…` secrets of this endpoint, newest first; the tenant's own if empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<Box<str>>,
    },
    Http {
        method: Box<str>,
        url: Box<str>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<Box<str>, Box<str>>,
        /// A reference that the credential resolver turns into a header at send, never the secret.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        credential: Option<Box<str>>,
    },
}

impl Target {
    pub fn channel(&self) -> ChannelKind {
        match self {
            Self::Webpush { .. } => ChannelKind::Webpush,
            Self::Webhook { .. } => ChannelKind::Webhook,
            Self::Http { .. } => ChannelKind::Http,
        }
    }

    pub fn url(&self) -> &str {
        match self {
            Self::Webpush { endpoint, .. } => endpoint,
            Self::Webhook { url, .. } | Self::Http { url, .. } => url,
        }
    }
}

/// A keyed hash of an endpoint: what may be remembered of it after it is gone, and all that a log
/// may show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressHash(pub [u8; 16]);

impl fmt::Display for AddressHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for AddressHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressStatus {
    Active,
    Suspect,
    Gone,
    Expired,
}

/// A registered address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub id: AddressId,
    pub tenant: TenantId,
    pub recipient: Option<Arc<str>>,
    pub channel: ChannelKind,
    pub hash: AddressHash,
    /// Erased when the address is gone.
    pub target: Option<Target>,
    pub status: AddressStatus,
    pub created_at: Timestamp,
    pub gone_at: Option<Timestamp>,
}

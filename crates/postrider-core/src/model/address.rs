//! Where a message goes: a channel and what that channel needs to reach one place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::id::{AddressId, KeyId};
use crate::model::message::TenantId;
use crate::model::time::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    Webpush,
    Webhook,
    Http,
    Fcm,
    Apns,
    Email,
    Sms,
    Chat,
}

impl ChannelKind {
    pub const ALL: [Self; 8] = [
        Self::Webpush,
        Self::Webhook,
        Self::Http,
        Self::Fcm,
        Self::Apns,
        Self::Email,
        Self::Sms,
        Self::Chat,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Webpush => "webpush",
            Self::Webhook => "webhook",
            Self::Http => "http",
            Self::Fcm => "fcm",
            Self::Apns => "apns",
            Self::Email => "email",
            Self::Sms => "sms",
            Self::Chat => "chat",
        }
    }

    /// Whether it is sent through an account at a provider, chosen anew for every attempt. Then the
    /// channel is its lanes' provider.
    pub fn has_accounts(self) -> bool {
        matches!(self, Self::Fcm | Self::Apns | Self::Email | Self::Sms)
    }

    /// Whether a person sees a repeat: these providers know neither an idempotency key nor anything
    /// else by which they could drop one.
    pub fn shows_repeats(self) -> bool {
        matches!(self, Self::Email | Self::Sms)
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

/// A validated place to deliver to. Built by the intake only; what a store gives back was validated
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
    Fcm {
        device: FcmDevice,
        /// The Firebase project that it registered with; that of the tenant's first account if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        project: Option<Box<str>>,
    },
    Apns {
        /// Hexadecimal, in lower case.
        token: Box<str>,
        /// The app's bundle id.
        topic: Box<str>,
        /// Where it registered; found out by asking where nobody said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment: Option<ApnsEnvironment>,
        /// Where it was last accepted, as far as that is remembered: a device that is unknown there is
        /// gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worked: Option<ApnsEnvironment>,
    },
    Email {
        email: Box<str>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Box<str>>,
    },
    Sms {
        /// E.164: a plus sign and up to 15 digits.
        phone: Box<str>,
    },
    Chat {
        url: Box<str>,
    },
}

/// What Firebase calls one installation of an app: the old kind of name or the new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FcmDevice {
    /// A registration token.
    Token(Box<str>),
    /// A Firebase installation id.
    Fid(Box<str>),
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

impl Target {
    pub fn channel(&self) -> ChannelKind {
        match self {
            Self::Webpush { .. } => ChannelKind::Webpush,
            Self::Webhook { .. } => ChannelKind::Webhook,
            Self::Http { .. } => ChannelKind::Http,
            Self::Fcm { .. } => ChannelKind::Fcm,
            Self::Apns { .. } => ChannelKind::Apns,
            Self::Email { .. } => ChannelKind::Email,
            Self::Sms { .. } => ChannelKind::Sms,
            Self::Chat { .. } => ChannelKind::Chat,
        }
    }

    /// The text that names this one place: a URL, a device's token, an e-mail address, a phone
    /// number. What an [`AddressHash`] is made from, and never shown.
    pub fn place(&self) -> &str {
        match self {
            Self::Webpush { endpoint, .. } => endpoint,
            Self::Webhook { url, .. } | Self::Http { url, .. } | Self::Chat { url } => url,
            Self::Fcm { device: FcmDevice::Token(name) | FcmDevice::Fid(name), .. } => name,
            Self::Apns { token, .. } => token,
            Self::Email { email, .. } => email,
            Self::Sms { phone } => phone,
        }
    }
}

/// A keyed hash of an address' place: what may be remembered of it after it is gone, and all that a log
/// may show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_target_survives_being_stored() {
        let text = |t: &str| -> Box<str> { t.into() };
        let targets = [
            Target::Fcm { device: FcmDevice::Token(text("t")), project: None },
            Target::Fcm { device: FcmDevice::Fid(text("f")), project: Some(text("p")) },
            Target::Apns { token: text("00"), topic: text("a.b"), environment: None, worked: None },
            Target::Apns {
                token: text("00"),
                topic: text("a.b"),
                environment: Some(ApnsEnvironment::Sandbox),
                worked: Some(ApnsEnvironment::Sandbox),
            },
            Target::Email { email: text("a@b.example"), name: Some(text("A")) },
            Target::Sms { phone: text("+15550100") },
            Target::Chat { url: text("https://chat.example/x") },
        ];
        for target in targets {
            let stored = serde_json::to_string(&target).unwrap();
            assert!(stored.contains(target.channel().name()), "{stored}");
            assert_eq!(serde_json::from_str::<Target>(&stored).unwrap(), target);
        }
    }

    #[test]
    fn every_channel_is_known_by_its_name() {
        for kind in ChannelKind::ALL {
            assert_eq!(ChannelKind::parse(kind.name()), Some(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }
}

//! What can be sent to: subscriptions of the fake push service, webhook receivers, plain HTTP
//! receivers, mailboxes, phones, chats. A registry by path; keeps no record of what arrived beyond the last request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};

use super::correlation::{hash, mix};
use super::fault::Fault;
use super::flavour::Flavour;
use super::profile::Profile;
use super::smtp::Stage;

/// So many different key pairs are made; subscriptions beyond them share, each with its own `auth`.
const KEY_PAIRS_MAX: u32 = 1024;

/// Only so many targets remember their last request, so that a million of them stay affordable.
const REMEMBERING_MAX: u32 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Push,
    Hook,
    Http,
    Email,
    Sms,
    Chat,
    Fcm,
    Apns,
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::Push,
        Self::Hook,
        Self::Http,
        Self::Email,
        Self::Sms,
        Self::Chat,
        Self::Fcm,
        Self::Apns,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Hook => "hook",
            Self::Http => "http",
            Self::Email => "email",
            Self::Sms => "sms",
            Self::Chat => "chat",
            Self::Fcm => "fcm",
            Self::Apns => "apns",
        }
    }
}

/// One receiver. Set up once; setting it up again replaces it under the same index.
pub struct Target {
    pub index: u32,
    pub kind: Kind,
    pub name: Box<str>,
    /// Stable over runs with the same seed.
    pub hash: u64,
    pub setup: Setup,
    pub detail: Detail,
    last: Mutex<Option<Last>>,
}

/// How a receiver answers, where it differs from the sandbox's profile.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Answers to the attempts of each correlation id, in order; the last repeats.
    pub script: Vec<Fault>,
    pub profile: Option<Arc<Profile>>,
    /// Where in a conversation a mailbox fails.
    pub stage: Option<Stage>,
}

pub enum Detail {
    Push(Box<Subscription>),
    Hook {
        secret: Option<Box<hmac::Key>>,
    },
    Http,
    Mailbox,
    Phone,
    Chat,
    /// Of FCM or of APNs.
    Device,
}

/// A browser's side of a push subscription.
pub struct Subscription {
    pub flavour: Flavour,
    pub keys: Arc<KeyPair>,
    pub auth: [u8; 16],
    /// The VAPID key that may send here: given at creation, else the first one that does.
    pub sender: OnceLock<[u8; 65]>,
}

pub struct KeyPair {
    pub private: PrivateKey,
    pub public: [u8; 65],
}

/// The last request that a target took, for tests that look at the bytes.
pub struct Last {
    pub method: Method,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What a client needs for sending to a subscription, in the browser's own form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionInfo {
    pub endpoint: String,
    pub keys: SubscriptionKeys,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionKeys {
    pub p256dh: String,
    pub auth: String,
}

impl Target {
    pub fn scripted(&self, attempt: u32) -> Option<Fault> {
        let script = &self.setup.script;
        script.get((attempt.max(1) as usize - 1).min(script.len().saturating_sub(1))).copied()
    }

    pub fn remember(&self, last: Last) {
        if self.index >= REMEMBERING_MAX {
            return;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    pub fn last_as_json(&self) -> serde_json::Value {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = last.as_ref() else { return serde_json::Value::Null };
        let headers: serde_json::Map<_, _> = last
            .headers
            .iter()
            .map(|(k, v)| (k.to_string(), String::from_utf8_lossy(v.as_bytes()).into()))
            .collect();
        serde_json::json!({
            "kind": self.kind,
            "target": self.name,
            "method": last.method.as_str(),
            "headers": headers,
            "body": String::from_utf8_lossy(&last.body),
            "body_base64": BASE64_STANDARD.encode(&last.body),
        })
    }

    /// Where to send, given the origin that clients know; `None` for what is not a subscription.
    pub fn subscription_info(&self, origin: &str) -> Option<SubscriptionInfo> {
        let Detail::Push(subscription) = &self.detail else { return None };
        Some(SubscriptionInfo {
            endpoint: format!("{origin}/push/{}", self.name),
            keys: SubscriptionKeys {
                p256dh: BASE64_URL_SAFE_NO_PAD.encode(subscription.keys.public),
                auth: BASE64_URL_SAFE_NO_PAD.encode(subscription.auth),
            },
        })
    }
}

/// All targets, by `push/<id>`, `hook/<name>`, `email/<address>` and so on.
pub struct Targets {
    seed: u64,
    inner: RwLock<Inner>,
    key_pairs: Mutex<Vec<Arc<KeyPair>>>,
}

#[derive(Default)]
struct Inner {
    by_path: HashMap<Box<str>, u32>,
    list: Vec<Arc<Target>>,
    subscriptions: u32,
}

impl Targets {
    pub fn new(seed: u64) -> Self {
        Self { seed, inner: RwLock::default(), key_pairs: Mutex::default() }
    }

    pub fn get(&self, path: &str) -> Option<Arc<Target>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.by_path.get(path).and_then(|i| inner.list.get(*i as usize)).cloned()
    }

    pub fn by_index(&self, index: u32) -> Option<Arc<Target>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.list.get(index as usize).cloned()
    }

    /// Makes the receiver of this name, or sets it up anew.
    pub fn put(&self, kind: Kind, name: &str, setup: Setup, detail: Detail) -> Arc<Target> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        self.put_locked(&mut inner, kind, name, setup, detail)
    }

    /// The receiver of this name, made without any set-up if there is none.
    pub fn get_or_put(&self, kind: Kind, name: &str, detail: Detail) -> Arc<Target> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let path = format!("{}/{name}", kind.name());
        let known = inner.by_path.get(path.as_str()).map(|i| Arc::clone(&inner.list[*i as usize]));
        known.unwrap_or_else(|| self.put_locked(&mut inner, kind, name, Setup::default(), detail))
    }

    fn put_locked(
        &self,
        inner: &mut Inner,
        kind: Kind,
        name: &str,
        setup: Setup,
        detail: Detail,
    ) -> Arc<Target> {
        let path = format!("{}/{name}", kind.name()).into_boxed_str();
        let known = inner.by_path.get(&path).copied();
        let index = known.unwrap_or(inner.list.len() as u32);
        let hash = hash(self.seed, path.as_bytes());
        let last = Mutex::default();
        let target = Arc::new(Target { index, kind, name: name.into(), hash, setup, detail, last });
        match inner.list.get_mut(index as usize) {
            Some(slot) => *slot = Arc::clone(&target),
            None => {
                inner.list.push(Arc::clone(&target));
                inner.by_path.insert(path, index);
            }
        }
        target
    }

    /// A new subscription. The n-th of a seed always has the same id and keys.
    pub fn subscribe(
        &self,
        flavour: Flavour,
        setup: Setup,
        sender: Option<[u8; 65]>,
    ) -> anyhow::Result<Arc<Target>> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let number = inner.subscriptions;
        let keys = self.key_pair(number % KEY_PAIRS_MAX)?;
        inner.subscriptions += 1;
        let tag = hash(self.seed, &number.to_be_bytes());
        let mut auth = [0u8; 16];
        auth[..8].copy_from_slice(&mix(tag).to_be_bytes());
        auth[8..].copy_from_slice(&mix(tag ^ 1).to_be_bytes());
        let subscription = Subscription {
            flavour,
            keys,
            auth,
            sender: sender.map(OnceLock::from).unwrap_or_default(),
        };
        let detail = Detail::Push(Box::new(subscription));
        Ok(self.put_locked(
            &mut inner,
            Kind::Push,
            &format!("{number:x}-{tag:016x}"),
            setup,
            detail,
        ))
    }

    fn key_pair(&self, number: u32) -> anyhow::Result<Arc<KeyPair>> {
        let mut pairs = self.key_pairs.lock().unwrap_or_else(PoisonError::into_inner);
        while pairs.len() <= number as usize {
            let pair = KeyPair::from_seed(self.seed, pairs.len() as u64)?;
            pairs.push(Arc::new(pair));
        }
        Ok(Arc::clone(&pairs[number as usize]))
    }
}

impl KeyPair {
    pub fn from_private(bytes: &[u8]) -> anyhow::Result<Self> {
        let private = PrivateKey::from_private_key(&ECDH_P256, bytes)?;
        let public = private.compute_public_key()?.as_ref().try_into()?;
        Ok(Self { private, public })
    }

    /// Keys of a sandbox guard nothing, so they may be derived from its seed.
    fn from_seed(seed: u64, number: u64) -> anyhow::Result<Self> {
        let mut bytes = [0u8; 32];
        for (i, chunk) in bytes.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&mix(mix(seed ^ mix(number)) ^ i as u64).to_be_bytes());
        }
        // Below the order of P-256 whatever the hash says.
        bytes[0] &= 0x7f;
        Self::from_private(&bytes)
    }
}

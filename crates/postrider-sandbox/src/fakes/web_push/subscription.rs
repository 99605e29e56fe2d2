//! Subscriptions of the fake push service, with the browser's keys.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Context as _;
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD_INDIFFERENT as B64;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::services::FakePushService;
use crate::control;
use crate::correlation::{hash, mix};
use crate::fault::Fault;
use crate::receiver::ReceiverDetail;
use crate::service::SandboxState;

const SUBSCRIPTIONS_MAX: usize = 1_000_000;
/// More subscriptions than this share key pairs. Each has its own `auth`.
const KEY_PAIRS_MAX: u32 = 1024;

/// Which subscriptions to make, from a JSON body or the query.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SubscriptionRequest {
    pub count: Option<usize>,
    #[serde(default)]
    pub service: FakePushService,
    /// A fault profile of these subscriptions only.
    pub faults: Option<String>,
    #[serde(default)]
    pub script: Vec<Fault>,
    /// The only VAPID key that may send to them, in base64url.
    pub application_server_key: Option<String>,
}

/// What a client needs for sending to a subscription, in the browser's own form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSubscription {
    pub endpoint: String,
    pub keys: SandboxSubscriptionKeys,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSubscriptionKeys {
    pub p256dh: String,
    pub auth: String,
}

/// A browser's side of a push subscription.
pub(crate) struct BrowserSubscription {
    pub service: FakePushService,
    pub keys: Arc<BrowserKeyPair>,
    pub auth: [u8; 16],
    /// The VAPID key that may send here: the one given at creation, or the first one that sends.
    pub sender: OnceLock<[u8; 65]>,
}

pub(crate) struct BrowserKeyPair {
    pub private: PrivateKey,
    pub public: [u8; 65],
}

/// Makes subscriptions. The n-th of a seed always has the same id and keys.
pub(super) struct SubscriptionMaker {
    seed: u64,
    /// How many subscriptions were made, and the key pairs so far.
    made: Mutex<(u32, Vec<Arc<BrowserKeyPair>>)>,
}

impl SubscriptionMaker {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, made: Mutex::default() }
    }

    pub(super) fn subscribe(
        &self,
        state: &SandboxState,
        request: &SubscriptionRequest,
    ) -> anyhow::Result<Vec<SandboxSubscription>> {
        let count = request.count.unwrap_or(1);
        anyhow::ensure!(count <= SUBSCRIPTIONS_MAX, "at most {SUBSCRIPTIONS_MAX} at a time");
        let behaviour = control::behaviour(request.faults.as_deref(), &request.script)?;
        let sender = request.application_server_key.as_deref().map(parse_public_key).transpose()?;
        let origin = state.https_origin();
        (0..count)
            .map(|_| {
                let (name, subscription) = self.make(request.service, sender)?;
                let given = subscription.shown(origin, &name);
                let detail = ReceiverDetail::Push(Box::new(subscription));
                state.receivers.put(super::ENTRY.kind, &name, behaviour.clone(), detail);
                Ok(given)
            })
            .collect()
    }

    pub(super) fn make(
        &self,
        service: FakePushService,
        sender: Option<[u8; 65]>,
    ) -> anyhow::Result<(String, BrowserSubscription)> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, key_pairs) = &mut *made;
        let number = *count;
        if number < KEY_PAIRS_MAX {
            key_pairs.push(Arc::new(BrowserKeyPair::from_seed(self.seed, number.into())?));
        }
        let keys = Arc::clone(&key_pairs[(number % KEY_PAIRS_MAX) as usize]);
        *count += 1;
        let tag = hash(self.seed, &number.to_be_bytes());
        let mut auth = [0u8; 16];
        auth[..8].copy_from_slice(&mix(tag).to_be_bytes());
        auth[8..].copy_from_slice(&mix(tag ^ 1).to_be_bytes());
        let sender = sender.map(OnceLock::from).unwrap_or_default();
        let name = format!("{number:x}-{tag:016x}");
        Ok((name, BrowserSubscription { service, keys, auth, sender }))
    }
}

impl BrowserSubscription {
    /// In the form in which a browser shows it.
    pub(super) fn shown(&self, origin: &str, name: &str) -> SandboxSubscription {
        SandboxSubscription {
            endpoint: format!("{origin}/push/{name}"),
            keys: SandboxSubscriptionKeys {
                p256dh: BASE64_URL_SAFE_NO_PAD.encode(self.keys.public),
                auth: BASE64_URL_SAFE_NO_PAD.encode(self.auth),
            },
        }
    }
}

impl BrowserKeyPair {
    pub(crate) fn from_private(bytes: &[u8]) -> anyhow::Result<Self> {
        let private = PrivateKey::from_private_key(&ECDH_P256, bytes)?;
        let public = private.compute_public_key()?.as_ref().try_into()?;
        Ok(Self { private, public })
    }

    /// Keys of a sandbox protect nothing, so they may come from its seed.
    fn from_seed(seed: u64, number: u64) -> anyhow::Result<Self> {
        let mut bytes = [0u8; 32];
        for (i, chunk) in bytes.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&mix(mix(seed ^ mix(number)) ^ i as u64).to_be_bytes());
        }
        // So it is always below the order of P-256.
        bytes[0] &= 0x7f;
        Self::from_private(&bytes)
    }
}

impl SubscriptionRequest {
    pub(super) fn from_query(query: &str) -> anyhow::Result<Self> {
        let fields = url::form_urlencoded::parse(query.as_bytes()).map(|(name, value)| {
            let value = match &*name {
                "count" => json!(value.parse::<usize>().context("count")?),
                "script" => json!(value.split(',').collect::<Vec<_>>()),
                _ => json!(value),
            };
            Ok((name.into_owned(), value))
        });
        Ok(serde_json::from_value(Value::Object(fields.collect::<anyhow::Result<_>>()?))?)
    }
}

fn parse_public_key(text: &str) -> anyhow::Result<[u8; 65]> {
    let bytes = B64.decode(text).context("applicationServerKey is not base64url")?;
    bytes.try_into().ok().context("applicationServerKey is not 65 bytes long")
}

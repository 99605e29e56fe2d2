//! The receivers: subscriptions, webhook receivers, mailboxes, phones, devices, chats. A registry by kind and name.
//! Each keeps only its last request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::correlation::hash;
use crate::fakes::FakeKind;
use crate::fakes::email::smtp::FakeSmtpStage;
use crate::fakes::web_push::subscription::BrowserSubscription;
use crate::fault::Fault;
use crate::profile::FaultProfile;

/// Only so many receivers remember their last request: there can be a million of them.
const REMEMBERING_MAX: u32 = 1024;

/// One receiver. A new set-up replaces it under the same index.
pub(crate) struct Receiver {
    pub index: u32,
    pub kind: FakeKind,
    pub name: Box<str>,
    /// Stable over runs with the same seed.
    pub hash: u64,
    pub behaviour: ReceiverBehaviour,
    pub detail: ReceiverDetail,
    last: Mutex<Option<Arc<LastRequest>>>,
}

/// How a receiver answers, if not by the sandbox's profile.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceiverBehaviour {
    /// Answers to the attempts of each correlation id, in order; the last repeats.
    pub script: Vec<Fault>,
    pub profile: Option<Arc<FaultProfile>>,
    /// Where in a conversation a mailbox fails.
    pub stage: Option<FakeSmtpStage>,
}

pub(crate) enum ReceiverDetail {
    Plain,
    Push(Box<BrowserSubscription>),
    /// The secret of a webhook receiver.
    Signed(Box<hmac::Key>),
}

/// A request to a receiver, for tests that look at the bytes and for the inbox.
#[derive(Debug)]
pub(crate) struct LastRequest {
    pub method: Method,
    /// Path and query; of a mail that came by SMTP, `smtp:`.
    pub uri: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl LastRequest {
    /// About the bytes that it takes.
    pub(crate) fn len(&self) -> usize {
        let headers =
            self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64);
        self.uri.len() + headers.sum::<usize>() + self.body.len()
    }
}

impl Receiver {
    pub(crate) fn scripted(&self, attempt: u32) -> Option<Fault> {
        let script = &self.behaviour.script;
        script.get((attempt.max(1) as usize - 1).min(script.len().saturating_sub(1))).copied()
    }

    pub(crate) fn remember(&self, last: &Arc<LastRequest>) {
        if self.index >= REMEMBERING_MAX {
            return;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(last));
    }

    pub(crate) fn last_as_json(&self) -> serde_json::Value {
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
}

/// `<kind>/<name>`
pub(crate) fn path(kind: FakeKind, name: &str) -> String {
    format!("{}/{name}", kind.name())
}

/// All receivers, by `push/<id>`, `hook/<name>`, `email/<address>` and so on.
pub(crate) struct ReceiverRegistry {
    seed: u64,
    inner: RwLock<ReceiverTable>,
}

#[derive(Default)]
struct ReceiverTable {
    by_path: HashMap<Box<str>, u32>,
    list: Vec<Arc<Receiver>>,
}

impl ReceiverRegistry {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, inner: RwLock::default() }
    }

    pub(crate) fn get(&self, path: &str) -> Option<Arc<Receiver>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.by_path.get(path).and_then(|i| inner.list.get(*i as usize)).cloned()
    }

    pub(crate) fn by_index(&self, index: u32) -> Option<Arc<Receiver>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.list.get(index as usize).cloned()
    }

    /// Makes the receiver of this name, or replaces it.
    pub(crate) fn put(
        &self,
        kind: FakeKind,
        name: &str,
        behaviour: ReceiverBehaviour,
        detail: ReceiverDetail,
    ) -> Arc<Receiver> {
        let path = path(kind, name).into_boxed_str();
        let hash = hash(self.seed, path.as_bytes());
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let index = inner.by_path.get(&path).copied().unwrap_or(inner.list.len() as u32);
        let (name, last) = (name.into(), Mutex::default());
        let receiver = Arc::new(Receiver { index, kind, name, hash, behaviour, detail, last });
        match inner.list.get_mut(index as usize) {
            Some(slot) => *slot = Arc::clone(&receiver),
            None => {
                inner.list.push(Arc::clone(&receiver));
                inner.by_path.insert(path, index);
            }
        }
        receiver
    }

    /// The receiver of this name, made without any set-up if there is none.
    pub(crate) fn get_or_put(&self, kind: FakeKind, name: &str) -> Arc<Receiver> {
        self.get(&path(kind, name)).unwrap_or_else(|| {
            self.put(kind, name, ReceiverBehaviour::default(), ReceiverDetail::Plain)
        })
    }
}

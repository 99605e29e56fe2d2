//! Receivers for the demo and for tests: one per channel, from the list of fakes.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use serde_json::Value;

use crate::control::ReceiverRequest;
use crate::fakes::{FakeKind, FakeProvider};
use crate::{Sandbox, receiver};

/// A receiver with everything that is needed to send to it and to find what arrived.
#[derive(Debug, Clone)]
pub struct SampleReceiver {
    /// The address as a message names it.
    pub address: Value,
    pub kind: FakeKind,
    /// The receiver's name in the sandbox.
    pub name: String,
    pub shown_id: ShownId,
    /// Where the provider reads how long a message lives.
    pub ttl_field: &'static str,
    /// The value of that field in a request, as `/sandbox/last/…` shows it; none where there is no such field.
    pub ttl_value: fn(&Value) -> Option<String>,
}

/// The id by which the sandbox knows a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownId {
    Delivery,
    IdempotencyKey,
    /// The provider is told no id.
    Nothing,
}

impl SampleReceiver {
    /// A receiver whose provider is told the delivery's id and no TTL.
    pub(crate) fn new(kind: FakeKind, name: impl Into<String>, address: Value) -> Self {
        let (shown_id, ttl_field) = (ShownId::Delivery, "none");
        Self { address, kind, name: name.into(), shown_id, ttl_field, ttl_value: |_| None }
    }

    /// `<kind>/<name>`, as in `/sandbox/last/<kind>/<name>`.
    pub fn path(&self) -> String {
        receiver::path(self.kind, &self.name)
    }
}

/// A header of a request as `/sandbox/last/…` shows it.
pub(crate) fn shown_header(request: &Value, name: &str) -> Option<String> {
    request["headers"][name].as_str().map(str::to_owned)
}

impl Sandbox {
    /// The channels that have a sample.
    pub fn sample_channels(&self) -> Vec<&'static str> {
        self.state.fakes().filter_map(FakeProvider::sample_channel).collect()
    }

    /// Makes the sample receiver of a channel, set up as `request` says.
    pub fn sample(
        &self,
        channel: &str,
        name: &str,
        request: &ReceiverRequest,
    ) -> anyhow::Result<SampleReceiver> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let fake = self.state.fakes().find(|fake| fake.sample_channel() == Some(channel));
        let fake = fake.with_context(|| format!("no fake provider for channel {channel:?}"))?;
        fake.sample(self, name, number, request)
    }

    /// The part of a server's configuration file that lets it send to every fake. Credentials are written to
    /// `folder`.
    pub fn server_config(&self, folder: &Path) -> anyhow::Result<String> {
        self.state.fakes().map(|fake| fake.server_config(self, folder)).collect()
    }
}

/// Writes a credential to a file and returns the setting that names it.
pub(crate) fn credential_file(folder: &Path, name: &str, text: &str) -> anyhow::Result<String> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(format!("credential = \"file:{}\"\n", path.display()))
}

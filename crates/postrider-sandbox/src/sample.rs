//! Receivers for the demo and for tests: one per channel, from the list of fakes.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use serde_json::Value;

use crate::control::ReceiverRequest;
use crate::fakes::{FAKES, FakeKind};
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

/// Makes a receiver and returns its name and its address. The number differs from call to call.
type SampleMaker = fn(&Sandbox, &str, usize, &ReceiverRequest) -> anyhow::Result<(String, Value)>;

/// How a sample receiver of a channel is made.
pub(crate) struct ChannelSample {
    pub(crate) channel: &'static str,
    pub(crate) shown_id: ShownId,
    /// As in [`SampleReceiver`].
    pub(crate) ttl: (&'static str, fn(&Value) -> Option<String>),
    pub(crate) make: SampleMaker,
}

impl SampleReceiver {
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
        FAKES.iter().map(|entry| entry.sample.channel).collect()
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
        let entry = FAKES.iter().find(|entry| entry.sample.channel == channel);
        let entry = entry.with_context(|| format!("no fake provider for channel {channel:?}"))?;
        let ChannelSample { shown_id, ttl: (ttl_field, ttl_value), make, .. } = entry.sample;
        let (name, address) = make(self, name, number, request)?;
        Ok(SampleReceiver { address, kind: entry.kind, name, shown_id, ttl_field, ttl_value })
    }

    /// The part of a server's configuration file that lets it send to every fake. Credentials are written to
    /// `folder`.
    pub fn server_config(&self, folder: &Path) -> anyhow::Result<String> {
        FAKES.iter().map(|entry| (entry.server_config)(self, folder)).collect()
    }
}

/// Writes a credential to a file and returns the setting that names it.
pub(crate) fn credential_file(folder: &Path, name: &str, text: &str) -> anyhow::Result<String> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(format!("credential = \"file:{}\"\n", path.display()))
}

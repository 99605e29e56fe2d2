//! Receivers for the demo and for tests: one per channel, from the list of fakes.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use serde_json::Value;

use crate::control::{self, ReceiverRequest};
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
    pub ttl: ProviderTtlField,
}

/// The field in which a provider reads how long a message lives, and its value in a request as `/sandbox/last/…`
/// shows it.
pub type ProviderTtlField = (&'static str, fn(&Value) -> Option<String>);

/// The id by which the sandbox knows a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownId {
    Delivery,
    IdempotencyKey,
    /// The provider sees no id.
    Nothing,
}

/// How a sample receiver of a channel is made.
pub(crate) struct ChannelSample {
    pub(crate) channel: &'static str,
    pub(crate) shown_id: ShownId,
    pub(crate) ttl: ProviderTtlField,
    /// The receiver's name, from the wanted name and a number that differs from call to call.
    pub(crate) name: fn(&str, usize) -> String,
    /// The address of the receiver of this name.
    pub(crate) address: fn(&Sandbox, &str) -> Value,
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
        let entry = FAKES.iter().find(|entry| entry.sample.channel == channel);
        let entry = entry.with_context(|| format!("no fake provider for channel {channel:?}"))?;
        let ChannelSample { shown_id, ttl, address, .. } = entry.sample;
        let name = (entry.sample.name)(name, NUMBER.fetch_add(1, Ordering::Relaxed));
        control::set_up(&self.state, entry.kind, &name, request)?;
        let (address, kind) = (address(self, &name), entry.kind);
        Ok(SampleReceiver { address, kind, name, shown_id, ttl })
    }

    /// The part of a server's configuration file that lets it send to every fake. Credentials are written to
    /// `folder`.
    pub fn server_config(&self, folder: &Path) -> anyhow::Result<String> {
        FAKES.iter().map(|entry| (entry.server_config)(self, folder)).collect()
    }

    /// The configuration of an account that sends to this sandbox. Its credential is written to `folder`.
    pub(crate) fn account(
        &self,
        folder: &Path,
        [name, channel, credential]: [&str; 3],
        settings: &str,
    ) -> anyhow::Result<String> {
        let path = folder.join(name);
        std::fs::write(&path, credential)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(format!(
            "[accounts.{name}]\nchannel = \"{channel}\"\ntenant = \"*\"\ncredential = \"file:{}\"\n{settings}\n",
            path.display()
        ))
    }

    /// The setting of an account that leads to this sandbox.
    pub(crate) fn endpoint(&self) -> String {
        format!("endpoint = \"https://127.0.0.1:{}\"", self.https.port())
    }
}

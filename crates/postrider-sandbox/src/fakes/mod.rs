//! The list of fake providers, and what the sandbox needs to know of each. A new fake is its own file and two
//! lines here; nothing else in this crate names a provider.

pub(crate) mod apns;
mod chat;
pub(crate) mod email;
mod fcm;
pub(crate) mod http;
mod jwt;
mod ntfy;
mod telegram;
mod twilio;
pub(crate) mod web_push;
mod webhook;

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use ::http::Method;
use ::http::request::Parts;
use anyhow::Context as _;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::answer::FakeAnswer;
use crate::control::ReceiverRequest;
use crate::correlation::CorrelationId;
use crate::counts::CheckFailure;
use crate::inbox::view::{InboxView, ShownMessage};
use crate::listener::ConnectionControl;
use crate::receiver::{Receiver, ReceiverDetail};
use crate::sample::ChannelSample;
use crate::service::{SandboxState, header_text};
use crate::{Sandbox, SandboxConfig};

/// Every kind of receiver, in the order in which `GET /sandbox` shows them.
pub(crate) const FAKES: &[FakeEntry] = &[
    web_push::ENTRY,
    webhook::ENTRY,
    http::ENTRY,
    email::ENTRY,
    twilio::ENTRY,
    chat::ENTRY,
    telegram::ENTRY,
    ntfy::ENTRY,
    fcm::ENTRY,
    apns::ENTRY,
];

pub(crate) type FakeProviders = Vec<Box<dyn FakeProvider>>;

/// One kind of receiver, with the providers that deliver to it.
pub(crate) struct FakeEntry {
    pub(crate) kind: FakeKind,
    pub(crate) make: fn(&SandboxConfig) -> anyhow::Result<FakeProviders>,
    /// A larger body is answered by [`FakeProvider::too_large`].
    pub(crate) body_max: usize,
    /// Where its receivers are set up: `PUT /sandbox/<path>/<name>`.
    pub(crate) setup_path: Option<&'static str>,
    /// Its calls below `/sandbox`, as `GET /sandbox` shows them.
    pub(crate) control_calls: &'static [&'static str],
    /// How the demo and the tests send to it.
    pub(crate) sample: ChannelSample,
    /// What the inbox shows of a message that it accepted.
    pub(crate) show: fn(&ShownMessage<'_>) -> InboxView,
    /// The part of a server's configuration file that lets it send here. Credentials are written to the folder.
    pub(crate) server_config: fn(&Sandbox, &Path) -> anyhow::Result<String>,
}

/// A provider as far as a sender sees it. It checks requests and writes answers. The sandbox counts the requests and
/// decides on the fault of each.
pub(crate) trait FakeProvider: Any + Send + Sync {
    /// Whether a request to this path is a message for this provider.
    fn serves(&self, path: &str) -> bool;

    /// Checks a message as the provider does.
    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult;

    /// The answer to a body that is too large. The call comes without it.
    fn too_large(&self, _: &FakeCall<'_>) -> FakeAnswer {
        self.refusal(413)
    }

    /// `message_id` is what the provider calls the message.
    fn accept(&self, _: &SandboxState, _: &CheckedRequest, _message_id: u64) -> FakeAnswer {
        FakeAnswer::empty(200)
    }

    /// The answer of the real provider that is nearest to the status of a fault.
    fn refusal(&self, status: u16) -> FakeAnswer {
        FakeAnswer::text(status, "refused by the sandbox's fault profile\n")
    }

    /// The refusal of one request, with `Retry-After`.
    fn refuse(&self, _: &CheckedRequest, status: u16, retry_after_s: Option<u32>) -> FakeAnswer {
        self.refusal(status).with_retry_after(retry_after_s)
    }

    /// Whether this is a call that delivers nothing, such as a question about a credential. Such calls have no
    /// faults and are not counted. The call comes without its body.
    fn is_side_call(&self, _: &FakeCall<'_>) -> bool {
        false
    }

    fn answer_side_call(&self, _: &FakeCall<'_>) -> FakeAnswer {
        FakeAnswer::empty(404)
    }

    /// Whether this connection takes one request at a time until one is accepted.
    fn is_serial(&self, _: &ConnectionControl) -> bool {
        false
    }

    /// What a receiver has beside its name and its behaviour.
    fn make_detail(&self, request: &ReceiverRequest) -> anyhow::Result<ReceiverDetail> {
        anyhow::ensure!(request.secret.is_none(), "only a webhook receiver takes a secret");
        Ok(ReceiverDetail::Plain)
    }

    /// Answers a call of its own below `/sandbox`.
    fn control(&self, _: &ControlCall<'_>) -> Option<anyhow::Result<FakeAnswer>> {
        None
    }
}

/// A request to a fake.
#[derive(Clone, Copy)]
pub(crate) struct FakeCall<'a> {
    pub(crate) state: &'a SandboxState,
    pub(crate) connection: &'a ConnectionControl,
    pub(crate) parts: &'a Parts,
    pub(crate) body: &'a Bytes,
}

impl FakeCall<'_> {
    fn path(&self) -> &str {
        self.parts.uri.path()
    }

    fn header(&self, name: &str) -> Option<&str> {
        header_text(&self.parts.headers, name)
    }

    fn is_post(&self) -> bool {
        self.parts.method == Method::POST
    }

    fn is_get(&self) -> bool {
        self.parts.method == Method::GET
    }

    fn check_post(&self) -> FakeCheckResult<()> {
        match self.is_post() {
            true => Ok(()),
            false => Err(RejectedRequest::request(FakeAnswer::text(405, "POST\n"))),
        }
    }

    /// A request to this receiver, which is made by its first request.
    fn checked(&self, kind: FakeKind, name: &str, id: CorrelationId, ttl_s: u32) -> CheckedRequest {
        let receiver = self.state.receivers.get_or_put(kind, name);
        CheckedRequest { receiver, id, ttl_s, content: self.body.clone() }
    }
}

/// A call to the sandbox itself.
pub(crate) struct ControlCall<'a> {
    pub(crate) state: &'a SandboxState,
    /// `https` or `http`.
    pub(crate) scheme: &'a str,
    pub(crate) parts: &'a Parts,
    /// The parts of the path behind `/sandbox/`.
    pub(crate) path: &'a [&'a str],
    pub(crate) body: &'a Bytes,
}

pub(crate) type FakeCheckResult<T = CheckedRequest> = Result<T, Box<RejectedRequest>>;

/// A request that passed its provider's checks.
pub(crate) struct CheckedRequest {
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) id: CorrelationId,
    pub(crate) ttl_s: u32,
    /// The body that the receiver remembers.
    pub(crate) content: Bytes,
}

/// A request that did not pass.
pub(crate) struct RejectedRequest {
    pub(crate) failure: CheckFailure,
    pub(crate) answer: FakeAnswer,
}

impl RejectedRequest {
    fn new(failure: CheckFailure, answer: FakeAnswer) -> Box<Self> {
        Box::new(Self { failure, answer })
    }

    /// For everything but a wrong credential.
    pub(crate) fn request(answer: FakeAnswer) -> Box<Self> {
        Self::new(CheckFailure::Request, answer)
    }

    fn signature(answer: FakeAnswer) -> Box<Self> {
        Self::new(CheckFailure::Signature, answer)
    }
}

/// What a receiver is, as in `/sandbox/last/<kind>/<name>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FakeKind(&'static str);

impl FakeKind {
    pub(crate) fn named(name: &str) -> anyhow::Result<Self> {
        let known = Self::all().find(|kind| kind.0 == name);
        known.with_context(|| format!("unknown kind {name:?}"))
    }

    pub fn name(self) -> &'static str {
        self.0
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        FAKES.iter().map(|entry| entry.kind)
    }

    /// Its place in [`FAKES`].
    pub(crate) fn index(self) -> usize {
        Self::all().position(|kind| kind == self).unwrap_or_default()
    }
}

impl Serialize for FakeKind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for FakeKind {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::named(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_listed_once() {
        let names: std::collections::HashSet<_> = FakeKind::all().map(FakeKind::name).collect();
        assert_eq!(names.len(), FAKES.len());
    }
}

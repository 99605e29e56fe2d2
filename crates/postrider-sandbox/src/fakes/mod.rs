//! What a fake provider is to the sandbox, and the list of all of them. A new fake is its own file and one
//! line of [`FAKES`]; nothing else in this crate names a provider.

pub(crate) mod apns;
pub(crate) mod chat;
pub(crate) mod email;
pub(crate) mod fcm;
pub(crate) mod http;
pub(crate) mod twilio;
pub(crate) mod web_push;
pub(crate) mod webhook;

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use ::http::request::Parts;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::answer::FakeAnswer;
use crate::control::ReceiverRequest;
use crate::correlation::CorrelationId;
use crate::counts::CheckFailure;
use crate::listener::ConnectionControl;
use crate::receiver::Receiver;
use crate::sample::SampleReceiver;
use crate::service::SandboxState;
use crate::{Sandbox, SandboxConfig};

/// Every fake provider, in the order in which `GET /sandbox` shows them.
pub(crate) const FAKES: &[FakeEntry] = &[
    FakeEntry(FakeKind::PUSH, |config| Ok(Box::new(web_push::FakeWebPush::new(config.seed)))),
    FakeEntry(FakeKind::HOOK, |config| Ok(Box::new(webhook::FakeWebhook::new(config)?))),
    FakeEntry(FakeKind::HTTP, |_| Ok(Box::new(http::FakeHttp))),
    FakeEntry(FakeKind::EMAIL, |_| Ok(Box::new(email::FakeMailServer))),
    FakeEntry(FakeKind::EMAIL, |_| Ok(Box::new(email::ses::FakeSes))),
    FakeEntry(FakeKind::EMAIL, |_| Ok(Box::new(email::sendgrid::FakeSendGrid))),
    FakeEntry(FakeKind::SMS, |_| Ok(Box::new(twilio::FakeTwilio))),
    FakeEntry(FakeKind::CHAT, |_| Ok(Box::new(chat::slack::FakeSlack))),
    FakeEntry(FakeKind::CHAT, |_| Ok(Box::new(chat::discord::FakeDiscord))),
    FakeEntry(FakeKind::CHAT, |_| Ok(Box::new(chat::teams::FakeTeams))),
    FakeEntry(FakeKind::FCM, |_| Ok(Box::new(fcm::FakeFcm::default()))),
    FakeEntry(FakeKind::APNS, |_| Ok(Box::new(apns::FakeApns::default()))),
];

/// The kind of a fake's receivers, and how the fake is made.
pub(crate) struct FakeEntry(
    pub(crate) FakeKind,
    pub(crate) fn(&SandboxConfig) -> anyhow::Result<Box<dyn FakeProvider>>,
);

/// A provider as far as a sender sees it. It checks requests and words answers; the sandbox counts them and
/// decides which faults they meet.
pub(crate) trait FakeProvider: Any + Send + Sync {
    /// Whether a request to this path is a message for this provider.
    fn serves(&self, path: &str) -> bool;

    /// Checks a message as the provider does.
    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult;

    /// A larger body is answered by [`FakeProvider::too_large`].
    fn body_max(&self) -> usize {
        1 << 20
    }

    fn too_large(&self, _state: &SandboxState, _parts: &Parts) -> FakeAnswer {
        FakeAnswer::text(413, "larger than 1 MiB\n")
    }

    /// `message_id` is what the provider calls the message.
    fn accept(&self, _: &SandboxState, _: &CheckedRequest, _message_id: u64) -> FakeAnswer {
        FakeAnswer::empty(200)
    }

    /// A fault's status in the provider's own words: the nearest that the real one says.
    fn refuse(&self, _: &CheckedRequest, status: u16, retry_after_s: Option<u32>) -> FakeAnswer {
        FakeAnswer::text(status, "refused by the sandbox's fault profile\n")
            .with_retry_after(retry_after_s)
    }

    /// Whether this is a call that delivers nothing, such as a question about a credential. Such calls meet no
    /// fault and are not counted.
    fn is_side_call(&self, _: &Parts) -> bool {
        false
    }

    fn answer_side_call(&self, _: &SandboxState, _: &Parts, _body: &Bytes) -> FakeAnswer {
        FakeAnswer::empty(404)
    }

    /// Whether this connection takes one request at a time until one was accepted.
    fn is_serial(&self, _: &ConnectionControl) -> bool {
        false
    }

    /// Where its receivers are set up: `PUT /sandbox/<path>/<name>`.
    fn setup_path(&self) -> Option<&'static str> {
        None
    }

    /// Its calls below `/sandbox`, as `GET /sandbox` shows them.
    fn control_calls(&self) -> &'static [&'static str] {
        &[]
    }

    /// Answers a call of its own below `/sandbox`.
    fn control(&self, _: &ControlCall<'_>) -> Option<anyhow::Result<FakeAnswer>> {
        None
    }

    /// The channel of which this fake is the sample in the demo and in tests.
    fn sample_channel(&self) -> Option<&'static str> {
        None
    }

    /// Makes a receiver. `number` differs from call to call.
    fn sample(
        &self,
        _: &Sandbox,
        _name: &str,
        _number: usize,
        _: &ReceiverRequest,
    ) -> anyhow::Result<SampleReceiver> {
        anyhow::bail!("this fake has no sample")
    }

    /// The part of a server's configuration file that lets it send here. Credentials are written to `folder`.
    fn server_config(&self, _: &Sandbox, _folder: &Path) -> anyhow::Result<String> {
        Ok(String::new())
    }
}

/// What a fake looks at.
pub(crate) struct FakeCall<'a> {
    pub(crate) state: &'a SandboxState,
    pub(crate) connection: &'a ConnectionControl,
    pub(crate) parts: &'a Parts,
    pub(crate) body: &'a Bytes,
}

/// A call to the sandbox itself.
pub(crate) struct ControlCall<'a> {
    pub(crate) state: &'a SandboxState,
    pub(crate) parts: &'a Parts,
    /// The parts of the path behind `/sandbox/`.
    pub(crate) path: &'a [&'a str],
    pub(crate) body: &'a Bytes,
}

pub(crate) type FakeCheckResult = Result<CheckedRequest, Box<RejectedRequest>>;

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
    pub(crate) fn new(failure: CheckFailure, answer: FakeAnswer) -> Box<Self> {
        Box::new(Self { failure, answer })
    }
}

/// What a receiver is, as in `/sandbox/last/<kind>/<name>`. Each fake defines its own; some share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FakeKind(&'static str);

impl FakeKind {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self(name)
    }

    pub fn name(self) -> &'static str {
        self.0
    }

    /// Every kind once.
    pub fn all() -> Vec<Self> {
        let mut kinds: Vec<_> = FAKES.iter().map(|entry| entry.0).collect();
        kinds.dedup();
        kinds
    }

    /// The place of its first fake in [`FAKES`].
    pub(crate) fn index(self) -> usize {
        FAKES.iter().position(|entry| entry.0 == self).unwrap_or_default()
    }
}

impl Serialize for FakeKind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for FakeKind {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(d)?;
        let known = Self::all().into_iter().find(|kind| kind.0 == name);
        known.ok_or_else(|| serde::de::Error::custom(format!("unknown kind {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fakes_of_one_kind_stand_together_so_that_a_kind_is_listed_once() {
        let mut names: Vec<_> = FakeKind::all().into_iter().map(FakeKind::name).collect();
        let listed = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), listed);
    }
}

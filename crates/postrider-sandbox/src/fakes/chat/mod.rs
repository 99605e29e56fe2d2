//! Incoming webhooks of chat services: `/<service>/<name>`. A webhook comes into being when it is first
//! addressed.

pub(crate) mod discord;
pub(crate) mod slack;
pub(crate) mod teams;

use serde_json::Value;

use super::{CheckedRequest, FakeCall, FakeCheckResult, FakeKind, RejectedRequest};
use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::counts::CheckFailure;
use crate::service::header_text;

const NAME_MAX: usize = 200;

impl FakeKind {
    pub const CHAT: Self = Self::new("chat");
}

/// The name of a webhook of this service.
fn hook_name<'a>(service: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.trim_start_matches('/').strip_prefix(service)?.strip_prefix('/')?;
    rest.split('/').next().filter(|name| !name.is_empty() && name.len() <= NAME_MAX)
}

/// `find_flaw` says what the service answers to a message that it cannot show; it is given no message if the body
/// is not a JSON object.
fn check(
    call: &FakeCall<'_>,
    service: &str,
    find_flaw: impl FnOnce(Option<&Value>) -> Option<FakeAnswer>,
) -> FakeCheckResult {
    let rejected = |answer| RejectedRequest::new(CheckFailure::Request, answer);
    if call.parts.method != http::Method::POST {
        return Err(rejected(FakeAnswer::text(405, "POST\n")));
    }
    let content_type = header_text(&call.parts.headers, "content-type").unwrap_or_default();
    if !content_type.starts_with("application/json") {
        return Err(rejected(FakeAnswer::text(400, "invalid_payload")));
    }
    let message: Option<Value> = serde_json::from_slice(call.body).ok();
    if let Some(answer) = find_flaw(message.as_ref().filter(|message| message.is_object())) {
        return Err(rejected(answer));
    }
    let name = hook_name(service, call.parts.uri.path()).unwrap_or_default();
    let receiver = call.state.receivers.get_or_put(FakeKind::CHAT, &format!("{service}.{name}"));
    let id = CorrelationId::from_content(call.body);
    Ok(CheckedRequest { receiver, id, ttl_s: 0, content: call.body.clone() })
}

fn has_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn count(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_known_by_its_path() {
        assert_eq!(hook_name("slack", "/slack/ops/x"), Some("ops"));
        assert_eq!(hook_name("teams", "/teams/connector1"), Some("connector1"));
        assert_eq!(hook_name("teams", "/teams/"), None);
        assert_eq!(hook_name("slack", "/irc/x"), None);
    }
}

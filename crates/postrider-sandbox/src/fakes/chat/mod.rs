//! Incoming webhooks of chat services: `/<service>/<name>`. A webhook comes into being when it is first
//! addressed.

mod discord;
mod slack;
mod teams;

use serde_json::{Value, json};

use super::{FakeCall, FakeCheckResult, FakeEntry, FakeKind, RejectedRequest};
use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::sample::{ChannelSample, ShownId};
use crate::service::header_text;

const NAME_MAX: usize = 200;

impl FakeKind {
    pub const CHAT: Self = Self::new("chat");
}

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind::CHAT,
    make: |_| {
        let slack = Box::new(slack::FakeSlack);
        Ok(vec![slack, Box::new(discord::FakeDiscord), Box::new(teams::FakeTeams)])
    },
    body_max: 1 << 20,
    setup_path: Some("chat"),
    control_calls: &["PUT /sandbox/chat/<slack|discord|teams>.<name> {faults, script}"],
    sample: ChannelSample {
        channel: "chat",
        shown_id: ShownId::Nothing,
        ttl: ("none", |_| None),
        make: |sandbox, name, _, request| {
            let receiver = format!("slack.{name}");
            sandbox.set_up(FakeKind::CHAT, &receiver, request)?;
            let url = format!("{}/slack/{name}", sandbox.https_origin());
            Ok((receiver, json!({"channel": "chat", "url": url})))
        },
    },
    server_config: |sandbox, _| {
        Ok(format!("[chat.hosts]\n\"{}/slack\" = \"slack\"\n", sandbox.https))
    },
};

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
    if call.parts.method != http::Method::POST {
        return Err(RejectedRequest::request(FakeAnswer::text(405, "POST\n")));
    }
    let content_type = header_text(&call.parts.headers, "content-type").unwrap_or_default();
    if !content_type.starts_with("application/json") {
        return Err(RejectedRequest::request(FakeAnswer::text(400, "invalid_payload")));
    }
    let message: Option<Value> = serde_json::from_slice(call.body).ok();
    if let Some(answer) = find_flaw(message.as_ref().filter(|message| message.is_object())) {
        return Err(RejectedRequest::request(answer));
    }
    let name = hook_name(service, call.parts.uri.path()).unwrap_or_default();
    let id = CorrelationId::from_content(call.body);
    Ok(call.checked(FakeKind::CHAT, &format!("{service}.{name}"), id, 0))
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

//! Incoming webhooks of chat services: `/<service>/<name>`. A webhook is made by its first request.

mod card;
mod discord;
mod slack;
mod teams;

use serde_json::{Value, json};

use super::{FakeCall, FakeCheckResult, FakeEntry, FakeKind, RejectedRequest};
use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::sample::{ChannelSample, ShownId};

const NAME_MAX: usize = 200;

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("chat"),
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
        name: |name, _| format!("slack.{name}"),
        address: |sandbox, receiver| {
            let path = receiver.replacen('.', "/", 1);
            json!({"channel": "chat", "url": format!("{}/{path}", sandbox.https_origin())})
        },
    },
    show: card::show,
    server_config: |sandbox, _| {
        let services = ["slack", "discord", "teams"];
        let lines = services.map(|name| format!("\"{}/{name}\" = \"{name}\"\n", sandbox.https));
        Ok(format!("[chat.hosts]\n{}", lines.concat()))
    },
};

/// The name of a webhook of this service.
fn hook_name<'a>(service: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.trim_start_matches('/').strip_prefix(service)?.strip_prefix('/')?;
    rest.split('/').next().filter(|name| !name.is_empty() && name.len() <= NAME_MAX)
}

/// `find_flaw` returns the service's answer to a message that it cannot show. Without a JSON object in the body, it
/// gets `None`.
fn check(
    call: &FakeCall<'_>,
    service: &str,
    find_flaw: impl FnOnce(Option<&Value>) -> Option<FakeAnswer>,
) -> FakeCheckResult {
    call.check_post()?;
    let content_type = call.header("content-type").unwrap_or_default();
    if !content_type.starts_with("application/json") {
        return Err(RejectedRequest::request(FakeAnswer::text(400, "invalid_payload")));
    }
    let message: Option<Value> = serde_json::from_slice(call.body).ok();
    if let Some(answer) = find_flaw(message.as_ref().filter(|message| message.is_object())) {
        return Err(RejectedRequest::request(answer));
    }
    let name = hook_name(service, call.path()).unwrap_or_default();
    let id = CorrelationId::from_content(call.body);
    Ok(call.checked(ENTRY.kind, &format!("{service}.{name}"), id, 0))
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

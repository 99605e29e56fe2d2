//! Incoming webhooks of Slack (`/slack/<name>`), Discord (`/discord/<name>`) and Teams
//! (`/teams/<name>`; a name that begins with `connector` is one of the old kind). Each comes into being
//! when first addressed.

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use hyper::body::Incoming;
use serde_json::Value;

use super::api::{Api, discord_error};
use super::body::{self, ReadError};
use super::correlation::Correlation;
use super::counts::Flaw;
use super::flavour::Answer;
use super::service::{App, Arrival, Refused, header_text};
use super::target::{Detail, Kind, Last};

const BODY_MAX: usize = 1 << 20;
const NAME_MAX: usize = 200;
const TEAMS_MAX: usize = 28 * 1024;

/// The service and the target's name, `slack.<name>`.
pub(super) fn hook_of(path: &str) -> Option<(Api, String)> {
    let (service, name) = path.trim_start_matches('/').split_once('/')?;
    let name = name.split('/').next().filter(|n| !n.is_empty() && n.len() <= NAME_MAX)?;
    let api = match service {
        "slack" => Api::Slack,
        "discord" => Api::Discord,
        "teams" if name.starts_with("connector") => Api::Connector,
        "teams" => Api::Teams,
        _ => return None,
    };
    Some((api, format!("{service}.{name}")))
}

pub(super) async fn receive(
    app: &App,
    parts: Parts,
    body: Incoming,
    api: Api,
    name: &str,
) -> Result<Result<Arrival, Refused>, ReadError> {
    let content = match body::read(body, BODY_MAX).await {
        Ok(content) => content,
        Err(ReadError::TooLarge) => return Ok(Err(refused(api.refuse(413, None)))),
        Err(error) => return Err(error),
    };
    if parts.method != Method::POST {
        return Ok(Err(refused(Answer::text(405, "POST\n"))));
    }
    let kind = header_text(&parts.headers, "content-type").unwrap_or_default();
    if !kind.starts_with("application/json") {
        return Ok(Err(refused(Answer::text(400, "invalid_payload"))));
    }
    if let Some(answer) = flaw(api, &content) {
        return Ok(Err(refused(answer)));
    }
    let target = app.targets.get_or_put(Kind::Chat, name, Detail::Chat);
    let id = Correlation::from_content(&content);
    target.remember(Last { method: parts.method, headers: parts.headers, body: content });
    Ok(Ok(Arrival { target, id, ttl_s: 0, api: Some(api) }))
}

/// What the service says to a message that it cannot show.
fn flaw(api: Api, content: &Bytes) -> Option<Answer> {
    let message: Option<Value> = serde_json::from_slice(content).ok();
    let message = message.filter(Value::is_object);
    let filled = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let some = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
    match (api, message) {
        (Api::Slack, None) => Some(Answer::text(400, "invalid_payload")),
        (Api::Slack, Some(m))
            if !filled(&m["text"]) && !some(&m["blocks"]) && !some(&m["attachments"]) =>
        {
            Some(Answer::text(400, "no_text"))
        }
        (Api::Slack, Some(m)) if count(&m["blocks"]) > 50 => {
            Some(Answer::text(400, "invalid_blocks"))
        }
        (Api::Slack, Some(m)) if count(&m["attachments"]) > 100 => {
            Some(Answer::text(400, "too_many_attachments"))
        }
        (Api::Slack, Some(m)) if m["text"].as_str().is_some_and(|t| t.chars().count() > 40_000) => {
            Some(Answer::text(400, "msg_too_long"))
        }
        (Api::Discord, None) => {
            Some(discord_error(400, 50109, "The request body contains invalid JSON."))
        }
        (Api::Discord, Some(m)) if !filled(&m["content"]) && !some(&m["embeds"]) => {
            Some(discord_error(400, 50006, "Cannot send an empty message"))
        }
        (Api::Discord, Some(m)) if is_long(&m) => {
            Some(discord_error(400, 50035, "Invalid Form Body"))
        }
        (Api::Teams | Api::Connector, Some(_)) if content.len() > TEAMS_MAX => {
            Some(api.refuse(413, None))
        }
        (Api::Teams | Api::Connector, None) => {
            Some(Answer::text(400, "Bad payload received by generic incoming webhook."))
        }
        (Api::Teams | Api::Connector, Some(m))
            if !some(&m["attachments"]) && !filled(&m["text"]) =>
        {
            Some(Answer::text(400, "Summary or Text is required."))
        }
        _ => None,
    }
}

fn count(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

/// Over one of Discord's limits, or with a link that is none.
fn is_long(message: &Value) -> bool {
    let len = |value: &Value| value.as_str().map_or(0, |text| text.encode_utf16().count());
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut total = 0;
    let mut over = |value: &Value, max: usize| {
        total += len(value);
        len(value) > max
    };
    let odd_link = |value: &Value| {
        value.as_str().is_some_and(|url| {
            let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
            url.len() > 2048 || !["https", "http"].iter().any(|s| scheme.eq_ignore_ascii_case(s))
        })
    };
    let embeds = list(&message["embeds"]);
    let parts = embeds.iter().any(|embed| {
        let fields = list(&embed["fields"]);
        over(&embed["title"], 256)
            || over(&embed["description"], 4096)
            || over(&embed["footer"]["text"], 2048)
            || over(&embed["author"]["name"], 256)
            || fields.len() > 25
            || fields.iter().any(|f| over(&f["name"], 256) || over(&f["value"], 1024))
            || odd_link(&embed["url"])
    });
    parts || total > 6000 || len(&message["content"]) > 2000 || embeds.len() > 10
}

fn refused(answer: Answer) -> Refused {
    Refused { kind: Kind::Chat, flaw: Flaw::Request, answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_known_by_its_path() {
        assert_eq!(hook_of("/slack/ops/x"), Some((Api::Slack, "slack.ops".into())));
        assert_eq!(hook_of("/teams/connector1"), Some((Api::Connector, "teams.connector1".into())));
        assert_eq!(hook_of("/teams/"), None);
        assert_eq!(hook_of("/irc/x"), None);
    }
}

//! Discord: `/discord/<name>`.

use serde_json::{Value, json};

use super::{check, count, has_text, hook_name};
use crate::answer::FakeAnswer;
use crate::fakes::{CheckedRequest, FakeCall, FakeCheckResult, FakeProvider};
use crate::service::SandboxState;

pub(super) struct FakeDiscord;

impl FakeProvider for FakeDiscord {
    fn serves(&self, path: &str) -> bool {
        hook_name("discord", path).is_some()
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        check(call, "discord", find_flaw)
    }

    fn accept(&self, _: &SandboxState, _: &CheckedRequest, _: u64) -> FakeAnswer {
        FakeAnswer::empty(204)
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
        match status {
            401 => discord_error(401, 50027, "Invalid Webhook Token"),
            404 | 410 => discord_error(404, 10015, "Unknown Webhook"),
            400 | 413 | 422 => discord_error(400, 50035, "Invalid Form Body"),
            other => discord_error(other, 0, "refused by the sandbox's fault profile"),
        }
    }

    fn refuse(&self, _: &CheckedRequest, status: u16, retry_after_s: Option<u32>) -> FakeAnswer {
        if status != 429 {
            return self.refusal(status);
        }
        let wait = retry_after_s.unwrap_or(1);
        let limited = "You are being rate limited.";
        let body = json!({ "message": limited, "retry_after": f64::from(wait), "global": false });
        FakeAnswer::json(429, &body)
            .with_retry_after(Some(wait))
            .with("x-ratelimit-remaining", "0")
            .with("x-ratelimit-reset-after", &wait.to_string())
            .with("x-ratelimit-scope", "user")
    }
}

fn find_flaw(message: Option<&Value>) -> Option<FakeAnswer> {
    let Some(m) = message else {
        return Some(discord_error(400, 50109, "The request body contains invalid JSON."));
    };
    if !has_text(&m["content"]) && count(&m["embeds"]) == 0 {
        return Some(discord_error(400, 50006, "Cannot send an empty message"));
    }
    is_long(m).then(|| discord_error(400, 50035, "Invalid Form Body"))
}

/// Whether a text is longer than Discord allows, or a link is not one.
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

fn discord_error(status: u16, code: u32, message: &str) -> FakeAnswer {
    FakeAnswer::json(status, &json!({ "message": message, "code": code }))
}

//! Slack: `/slack/<name>`.

use serde_json::Value;

use super::{check, count, has_text, hook_name};
use crate::answer::FakeAnswer;
use crate::fakes::{CheckedRequest, FakeCall, FakeCheckResult, FakeProvider};
use crate::service::SandboxState;

pub(super) struct FakeSlack;

impl FakeProvider for FakeSlack {
    fn serves(&self, path: &str) -> bool {
        hook_name("slack", path).is_some()
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        check(call, "slack", |message| find_flaw(message).map(|why| FakeAnswer::text(400, why)))
    }

    fn accept(&self, _: &SandboxState, _: &CheckedRequest, _: u64) -> FakeAnswer {
        FakeAnswer::text(200, "ok")
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
        match status {
            403 => FakeAnswer::text(403, "action_prohibited"),
            401 => FakeAnswer::text(403, "invalid_token"),
            404 => FakeAnswer::text(404, "no_service"),
            410 => FakeAnswer::text(410, "channel_is_archived"),
            429 => FakeAnswer::text(429, "rate_limited"),
            500..=599 => FakeAnswer::text(status, "rollup_error"),
            _ => FakeAnswer::text(400, "invalid_payload"),
        }
    }
}

fn find_flaw(message: Option<&Value>) -> Option<&'static str> {
    let Some(m) = message else { return Some("invalid_payload") };
    let (blocks, attachments) = (count(&m["blocks"]), count(&m["attachments"]));
    if !has_text(&m["text"]) && blocks == 0 && attachments == 0 {
        Some("no_text")
    } else if blocks > 50 {
        Some("invalid_blocks")
    } else if attachments > 100 {
        Some("too_many_attachments")
    } else if m["text"].as_str().is_some_and(|text| text.chars().count() > 40_000) {
        Some("msg_too_long")
    } else {
        None
    }
}

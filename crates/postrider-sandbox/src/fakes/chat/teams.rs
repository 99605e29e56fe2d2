//! Teams: `/teams/<name>` is a workflow of Power Automate. A name that begins with `connector` is an Office
//! connector, which answers 200 to everything.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{check, count, has_text, hook_name};
use crate::answer::FakeAnswer;
use crate::fakes::{CheckedRequest, FakeCall, FakeCheckResult, FakeProvider};
use crate::service::SandboxState;

const BODY_MAX: usize = 28 * 1024;

pub(super) struct FakeTeams;

impl FakeProvider for FakeTeams {
    fn serves(&self, path: &str) -> bool {
        hook_name("teams", path).is_some()
    }

    fn too_large(&self, call: &FakeCall<'_>) -> FakeAnswer {
        refuse(is_connector(hook_name("teams", call.path())), 413, None)
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        let connector = is_connector(hook_name("teams", call.path()));
        check(call, "teams", |message| find_flaw(message, call.body, connector))
    }

    fn accept(&self, _: &SandboxState, request: &CheckedRequest, _: u64) -> FakeAnswer {
        match is_connector(request.receiver.name.strip_prefix("teams.")) {
            true => FakeAnswer::text(200, "1"),
            false => FakeAnswer::empty(202),
        }
    }

    fn refuse(
        &self,
        request: &CheckedRequest,
        status: u16,
        retry_after_s: Option<u32>,
    ) -> FakeAnswer {
        let connector = is_connector(request.receiver.name.strip_prefix("teams."));
        refuse(connector, status, retry_after_s)
    }
}

fn is_connector(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.starts_with("connector"))
}

fn find_flaw(message: Option<&Value>, body: &Bytes, connector: bool) -> Option<FakeAnswer> {
    let Some(m) = message else {
        let text = "Bad payload received by generic incoming webhook.";
        return Some(FakeAnswer::text(400, text));
    };
    if body.len() > BODY_MAX {
        return Some(refuse(connector, 413, None));
    }
    let is_empty = count(&m["attachments"]) == 0 && !has_text(&m["text"]);
    is_empty.then(|| FakeAnswer::text(400, "Summary or Text is required."))
}

fn refuse(connector: bool, status: u16, retry_after_s: Option<u32>) -> FakeAnswer {
    if connector {
        return refuse_as_connector(status);
    }
    FakeAnswer::json(status, &json!({ "error": { "code": "RefusedBySandbox" } }))
        .with_retry_after(retry_after_s)
}

fn refuse_as_connector(status: u16) -> FakeAnswer {
    let text = format!(
        "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error \
         {status} with ContextId tcid=0,server=sandbox,cv=0.0"
    );
    FakeAnswer { body: text.into(), ..FakeAnswer::empty(200) }
}

//! What Telegram's answers say. What follows from them is in `answers.toml`.

use std::time::Duration;

use ::http::StatusCode;
use serde::Deserialize;

use crate::pool::Response;
use crate::scrub;

const CODE_MAX: usize = 160;
/// How long a chat waits if the answer names no time.
const WAIT: Duration = Duration::from_secs(60);

/// An answer with its parts. Its status is that of the body, if the body has one.
pub(super) struct TelegramAnswer {
    pub(super) response: Response,
    description: Option<String>,
    /// In seconds.
    pub(super) retry_after: Option<u32>,
    /// The id of the supergroup that the group became.
    pub(super) moved_to: Option<String>,
    pub(super) message_id: Option<String>,
    /// Several chats have to wait.
    pub(super) is_about_the_bot: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TelegramAnswerBody {
    ok: Option<bool>,
    error_code: Option<u16>,
    description: Option<String>,
    parameters: TelegramParametersBody,
    result: Option<TelegramResultBody>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TelegramParametersBody {
    retry_after: Option<u32>,
    migrate_to_chat_id: Option<i64>,
}

#[derive(Deserialize)]
struct TelegramResultBody {
    message_id: Option<i64>,
}

impl TelegramAnswer {
    pub(super) fn read(mut response: Response) -> Self {
        let body: TelegramAnswerBody = serde_json::from_slice(&response.body).unwrap_or_default();
        if body.ok == Some(false) {
            let status = body.error_code.filter(|code| *code >= 400).unwrap_or(400);
            response.status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        }
        let failed = !response.status.is_success();
        let description = body.description.filter(|text| failed && !text.is_empty());
        let message_id = body.result.and_then(|result| result.message_id);
        Self {
            description: description.map(|text| scrub::shorten(&text, CODE_MAX)),
            retry_after: body.parameters.retry_after.filter(|_| failed),
            moved_to: body
                .parameters
                .migrate_to_chat_id
                .filter(|_| failed)
                .map(|id| id.to_string()),
            message_id: message_id.filter(|_| !failed).map(|id| id.to_string()),
            is_about_the_bot: false,
            response,
        }
    }

    pub(super) fn is_throttled(&self) -> bool {
        self.response.status == StatusCode::TOO_MANY_REQUESTS
    }

    pub(super) fn wait(&self) -> Duration {
        self.retry_after.map_or(WAIT, |wait| Duration::from_secs(wait.into()))
    }

    /// The description. It begins with `several chats` if not only this chat has to wait.
    pub(super) fn code(&self) -> Option<String> {
        let description = self.description.clone();
        match self.is_about_the_bot {
            true => Some(format!("several chats: {}", description.unwrap_or_default())),
            false => description,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(status: u16, body: &Value) -> TelegramAnswer {
        let status = StatusCode::from_u16(status).unwrap();
        TelegramAnswer::read(Response {
            status,
            headers: Default::default(),
            body: body.to_string().into(),
            credentials: Default::default(),
        })
    }

    #[test]
    fn a_refusal_has_its_description_and_its_parameters() {
        let answer = read(
            429,
            &json!({"ok": false, "error_code": 429, "parameters": {"retry_after": 35},
                "description": "Too Many Requests: retry after 35"}),
        );
        assert!(answer.is_throttled());
        assert_eq!((answer.retry_after, answer.wait()), (Some(35), Duration::from_secs(35)));
        assert_eq!(answer.code().as_deref(), Some("Too Many Requests: retry after 35"));
        let words = "Bad Request: group chat was upgraded to a supergroup chat";
        let answer = read(
            400,
            &json!({"ok": false, "error_code": 400, "description": words,
                "parameters": {"migrate_to_chat_id": -1001234567890_i64}}),
        );
        assert_eq!(answer.moved_to.as_deref(), Some("-1001234567890"));
    }

    #[test]
    fn the_error_code_counts_where_the_status_says_something_else() {
        let refused = json!({"ok": false, "error_code": 403, "description": "Forbidden: x"});
        assert_eq!(read(200, &refused).response.status, 403);
        let odd = json!({"ok": false, "error_code": 200});
        assert_eq!(read(200, &odd).response.status, 400);
    }

    #[test]
    fn an_acceptance_has_the_message_s_id_and_no_code() {
        let answer = read(200, &json!({"ok": true, "result": {"message_id": 71}}));
        assert_eq!((answer.message_id.as_deref(), answer.code()), (Some("71"), None));
    }

    #[test]
    fn what_is_not_json_counts_by_its_status() {
        let answer = read(502, &json!("<html>"));
        assert_eq!((answer.response.status.as_u16(), answer.code()), (502, None));
    }

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = [
            r#"{"ok":true,"result":{"message_id":7}}"#,
            r#"{"ok":false,"error_code":429,"description":"x","parameters":{"retry_after":5}}"#,
        ];
        crate::fuzzed_answers::fuzz_answers("telegram_answer", &seeds, |response| {
            let answer = TelegramAnswer::read(response);
            drop((answer.is_throttled(), answer.wait(), answer.code()));
        });
    }
}

//! What ntfy's answers say. What follows from them is in `answers.toml`.

use serde::Deserialize;

use crate::pool::Response;
use crate::scrub;

const ID_MAX: usize = 64;

/// The parts of an answer that count beside its status.
pub(super) struct NtfyAnswer {
    /// Five digits, the first three of them the status.
    pub(super) code: Option<String>,
    pub(super) message_id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NtfyAnswerBody {
    code: Option<u32>,
    id: Option<String>,
}

impl NtfyAnswer {
    pub(super) fn read(response: &Response) -> Self {
        let body: NtfyAnswerBody = serde_json::from_slice(&response.body).unwrap_or_default();
        let accepted = response.status.is_success();
        Self {
            code: body.code.filter(|_| !accepted).map(|code| code.to_string()),
            message_id: body.id.filter(|_| accepted).map(|id| scrub::shorten(&id, ID_MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::StatusCode;

    fn read(status: u16, body: &'static str) -> (Option<String>, Option<String>) {
        let status = StatusCode::from_u16(status).unwrap();
        let response = Response {
            status,
            headers: Default::default(),
            body: body.into(),
            credentials: Default::default(),
        };
        let answer = NtfyAnswer::read(&response);
        (answer.code, answer.message_id)
    }

    #[test]
    fn a_refusal_has_a_code_and_an_acceptance_the_message_s_id() {
        let refused = r#"{"code":42908,"http":429,"error":"limit reached: daily messages"}"#;
        assert_eq!(read(429, refused), (Some("42908".to_owned()), None));
        let accepted = r#"{"id":"sPs71M8A2T","time":1700000000,"event":"message"}"#;
        assert_eq!(read(200, accepted), (None, Some("sPs71M8A2T".to_owned())));
    }

    #[test]
    fn what_is_not_json_counts_by_its_status() {
        assert_eq!(read(502, "<html>"), (None, None));
    }

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = [
            r#"{"id":"a1","time":1,"event":"message"}"#,
            r#"{"code":42901,"http":429,"error":"limit reached"}"#,
        ];
        crate::fuzzed_answers::fuzz_answers("ntfy_answer", &seeds, |answer| {
            drop(NtfyAnswer::read(&answer).code);
        });
    }
}

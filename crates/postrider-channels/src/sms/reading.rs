//! Reads the id and the error code from a gateway's answer. The table of answers decides what they mean.

use ::http::StatusCode;
use serde_json::Value;

use crate::deliver::Reading;
use crate::pool::Response;
use crate::scrub;

/// JSON pointers (`/error/code`) into an answer's body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerShape {
    pub id_at: Option<String>,
    pub code_at: Option<String>,
    /// For gateways that always answer 200: the value here must be one of `ok_values`, or the answer counts as a 400.
    pub ok_at: Option<String>,
    pub ok_values: Vec<String>,
}

impl AnswerShape {
    pub fn twilio() -> Self {
        let (id_at, code_at) = (Some("/sid".into()), Some("/code".into()));
        Self { id_at, code_at, ..Self::default() }
    }

    /// Changes the status to 400 if the gateway did not accept the message.
    pub(super) fn read(&self, response: &mut Response) -> Reading<'static> {
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let at = |pointer: &Option<String>| text(body.pointer(pointer.as_deref()?)?);
        let taken = match &self.ok_at {
            Some(_) => at(&self.ok_at).is_some_and(|found| self.ok_values.contains(&found)),
            None => true,
        };
        let code = at(&self.code_at)
            .or_else(|| at(&self.ok_at))
            .filter(|_| !taken || !response.status.is_success());
        if response.status.is_success() && !taken {
            response.status = StatusCode::BAD_REQUEST;
        }
        Reading { code, provider_id: at(&self.id_at), ..Reading::default() }
    }
}

fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => return None,
    };
    Some(scrub::shorten(&text, 128))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(
        shape: &AnswerShape,
        status: u16,
        body: &'static str,
    ) -> (u16, Option<String>, Option<String>) {
        let mut response = Response {
            status: StatusCode::from_u16(status).unwrap(),
            headers: Default::default(),
            body: body.into(),
            credentials: Default::default(),
        };
        let told = shape.read(&mut response);
        (response.status.as_u16(), told.provider_id, told.code)
    }

    #[test]
    fn twilio_s_sid_and_code_are_found() {
        let twilio = AnswerShape::twilio();
        assert_eq!(
            told(&twilio, 201, r#"{"sid":"SM1","status":"queued","code":null}"#),
            (201, Some("SM1".into()), None)
        );
        assert_eq!(
            told(&twilio, 400, r#"{"code":21211,"message":"x","status":400}"#),
            (400, None, Some("21211".into()))
        );
        assert_eq!(told(&twilio, 503, "<html>"), (503, None, None));
    }

    #[test]
    fn a_gateway_that_says_200_to_everything_is_asked_for_more() {
        let shape = AnswerShape {
            id_at: Some("/messages/0/id".into()),
            code_at: None,
            ok_at: Some("/messages/0/status".into()),
            ok_values: vec!["0".into()],
        };
        let ok = told(&shape, 200, r#"{"messages":[{"id":"a","status":"0"}]}"#);
        assert_eq!(ok, (200, Some("a".into()), None));
        let refused = told(&shape, 200, r#"{"messages":[{"status":"9"}]}"#);
        assert_eq!(refused, (400, None, Some("9".into())));
        assert_eq!(told(&shape, 200, "?").0, 400);
    }

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds =
            [r#"{"sid":"SM1","status":"queued"}"#, r#"{"code":21211,"message":"x","status":400}"#];
        crate::fuzzed_answers::fuzz_answers("sms_answer", &seeds, |mut answer| {
            drop(AnswerShape::twilio().read(&mut answer));
        });
    }
}

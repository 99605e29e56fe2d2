//! Where FCM's answers carry their code. What a code means is in `answers.toml`.

use std::borrow::Cow;

use serde::Deserialize;

use crate::pool::Response;
use crate::scrub;

const FCM_ERROR: &str = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const QUOTA_FAILURE: &str = "type.googleapis.com/google.rpc.QuotaFailure";
const MESSAGE_MAX: usize = 160;

#[derive(Deserialize)]
struct FcmErrorBody<'a> {
    #[serde(borrow)]
    error: FcmError<'a>,
}

#[derive(Deserialize)]
struct FcmError<'a> {
    #[serde(borrow, default)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    #[serde(borrow, default)]
    details: Vec<FcmErrorDetail<'a>>,
}

#[derive(Deserialize)]
struct FcmErrorDetail<'a> {
    #[serde(rename = "@type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(rename = "errorCode", borrow, default)]
    code: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    violations: Vec<QuotaViolation<'a>>,
}

#[derive(Deserialize)]
struct QuotaViolation<'a> {
    #[serde(borrow, default)]
    subject: Cow<'a, str>,
    #[serde(borrow, default)]
    description: Cow<'a, str>,
}

/// The code of a refusal; none for an acceptance or for what is not FCM's own answer.
pub(super) fn code(response: &Response) -> Option<String> {
    if response.status.is_success() {
        return None;
    }
    let FcmErrorBody { error } = serde_json::from_slice(&response.body).ok()?;
    let details = &error.details;
    let own = details.iter().find(|d| d.kind == FCM_ERROR).and_then(|d| d.code.as_deref());
    // Without an FcmError a 400 says nothing about the token, whatever its words are.
    let own_words = own == Some("INVALID_ARGUMENT");
    let code = own.filter(|code| *code != "UNSPECIFIED_ERROR").unwrap_or(&error.status);
    if code.is_empty() {
        return None;
    }
    let mut code = scrub::shorten(code, MESSAGE_MAX);
    if own_words && !error.message.is_empty() {
        code = format!("{code}: {}", scrub::shorten(&error.message, MESSAGE_MAX));
    }
    if response.status.as_u16() == 429 {
        code.push_str(quota(details));
    }
    Some(code)
}

/// What a spent quota is about, where it is not the whole project.
fn quota(details: &[FcmErrorDetail<'_>]) -> &'static str {
    let failures = details.iter().filter(|d| d.kind == QUOTA_FAILURE);
    let mut words = failures.flat_map(|d| &d.violations).flat_map(|v| [&v.subject, &v.description]);
    words
        .find_map(|text| {
            let text = text.to_ascii_lowercase();
            if text.contains("device") {
                Some(".device")
            } else {
                text.contains("topic").then_some(".topic")
            }
        })
        .unwrap_or_default()
}

/// Why a call was refused whatever it says, e.g. `SERVICE_DISABLED`.
pub(super) fn reason(response: &Response) -> Option<String> {
    let FcmErrorBody { error } = serde_json::from_slice(&response.body).ok()?;
    let info = error.details.iter().find(|d| d.kind == ERROR_INFO)?;
    Some(scrub::shorten(info.reason.as_deref()?, MESSAGE_MAX))
}

/// What FCM calls the message.
pub(super) fn name(response: &Response) -> Option<String> {
    #[derive(Deserialize)]
    struct FcmAcceptedBody<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    if !response.status.is_success() {
        return None;
    }
    let accepted: FcmAcceptedBody<'_> = serde_json::from_slice(&response.body).ok()?;
    Some(scrub::shorten(&accepted.name, 256))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::{HeaderMap, StatusCode};
    use serde_json::json;

    fn refusal(status: u16, body: serde_json::Value) -> Option<String> {
        let status = StatusCode::from_u16(status).unwrap();
        code(&Response {
            status,
            headers: HeaderMap::new(),
            body: body.to_string().into(),
            credentials: Default::default(),
        })
    }

    fn fcm_error(code: &str) -> serde_json::Value {
        json!({"@type": FCM_ERROR, "errorCode": code})
    }

    #[test]
    fn the_fcm_error_wins_over_the_status() {
        let body = json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "x",
            "details": [fcm_error("UNREGISTERED")]}});
        assert_eq!(refusal(404, body).as_deref(), Some("UNREGISTERED"));
        let without = json!({"error": {"code": 404, "status": "NOT_FOUND"}});
        assert_eq!(refusal(404, without).as_deref(), Some("NOT_FOUND"));
        let unspecified = json!({"error": {"status": "INTERNAL",
            "details": [fcm_error("UNSPECIFIED_ERROR")]}});
        assert_eq!(refusal(500, unspecified).as_deref(), Some("INTERNAL"));
    }

    #[test]
    fn an_invalid_argument_carries_its_words_only_with_an_fcm_error() {
        let words = "The registration token is not a valid FCM registration token";
        let details = json!([fcm_error("INVALID_ARGUMENT")]);
        let body =
            json!({"error": {"status": "INVALID_ARGUMENT", "message": words, "details": details}});
        assert_eq!(refusal(400, body).unwrap(), format!("INVALID_ARGUMENT: {words}"));
        let body = json!({"error": {"status": "INVALID_ARGUMENT", "message": words}});
        assert_eq!(refusal(400, body).unwrap(), "INVALID_ARGUMENT");
    }

    #[test]
    fn a_quota_says_what_it_is_about() {
        let quota = |subject: &str| {
            let violation = json!({"@type": QUOTA_FAILURE, "violations": [{"subject": subject}]});
            let details = json!([fcm_error("QUOTA_EXCEEDED"), violation]);
            refusal(429, json!({"error": {"status": "RESOURCE_EXHAUSTED", "details": details}}))
        };
        assert_eq!(quota("device:abc").as_deref(), Some("QUOTA_EXCEEDED.device"));
        assert_eq!(quota("topic:news").as_deref(), Some("QUOTA_EXCEEDED.topic"));
        assert_eq!(quota("project:p").as_deref(), Some("QUOTA_EXCEEDED"));
    }

    #[test]
    fn what_is_not_fcm_s_own_answer_has_no_code() {
        let status = StatusCode::NOT_FOUND;
        let html = Response {
            status,
            headers: HeaderMap::new(),
            body: "<html>".into(),
            credentials: Default::default(),
        };
        assert_eq!(code(&html), None);
    }

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = [
            r#"{"error":{"code":404,"status":"NOT_FOUND","message":"x","details":[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"UNREGISTERED"}]}}"#,
            r#"{"name":"projects/p/messages/1"}"#,
        ];
        crate::fuzzed_answers::fuzz_answers("fcm_answer", &seeds, |answer| {
            drop((code(&answer), reason(&answer), name(&answer)));
        });
    }
}

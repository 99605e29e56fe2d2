//! Calls that only ask whether a credential works: SES's account, SendGrid's scopes, Twilio's account.
//! They deliver nothing, are never met by a fault, and are counted nowhere.

use http::Method;
use http::request::Parts;
use serde_json::json;

use super::api::{Api, ses_error, twilio_error};
use super::flavour::Answer;
use super::service::App;
use super::{mailapi, sms};

/// The answer, if the request is such a question.
pub(super) fn answer(app: &App, parts: &Parts) -> Option<Answer> {
    if parts.method != Method::GET {
        return None;
    }
    let path = parts.uri.path();
    match path {
        "/v2/email/account" => Some(ses(app, parts)),
        "/v3/scopes" => Some(sendgrid(parts)),
        _ => sms::account_of(path).or_else(|| own_page(path)).map(|account| twilio(parts, account)),
    }
}

fn ses(app: &App, parts: &Parts) -> Answer {
    match mailapi::verify(parts, b"", app.now_s()) {
        Ok(()) => Answer::json(
            200,
            &json!({
                "ProductionAccessEnabled": true,
                "SendingEnabled": true,
                "EnforcementStatus": "HEALTHY",
                "SendQuota": { "Max24HourSend": 50_000.0, "MaxSendRate": 14.0, "SentLast24Hours": 0.0 },
            }),
        ),
        Err((kind, why)) => ses_error(403, kind, why),
    }
}

fn sendgrid(parts: &Parts) -> Answer {
    match mailapi::has_key(&parts.headers) {
        true => {
            Answer::json(200, &json!({ "scopes": ["mail.send", "sender_verification_eligible"] }))
        }
        false => Api::SendGrid.refuse(401, None),
    }
}

/// `/2010-04-01/Accounts/<AC…>.json`
fn own_page(path: &str) -> Option<&str> {
    let account = path.strip_prefix("/2010-04-01/Accounts/")?.strip_suffix(".json")?;
    (!account.is_empty() && !account.contains('/')).then_some(account)
}

fn twilio(parts: &Parts, account: &str) -> Answer {
    if !sms::may_send(&parts.headers, account) {
        return twilio_error(401, 20003, "Authenticate");
    }
    Answer::json(
        200,
        &json!({ "sid": account, "status": "active", "type": "Full", "messages": [] }),
    )
}

//! Amazon SES v2: one call per mail. The mail is sent as we wrote it, and the call is signed with SigV4.

use ::http::header::AUTHORIZATION;
use ::http::{HeaderName, HeaderValue, Method};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{Attempt, Timestamp};
use serde_json::{Value, json};

use super::sigv4::{SigV4Signer, SignedRequest};
use crate::accounts::Material;
use crate::deliver::Reading;
use crate::pool::{JSON, Request, Response};
use crate::scrub;

pub(super) const SEND: &str = "/v2/email/outbound-emails";
pub(super) const ACCOUNT: &str = "/v2/email/account";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

pub struct Ses {
    pub region: String,
    /// The API's origin.
    pub endpoint: String,
    pub key_id: String,
    pub secret: Material<String>,
    /// For temporary credentials.
    pub session_token: Option<Material<String>>,
    pub configuration_set: Option<String>,
}

/// The secrets that sign a call.
pub(super) struct SesKeys {
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

impl SesKeys {
    pub(super) fn all(&self) -> Vec<&str> {
        [Some(&self.secret), self.token.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect()
    }
}

impl Ses {
    pub(super) async fn keys(&self) -> Result<SesKeys, String> {
        let secret = self.secret.get().await?.as_ref().clone();
        let token = match &self.session_token {
            Some(token) => Some(token.get().await?.as_ref().clone()),
            None => None,
        };
        Ok(SesKeys { secret, token })
    }

    pub(super) fn forget_keys(&self) {
        self.secret.forget();
        self.session_token.iter().for_each(Material::forget);
    }

    pub(super) fn body(&self, attempt: &Attempt, from: &str, to: &str, mail: &[u8]) -> Vec<u8> {
        let mut call = json!({
            "FromEmailAddress": from,
            "Destination": { "ToAddresses": [to] },
            "Content": { "Raw": { "Data": STANDARD.encode(mail) } },
            "EmailTags": [{ "Name": "delivery", "Value": attempt.delivery.to_string() }],
        });
        if let Some(set) = &self.configuration_set {
            call["ConfigurationSetName"] = Value::from(set.as_str());
        }
        call.to_string().into_bytes()
    }

    /// A signed request; with a body, it is a POST.
    pub(super) fn request(
        &self,
        keys: &SesKeys,
        path: &str,
        host: &str,
        body: Vec<u8>,
        now: Timestamp,
    ) -> Request {
        let method = if body.is_empty() { Method::GET } else { Method::POST };
        let signer = SigV4Signer {
            key_id: &self.key_id,
            secret: &keys.secret,
            region: &self.region,
            service: "ses",
        };
        let mut signed_headers = vec![("content-type", JSON)];
        if let Some(token) = &keys.token {
            signed_headers.push(("x-amz-security-token", token));
        }
        let signed = SignedRequest {
            method: method.as_str(),
            host,
            path,
            headers: &signed_headers,
            body: &body,
        };
        let (date, authorization) = signer.sign(&signed, now);
        let mut request =
            Request::new(method, JSON, body).with_secret(AUTHORIZATION, authorization);
        request.headers.extend(HeaderValue::try_from(date).map(|date| (DATE, date)));
        match &keys.token {
            Some(token) => request.with_secret(TOKEN, token.clone()),
            None => request,
        }
    }
}

pub(super) fn reading(response: &Response) -> Reading<'static> {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let id = body["MessageId"].as_str();
    Reading {
        service: "email.ses",
        code: code(response),
        provider_id: id.map(|id| scrub::shorten(id, 128)),
        ..Reading::default()
    }
}

/// The error's type, a colon and its text.
pub(super) fn code(response: &Response) -> Option<String> {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let header = scrub::header(&response.headers, "x-amzn-errortype");
    let kind = header.or_else(|| Some(body["__type"].as_str()?.to_owned()))?;
    // `TooManyRequestsException:http://…`, or `com.amazonaws.ses#…`
    let kind = kind.split(':').next().unwrap_or_default().rsplit('#').next().unwrap_or_default();
    let text = body["message"].as_str().or(body["Message"].as_str()).unwrap_or_default();
    Some(scrub::shorten(&format!("{kind}: {text}"), 256))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = [r#"{"MessageId":"0100"}"#, r#"{"__type":"MessageRejected","message":"x"}"#];
        crate::fuzzed_answers::fuzz_answers("ses_answer", &seeds, |answer| {
            drop((reading(&answer), code(&answer)));
        });
    }
}

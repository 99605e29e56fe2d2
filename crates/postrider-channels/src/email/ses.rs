//! Amazon SES v2: one call per mail, the mail as we wrote it, signed with SigV4. Kept apart from the
//! channel so that it can be read without it.

use ::http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{Attempt, Timestamp};
use serde_json::{Value, json};

use super::sigv4::{SigV4Signer, SignedRequest};
use crate::accounts::Material;
use crate::pool::{Origin, Request, Response};
use crate::scrub;

const PATH: &str = "/v2/email/outbound-emails";
pub(super) const ACCOUNT: &str = "/v2/email/account";
const JSON: &str = "application/json";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

pub struct Ses {
    pub region: String,
    /// Where the API is, without a path; Amazon's own if it was not given.
    pub endpoint: String,
    pub key_id: String,
    pub secret: Material<String>,
    /// For credentials that end.
    pub session_token: Option<Material<String>>,
    pub configuration_set: Option<String>,
}

/// What a call is signed with.
pub(super) struct SesKeys {
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

impl Ses {
    pub(super) fn url(&self) -> String {
        format!("{}{PATH}", self.endpoint)
    }

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

    pub(super) fn request(
        &self,
        keys: &SesKeys,
        origin: &Origin,
        body: Vec<u8>,
        now: Timestamp,
    ) -> Request {
        self.signed(keys, Method::POST, PATH, origin.authority(), body, now)
    }

    pub(super) fn signed(
        &self,
        keys: &SesKeys,
        method: Method,
        path: &str,
        host: &str,
        body: Vec<u8>,
        now: Timestamp,
    ) -> Request {
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
        let mut headers = HeaderMap::with_capacity(6);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        headers.insert(USER_AGENT, crate::webpush::AGENT);
        let secrets =
            [(DATE, Some(date)), (AUTHORIZATION, Some(authorization)), (TOKEN, keys.token.clone())];
        for (name, text) in secrets {
            if let Some(Ok(mut value)) = text.map(HeaderValue::try_from) {
                value.set_sensitive(name != DATE);
                headers.insert(name, value);
            }
        }
        Request { method, headers, body: body.into() }
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

pub(super) fn provider_id(response: &Response) -> Option<String> {
    let body: Value = serde_json::from_slice(&response.body).ok()?;
    Some(scrub::shorten(body["MessageId"].as_str()?, 128))
}

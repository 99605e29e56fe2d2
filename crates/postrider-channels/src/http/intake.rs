//! An address of any HTTP request. It names its credential and never stores it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use postrider_core::model::content::Content;
use postrider_core::{ChannelIntake, CheckedAddress, FieldError, Target, TenantId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Credentials, HttpContent, HttpTarget, SecretNames};
use crate::address::{NetworkPolicy, check_url, origin, read, shown};
use crate::definition::intake_of;
use crate::target::checked;

pub struct HttpIntake {
    pub policy: NetworkPolicy,
    /// Which credentials may be named.
    pub credentials: Arc<dyn Credentials>,
    pub names: SecretNames,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpAddressRequest {
    #[serde(rename = "channel")]
    _channel: String,
    #[serde(default = "post")]
    method: String,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    credential: Option<String>,
}

fn post() -> String {
    "POST".to_owned()
}

/// Headers that belong to the connection, not to the request.
pub(super) const HOP_HEADERS: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const HEADERS_MAX: usize = 64;
/// Names and values together: what common servers take.
const HEADERS_BYTES_MAX: usize = 8 * 1024;
const METHOD_MAX: usize = 32;
const REFERENCE_MAX: usize = 1024;
const METHODS: &str =
    "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS or another token; not CONNECT or TRACE";

impl ChannelIntake for HttpIntake {
    intake_of!(HttpTarget);

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        self.checked(None, json)
    }

    fn address_for(
        &self,
        tenant: &TenantId,
        json: &str,
    ) -> Result<CheckedAddress, Vec<FieldError>> {
        self.checked(Some(tenant), json)
    }

    fn own_body<'a>(&self, content: &Content<'a>) -> Option<&'a RawValue> {
        HttpContent::of(content).ok()?.body
    }

    fn method<'a>(&self, target: &'a Target) -> Cow<'a, str> {
        target
            .read::<HttpTarget<'a>>()
            .map_or(Cow::Borrowed("POST"), |target| target.method.to_ascii_uppercase().into())
    }
}

impl HttpIntake {
    /// Without a tenant, only the form of a credential is checked.
    fn checked(
        &self,
        tenant: Option<&TenantId>,
        json: &str,
    ) -> Result<CheckedAddress, Vec<FieldError>> {
        let shape = "method, url, headers {name: value}, credential (env:NAME or file:PATH)";
        let request: HttpAddressRequest = read(json, shape)?;
        let mut errors = Vec::from_iter(check_url("url", &request.url, self.policy).err());
        let method = request.method.to_ascii_uppercase();
        let is_token = method.len() <= METHOD_MAX && Method::from_bytes(method.as_bytes()).is_ok();
        if !is_token || matches!(&*method, "CONNECT" | "TRACE") {
            errors.push(FieldError::new("method", format!("{:?}", shown(&method)), METHODS));
        }
        let credential = request.credential;
        if credential.as_deref().is_some_and(|reference| !is_reference(reference)) {
            let allowed = "a reference, env:NAME or file:PATH; never the secret itself";
            errors.push(FieldError::new("credential", "something else", allowed));
        } else if let (Some(tenant), Some(reference)) = (tenant, credential.as_deref())
            && !self.credentials.allows(tenant, reference, &origin(&request.url))
        {
            let allowed =
                "one that the operator lists in http.credentials for this tenant and origin";
            errors.push(FieldError::new("credential", "one that is not listed", allowed));
        }
        if let Some(name) = self.names.secret_parameter(&request.url) {
            let found = format!("the parameter {:?}, which looks like a secret", shown(&name));
            let allowed =
                "no secret is stored: name it by credential; http.public_names exempts a name";
            errors.push(FieldError::new("url", found, allowed));
        }
        let headers =
            check_headers(request.headers, credential.is_some(), &self.names, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let target = HttpTarget {
            method: method.into(),
            url: request.url.into(),
            headers,
            credential: credential.map(Into::into),
        };
        Ok(checked(target))
    }
}

/// `env:NAME` or `file:PATH`.
fn is_reference(text: &str) -> bool {
    let named = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let path = |path: &str| {
        !path.is_empty() && path.len() <= REFERENCE_MAX && !path.chars().any(char::is_control)
    };
    text.strip_prefix("env:").is_some_and(named) || text.strip_prefix("file:").is_some_and(path)
}

fn check_headers(
    given: BTreeMap<String, String>,
    has_credential: bool,
    names: &SecretNames,
    errors: &mut Vec<FieldError>,
) -> BTreeMap<Cow<'static, str>, Cow<'static, str>> {
    if given.len() > HEADERS_MAX {
        errors.push(FieldError::new("headers", format!("{} headers", given.len()), "at most 64"));
    }
    let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > HEADERS_BYTES_MAX {
        let allowed = "at most 8192 bytes of names and values";
        errors.push(FieldError::new("headers", format!("{bytes} bytes"), allowed));
    }
    let mut kept = BTreeMap::new();
    for (name, value) in given {
        let lower = name.to_ascii_lowercase();
        if let Some((found, allowed)) = flaw(&lower, &value, has_credential, names) {
            errors.push(FieldError::new(format!("headers.{}", shown(&lower)), found, allowed));
        } else if !SecretNames::is_known_header(&lower)
            && kept.insert(Cow::Owned(lower.clone()), Cow::Owned(value)).is_some()
        {
            let field = format!("headers.{}", shown(&lower));
            errors.push(FieldError::new(field, "given twice", "given once, in whichever case"));
        }
    }
    kept
}

/// Why a header cannot go with a request: what it is, and what is allowed.
fn flaw(
    name: &str,
    value: &str,
    has_credential: bool,
    names: &SecretNames,
) -> Option<(&'static str, &'static str)> {
    if HeaderName::from_bytes(name.as_bytes()).is_err() {
        return Some(("no header's name", "a name of letters, digits and hyphens"));
    }
    if HOP_HEADERS.contains(&name) {
        return Some(("a header of the connection", "none: it is set when the request is sent"));
    }
    if HeaderValue::from_str(value).is_err() {
        let found = match value.chars().find(|c| c.is_control()) {
            Some('\r' | '\n') => "a line break in its value",
            _ => "a control character in its value",
        };
        return Some((found, "a value in one line, without control characters"));
    }
    let is_replaced = SecretNames::is_known_header(name) && has_credential;
    (names.is_secret_header(name) && !is_replaced).then_some((
        "a credential",
        "no secret is stored: name it by credential, e.g. \"env:BILLING_TOKEN\"; http.public_names exempts \
         a name that only looks like one",
    ))
}

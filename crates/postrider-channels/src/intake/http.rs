//! Any HTTP request, kept for later. Credentials are named, not stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use postrider_core::content::Content;
use postrider_core::{ChannelKind, FieldError, Intake, Target};
use serde::Deserialize;

use super::{NetworkPolicy, check_url, origin, shape_error};

pub struct HttpIntake {
    policy: NetworkPolicy,
}

impl HttpIntake {
    pub fn new(policy: NetworkPolicy) -> Self {
        Self { policy }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(rename = "channel")]
    _channel: String,
    #[serde(default = "post")]
    method: String,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    credential: Option<String>,
}

fn post() -> String {
    "POST".to_owned()
}

/// Headers that carry a secret: taken out, and put back from the credential at send.
const SECRET_HEADERS: [&str; 5] =
    ["authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token"];
/// Headers that belong to the connection, not to the request.
const HOP_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const HEADERS_MAX: usize = 64;
const METHODS: &str =
    "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS or another token; not CONNECT or TRACE";

impl Intake for HttpIntake {
    fn kind(&self) -> ChannelKind {
        ChannelKind::Http
    }

    fn target(&self, address: &str) -> Result<Target, Vec<FieldError>> {
        let shape = "method, url, headers {name: value}, credential (env:NAME or file:PATH)";
        let request: Request = serde_json::from_str(address).map_err(|e| shape_error(&e, shape))?;
        let mut errors = Vec::new();
        if let Err(error) = check_url("url", &request.url, self.policy) {
            errors.push(error);
        }
        let method = request.method.to_ascii_uppercase();
        if Method::from_bytes(method.as_bytes()).is_err() || matches!(&*method, "CONNECT" | "TRACE")
        {
            errors.push(FieldError::new(
                "method",
                method.chars().take(32).collect::<String>(),
                METHODS,
            ));
        }
        let credential = request.credential;
        if credential.as_deref().is_some_and(|c| !c.starts_with("env:") && !c.starts_with("file:"))
        {
            let allowed = "a reference, env:NAME or file:PATH; never the secret itself";
            errors.push(FieldError::new("credential", "something else", allowed));
        }
        let headers = check_headers(request.headers, credential.is_some(), &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Target::Http {
            method: method.into(),
            url: request.url.into(),
            headers,
            credential: credential.map(Into::into),
        })
    }

    fn provider(&self, target: &Target) -> Arc<str> {
        origin(target.place())
    }

    fn check(&self, _content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        Ok(())
    }

    fn ttl_s_max(&self) -> u32 {
        super::TTL_S_MAX
    }
}

fn check_headers(
    given: BTreeMap<String, String>,
    has_credential: bool,
    errors: &mut Vec<FieldError>,
) -> BTreeMap<Box<str>, Box<str>> {
    if given.len() > HEADERS_MAX {
        errors.push(FieldError::new("headers", format!("{} headers", given.len()), "at most 64"));
    }
    let mut kept = BTreeMap::new();
    for (name, value) in given {
        let lower = name.to_ascii_lowercase();
        let field = || format!("headers.{}", lower.chars().take(64).collect::<String>());
        if HeaderName::from_bytes(lower.as_bytes()).is_err()
            || HeaderValue::from_str(&value).is_err()
        {
            errors.push(FieldError::new(
                field(),
                "not a header",
                "a header's name and value, without line breaks",
            ));
        } else if HOP_HEADERS.contains(&&*lower) {
            errors.push(FieldError::new(
                field(),
                "a header of the connection",
                "none: it is set when the request is sent",
            ));
        } else if SECRET_HEADERS.contains(&&*lower) {
            if !has_credential {
                let allowed =
                    "no secret is stored: name it by credential, e.g. \"env:BILLING_TOKEN\"";
                errors.push(FieldError::new(field(), "a credential", allowed));
            }
        } else {
            kept.insert(lower.into(), value.into());
        }
    }
    kept
}

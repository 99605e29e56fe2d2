//! Any HTTP request: method, URL, headers and body as the caller wrote them. The credential is added when the request
//! is sent. Adds no signature and follows no redirect.

mod body;
mod content;
mod credentials;
mod intake;
mod secret_names;
mod settings;
mod target;

use std::sync::Arc;

use ::http::header::{CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Outcome, Report};

pub use content::HttpContent;
pub use credentials::{AllowedCredential, CredentialPart, Credentials, EnvAndFiles};
pub use intake::HttpIntake;
pub use secret_names::SecretNames;
pub use settings::HttpSection;
pub use target::HttpTarget;

use crate::deliver::{Ended, Protocol, Wiring, ended, impl_channel, misconfigured};
use crate::pool::{AGENT, Endpoint, Request};
use crate::target::target_of;
use crate::webhook::{EXPIRES, IDEMPOTENCY_KEY, TRACEPARENT};
use intake::HOP_HEADERS;

pub const KIND: ChannelKind = ChannelKind::new("http");
pub const TRAITS: ChannelTraits = ChannelTraits {
    // A request names a credential of its own.
    tenant_credential: false,
    dedupes_content: true,
    ..ChannelTraits::PLAIN
};

pub struct HttpChannel {
    pub wiring: Wiring,
    pub credentials: Arc<dyn Credentials>,
}

impl_channel!(HttpChannel);

pub(crate) struct HttpCall {
    endpoint: Endpoint,
    request: Request,
    /// The credential, if it is in the URL.
    secrets: Vec<String>,
}

impl Protocol for HttpChannel {
    type Ready = HttpCall;

    fn prepare(&self, attempt: &Attempt) -> Result<HttpCall, Ended> {
        let HttpTarget { method, url, headers, credential } = target_of(attempt)?;
        let refuse = |code| ended(Outcome::DropMessage, code);
        let credential =
            credential.map(|name| self.credential(attempt, &name, &url)).transpose()?;
        let url = match &credential {
            Some(CredentialPart::Query(query)) => with_query(&url, query).into(),
            _ => url,
        };
        let endpoint = self.wiring.endpoint(&url)?;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| refuse("bad_method"))?;
        let body = body::render(attempt, &method)?;
        let mut sent = HeaderMap::with_capacity(headers.len() + 6);
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse("bad_header"))?;
            let value = HeaderValue::from_str(&value).map_err(|_| refuse("bad_header"))?;
            if !HOP_HEADERS.contains(&name.as_str()) {
                sent.insert(name, value);
            }
        }
        if let Some(kind) = body.content_type {
            sent.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        }
        add_ours(attempt, &mut sent);
        let secrets = credential.as_ref().map(CredentialPart::in_query).unwrap_or_default();
        if let Some(CredentialPart::Header(name, mut value)) = credential {
            value.set_sensitive(true);
            sent.insert(name, value);
        }
        let request = Request { method, headers: sent, body: body.bytes };
        Ok(HttpCall { endpoint, request, secrets })
    }

    async fn send(&self, attempt: &Attempt, call: HttpCall) -> Result<Report, Ended> {
        let HttpCall { endpoint, request, secrets } = call;
        let body = request.body.clone();
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        self.wiring.call_on("http", attempt, &endpoint, &body, &secrets, |_| request).await
    }
}

/// Adds our headers: sender, deadline, idempotency key and trace.
fn add_ours(attempt: &Attempt, headers: &mut HeaderMap) {
    let envelope = &attempt.message.envelope;
    headers.entry(USER_AGENT).or_insert(AGENT);
    headers.entry(EXPIRES).or_insert_with(|| HeaderValue::from(attempt.expires_at.as_secs()));
    if !headers.contains_key(IDEMPOTENCY_KEY) {
        let own = envelope.idempotency_key.as_deref().map(HeaderValue::from_str);
        let key = match own {
            Some(Ok(key)) => Some(key),
            _ => HeaderValue::try_from(attempt.message.id.to_string()).ok(),
        };
        headers.extend(key.map(|key| (IDEMPOTENCY_KEY, key)));
    }
    let trace = attempt.traceparent().map(|text| HeaderValue::from_str(&text));
    if let Some(Ok(trace)) = trace {
        headers.insert(TRACEPARENT, trace);
    }
}

impl HttpChannel {
    fn credential(
        &self,
        attempt: &Attempt,
        reference: &str,
        url: &str,
    ) -> Result<CredentialPart, Ended> {
        let origin = crate::address::origin(url);
        let found = self.credentials.resolve(&attempt.message.tenant, reference, &origin);
        found.ok_or_else(|| {
            let detail = "the credential that this request refers to is not here, or \
                          http.credentials does not list it for this tenant and origin";
            misconfigured("credential_missing", detail)
        })
    }
}

/// The URL with a parameter more.
fn with_query(url: &str, query: &str) -> String {
    let (url, fragment) = match url.split_once('#') {
        Some((url, fragment)) => (url, format!("#{fragment}")),
        None => (url, String::new()),
    };
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{query}{fragment}")
}

//! Any HTTP request: method, URL, headers and body as the caller wrote them. The credential is added when the request
//! is sent. Adds no signature and follows no redirect.

mod body;
mod content;
mod credentials;
mod intake;
mod settings;
mod target;

use std::sync::Arc;

use ::http::header::{CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use postrider_core::{Attempt, ChannelKind, ChannelTraits, Outcome, Report};

pub use content::HttpContent;
pub use credentials::{Credentials, EnvAndFiles};
pub use intake::HttpIntake;
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
}

impl Protocol for HttpChannel {
    type Ready = HttpCall;

    fn prepare(&self, attempt: &Attempt) -> Result<HttpCall, Ended> {
        let HttpTarget { method, url, headers, credential } = target_of(attempt)?;
        let refuse = |code| ended(Outcome::DropMessage, code);
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
        if let Some(reference) = credential {
            self.add_credential(&reference, &url, &mut sent)?;
        }
        let request = Request { method, headers: sent, body: body.bytes };
        Ok(HttpCall { endpoint, request })
    }

    async fn send(&self, attempt: &Attempt, call: HttpCall) -> Result<Report, Ended> {
        let HttpCall { endpoint, request } = call;
        let body = request.body.clone();
        self.wiring.call_on("http", attempt, &endpoint, &body, |_| request).await
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
    let trace = envelope.traceparent.as_deref().map(HeaderValue::from_str);
    if let Some(Ok(trace)) = trace {
        headers.insert(TRACEPARENT, trace);
    }
}

impl HttpChannel {
    fn add_credential(
        &self,
        reference: &str,
        url: &str,
        headers: &mut HeaderMap,
    ) -> Result<(), Ended> {
        let origin = crate::address::origin(url);
        let (name, mut value) = self.credentials.header(reference, &origin).ok_or_else(|| {
            let detail = "the credential that this request refers to is not here, or \
                          http.credentials does not list it for this origin";
            misconfigured("credential_missing", detail)
        })?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    }
}

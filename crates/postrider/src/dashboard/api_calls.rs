//! Calls of this server's own API, in the same process, with the session of the person who looks at a page.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use url::form_urlencoded;

use super::json_read::JsonRead as _;
use crate::api::PeerAddress;

const TENANT: HeaderName = HeaderName::from_static("postrider-tenant");
const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Why the API refused a call.
#[derive(Debug, Clone)]
pub(crate) struct RefusedCall {
    pub(crate) status: u16,
    pub(crate) title: String,
    pub(crate) detail: String,
}

impl RefusedCall {
    pub(super) fn new(status: u16, title: &str, detail: impl Into<String>) -> Self {
        Self { status, title: title.to_owned(), detail: detail.into() }
    }
}

pub(super) type PageCallResult<T> = Result<T, RefusedCall>;

/// The API as one caller sees it.
#[derive(Clone)]
pub(crate) struct ApiCalls {
    api: TowerToHyperService<Router>,
    bearer: Option<String>,
    tenant: Option<String>,
    peer: Option<PeerAddress>,
    forwarded: Vec<HeaderValue>,
}

impl ApiCalls {
    pub(super) fn new(
        api: TowerToHyperService<Router>,
        headers: &HeaderMap,
        peer: Option<PeerAddress>,
    ) -> Self {
        let forwarded = headers.get_all(FORWARDED).iter().cloned().collect();
        Self { api, bearer: None, tenant: None, peer, forwarded }
    }

    /// With a session, or with a key.
    pub(super) fn with_bearer(&self, bearer: &str) -> Self {
        Self { bearer: Some(bearer.to_owned()), ..self.clone() }
    }

    /// `*` for all tenants.
    pub(super) fn for_tenant(&self, tenant: &str) -> Self {
        Self { tenant: Some(tenant.to_owned()), ..self.clone() }
    }

    /// As one who names no tenant.
    pub(super) fn without_tenant(&self) -> Self {
        Self { tenant: None, ..self.clone() }
    }

    pub(super) async fn get(&self, path: &str) -> PageCallResult<Value> {
        self.get_with(path, &[]).await
    }

    /// Leaves out parameters without a value.
    pub(super) async fn get_with(
        &self,
        path: &str,
        query: &[(&str, Option<&str>)],
    ) -> PageCallResult<Value> {
        let query = query_text(query);
        self.call(Method::GET, &format!("{path}{query}"), None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> PageCallResult<Value> {
        self.call(Method::POST, path, Some(body)).await
    }

    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> PageCallResult<Value> {
        let bytes = self.text(method, path, body).await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| RefusedCall::new(500, "The answer cannot be read", error.to_string()))
    }

    /// The body of an answer as it is.
    pub(super) async fn text(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> PageCallResult<Bytes> {
        let answer = self.answer(method, path, body).await?;
        let body = answer.into_body().collect().await;
        Ok(body.map_err(|error| unusable(&error))?.to_bytes())
    }

    /// An answer that the browser reads as it comes.
    pub(super) async fn streamed(&self, method: Method, path: &str) -> PageCallResult<Response> {
        self.answer(method, path, None).await
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> PageCallResult<Response> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, format!("Bearer {bearer}"));
        }
        if let Some(tenant) = &self.tenant {
            request = request.header(TENANT, tenant);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for forwarded in &self.forwarded {
            request = request.header(FORWARDED, forwarded);
        }
        if let Some(peer) = &self.peer {
            request = request.extension(peer.clone());
        }
        let request = request.body(Body::from(text)).map_err(|error| unusable(&error))?;
        let Ok(answer) = self.api.call(request).await;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.into_body().collect().await;
        let bytes = body.map_err(|error| unusable(&error))?.to_bytes();
        let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        Err(RefusedCall::new(status.as_u16(), problem.text("title"), problem.text("detail")))
    }
}

fn unusable(error: &dyn std::fmt::Display) -> RefusedCall {
    RefusedCall::new(400, "The call cannot be made", error.to_string())
}

/// What stands behind a path.
fn query_text(query: &[(&str, Option<&str>)]) -> String {
    let mut text = form_urlencoded::Serializer::new(String::new());
    text.extend_pairs(query.iter().filter_map(|(name, value)| Some((name, (*value)?))));
    let text = text.finish();
    if text.is_empty() { text } else { format!("?{text}") }
}

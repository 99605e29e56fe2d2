//! A small HTTP client for the server's own API: one connection, JSON in and out, problems as errors. Used by
//! the command line, the demo and the benchmark. Does not retry.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use url::Url;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0:?} is not a server's address; give one such as http://127.0.0.1:8080")]
    BadServer(String),
    #[error("cannot reach {server}: {reason}")]
    Unreachable { server: String, reason: String },
    #[error("the connection broke before the answer was complete: {0}")]
    Broken(String),
    #[error("{}", describe(.0))]
    Refused(Box<ProblemResponse>),
    #[error("the server's answer is not valid: {0}")]
    Unexpected(String),
}

/// A response that is not a success.
#[derive(Debug)]
pub struct ProblemResponse {
    pub status: u16,
    /// Its body, if it is JSON.
    pub problem: Value,
}

fn describe(refused: &ProblemResponse) -> String {
    let text = |name: &str| refused.problem[name].as_str().unwrap_or_default().to_owned();
    let mut out = format!("{} ({})", text("title"), refused.status);
    if !text("detail").is_empty() {
        out = format!("{out}: {}", text("detail"));
    }
    let errors = refused.problem["errors"].as_array();
    for error in errors.filter(|list| list.len() > 1).into_iter().flatten() {
        let part = |name: &str| error[name].as_str().unwrap_or_default();
        out += &format!(
            "\n  {}: found {}, allowed: {}",
            part("field"),
            part("found"),
            part("allowed")
        );
    }
    out
}

pub type ClientResult<T> = Result<T, ClientError>;
/// The body of a request: complete, or a stream.
pub type RequestBody = BoxBody<Bytes, std::io::Error>;

pub struct Client {
    server: Url,
    authorization: Option<String>,
    tenant: Option<String>,
    tls: Option<Arc<rustls::ClientConfig>>,
    connection: Mutex<Option<SendRequest<RequestBody>>>,
}

impl Client {
    pub fn new(server: &str, key: Option<&str>) -> ClientResult<Self> {
        let bad = || ClientError::BadServer(server.to_owned());
        let url = Url::parse(server).map_err(|_| bad())?;
        let tls = match url.scheme() {
            "http" => None,
            "https" => Some(tls_config().map_err(|e| ClientError::Unexpected(e.to_string()))?),
            _ => return Err(bad()),
        };
        if url.host().is_none() {
            return Err(bad());
        }
        Ok(Self {
            server: url,
            authorization: key.map(|key| format!("Bearer {key}")),
            tenant: None,
            tls,
            connection: Mutex::new(None),
        })
    }

    /// Acts for another tenant; needs an admin key.
    pub fn for_tenant(mut self, tenant: Option<String>) -> Self {
        self.tenant = tenant;
        self
    }

    /// The address of the server, with a slash at its end.
    pub fn server(&self) -> &str {
        self.server.as_str()
    }

    pub async fn get(&self, path: &str) -> ClientResult<Value> {
        self.json(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> ClientResult<Value> {
        self.json(Method::POST, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> ClientResult<Value> {
        self.json(Method::DELETE, path, None).await
    }

    /// One call. An empty answer is `null`; a status that is not 2xx is an error.
    pub async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> ClientResult<Value> {
        let bytes = self.bytes(method, path, body).await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|e| ClientError::Unexpected(e.to_string()))
    }

    /// The same, with the answer as it came.
    pub async fn bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> ClientResult<Bytes> {
        let bytes = body.map(|b| Bytes::from(b.to_string())).unwrap_or_default();
        complete(self.send(method, path, "application/json", whole(bytes)).await?).await
    }

    /// One call. Returns the answer with any status. The connection is reused once the answer has been read.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: RequestBody,
    ) -> ClientResult<Response<Incoming>> {
        self.send_with(method, path, &[("content-type", content_type)], body).await
    }

    /// The same with headers of the caller's choice.
    pub async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: RequestBody,
    ) -> ClientResult<Response<Incoming>> {
        let request = self.request(method, path, headers, body)?;
        let mut slot = self.connection.lock().await;
        // A closed connection is not ready for another request.
        let mut connection = if let Some(mut open) = slot.take()
            && open.ready().await.is_ok()
        {
            open
        } else {
            self.connect().await?
        };
        let response = connection.send_request(request).await;
        let response = response.map_err(|e| ClientError::Broken(e.to_string()))?;
        *slot = Some(connection);
        Ok(response)
    }

    /// The answer of a call as it arrives; an error if its status is not 2xx.
    pub async fn stream(&self, path: &str) -> ClientResult<Incoming> {
        let response =
            self.send(Method::GET, path, "application/json", whole(Bytes::new())).await?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        complete(response).await?;
        Err(ClientError::Unexpected("no export".to_owned()))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: RequestBody,
    ) -> ClientResult<Request<RequestBody>> {
        let prefix = self.server.path().trim_end_matches('/');
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{prefix}{path}"))
            .header(HOST, self.authority());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(key) = &self.authorization {
            request = request.header(AUTHORIZATION, key);
        }
        if let Some(tenant) = &self.tenant {
            request = request.header("postrider-tenant", tenant);
        }
        request.body(body).map_err(|e| ClientError::Unexpected(e.to_string()))
    }

    fn authority(&self) -> String {
        let host = self.server.host_str().unwrap_or_default();
        self.server.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    async fn connect(&self) -> ClientResult<SendRequest<RequestBody>> {
        let unreachable = |reason: String| ClientError::Unreachable {
            server: format!("{}://{}", self.server.scheme(), self.authority()),
            reason,
        };
        let host = self.server.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.server.port_or_known_default().unwrap_or(80);
        let stream =
            TcpStream::connect((host, port)).await.map_err(|e| unreachable(e.to_string()))?;
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return handshake(stream).await.map_err(|e| unreachable(e.to_string()));
        };
        let name = rustls::pki_types::ServerName::try_from(host.to_owned())
            .map_err(|e| unreachable(e.to_string()))?;
        let stream = tokio_rustls::TlsConnector::from(tls.clone())
            .connect(name, stream)
            .await
            .map_err(|e| unreachable(e.to_string()))?;
        handshake(stream).await.map_err(|e| unreachable(e.to_string()))
    }
}

/// The whole body of an answer; an error if the status is not 2xx.
pub async fn complete(response: Response<Incoming>) -> ClientResult<Bytes> {
    let status = response.status();
    let body = response.into_body().collect().await;
    let bytes = body.map_err(|e| ClientError::Broken(e.to_string()))?.to_bytes();
    if status.is_success() {
        return Ok(bytes);
    }
    let problem = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Err(ClientError::Refused(Box::new(ProblemResponse { status: status.as_u16(), problem })))
}

/// A complete body.
pub fn whole(bytes: Bytes) -> RequestBody {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// A path with the query parameters that have a value.
pub fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in parameters {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

async fn handshake<S>(stream: S) -> hyper::Result<SendRequest<RequestBody>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // The request reports the error of a broken connection.
        let _ = connection.await;
    });
    Ok(sender)
}

pub(crate) fn tls_config() -> Result<Arc<rustls::ClientConfig>, rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

//! A provider that does what it is told: answers by script, breaks connections in every way that
//! matters, and remembers all it was sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

/// What it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    Http2,
    /// Asks for a certificate, and takes any.
    Http2AskingWhoWeAre,
    Http1,
    PlainHttp1,
}

impl Line {
    fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2AskingWhoWeAre)
    }
}

/// What it does with a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OnConnect {
    /// Answers by script.
    Serve,
    /// Closes before TLS.
    HangUp,
    /// Reads the request, then closes without an answer.
    HangUpAfterRequest,
    /// HTTP/2: on the first request, GOAWAY with this reason and last stream 0.
    Goaway(u32),
    /// HTTP/2: on the first request, RST_STREAM with this reason.
    ResetStream(u32),
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    /// Reads the request and says nothing.
    pub(crate) silent: bool,
    /// Repeats the request in the body, and its login in two headers.
    pub(crate) echoes: bool,
    /// Reads the request and answers when it is told to.
    pub(crate) held: Option<Arc<Notify>>,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        let (headers, body) = Default::default();
        Self { status, headers, body, silent: false, echoes: false, held: None }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn echo(status: u16) -> Self {
        Self { echoes: true, ..Self::status(status) }
    }

    pub(crate) fn silent() -> Self {
        Self { silent: true, ..Self::status(200) }
    }

    pub(crate) fn held_until(go: &Arc<Notify>) -> Self {
        Self { held: Some(go.clone()), ..Self::status(200) }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) has_certificate: bool,
}

#[derive(Default)]
struct Script {
    connects: Mutex<VecDeque<OnConnect>>,
    answers: Mutex<VecDeque<Answer>>,
    received: Mutex<Vec<Received>>,
    connected: AtomicUsize,
    in_flight: AtomicUsize,
    in_flight_most: AtomicUsize,
    heard: Notify,
    streams_max: Option<u32>,
    /// Nothing is answered before so many were in flight at once.
    crowd: AtomicUsize,
    crowded: Notify,
}

impl Script {
    async fn meet(&self) {
        let missing = || {
            let most = self.in_flight_most.load(Ordering::SeqCst);
            most < self.crowd.load(Ordering::SeqCst)
        };
        while missing() {
            let more = self.crowded.notified();
            tokio::pin!(more);
            more.as_mut().enable();
            if missing() {
                more.await;
            }
        }
        self.crowded.notify_waiters();
    }
}

pub(crate) struct Provider {
    address: SocketAddr,
    line: Line,
    script: Arc<Script>,
}

impl Provider {
    pub(crate) async fn start(line: Line) -> Self {
        Self::with_streams(line, None).await
    }

    pub(crate) async fn with_streams(line: Line, streams_max: Option<u32>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Script { streams_max, ..Script::default() });
        tokio::spawn(accept(listener, line, script.clone()));
        Self { address, line, script }
    }

    /// Answers nothing before so many requests are there at once.
    pub(crate) fn waits_for(&self, crowd: usize) {
        self.script.crowd.store(crowd, Ordering::SeqCst);
    }

    /// The next connections; what is not scripted is served.
    pub(crate) fn connects(&self, steps: impl IntoIterator<Item = OnConnect>) {
        self.script.connects.lock().unwrap().extend(steps);
    }

    /// The next answers; what is not scripted is 201.
    pub(crate) fn answers(&self, answers: impl IntoIterator<Item = Answer>) {
        self.script.answers.lock().unwrap().extend(answers);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.line == Line::PlainHttp1 { "http" } else { "https" };
        format!("{scheme}://localhost:{}{path}", self.address.port())
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.script.received.lock().unwrap().clone()
    }

    /// When the first request has been read.
    pub(crate) async fn heard(&self) {
        loop {
            let mut more = std::pin::pin!(self.script.heard.notified());
            more.as_mut().enable();
            if !self.received().is_empty() {
                return;
            }
            more.await;
        }
    }

    pub(crate) fn connected(&self) -> usize {
        self.script.connected.load(Ordering::SeqCst)
    }

    /// The most requests that were being answered at the same time.
    pub(crate) fn in_flight_most(&self) -> usize {
        self.script.in_flight_most.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, line: Line, script: Arc<Script>) {
    while let Ok((tcp, _)) = listener.accept().await {
        let nth = script.connected.fetch_add(1, Ordering::SeqCst);
        let step = script.connects.lock().unwrap().pop_front().unwrap_or(OnConnect::Serve);
        let _ = (nth, tcp.set_nodelay(true));
        tokio::spawn(connection(tcp, line, step, script.clone()));
    }
}

async fn connection(tcp: TcpStream, line: Line, step: OnConnect, script: Arc<Script>) {
    if matches!(step, OnConnect::HangUp) {
        return;
    }
    if line == Line::PlainHttp1 {
        return speak(tcp, line, step, script, false).await;
    }
    let alpn: &[u8] = if line.is_http2() { b"h2" } else { b"http/1.1" };
    let asking = line == Line::Http2AskingWhoWeAre;
    let config = authority().server_config(alpn, asking);
    let Ok(tls) = TlsAcceptor::from(config).accept(tcp).await else {
        return;
    };
    let has_certificate = tls.get_ref().1.peer_certificates().is_some();
    speak(tls, line, step, script, has_certificate).await;
}

async fn speak<S>(
    stream: S,
    line: Line,
    step: OnConnect,
    script: Arc<Script>,
    has_certificate: bool,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    match (step, line) {
        (OnConnect::Serve, _) => serve(stream, line, script, has_certificate).await,
        (_, line) if line.is_http2() => misbehave(stream, step).await.unwrap_or_default(),
        _ => {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 16 * 1024]).await;
        }
    }
}

async fn serve<S>(stream: S, line: Line, script: Arc<Script>, has_certificate: bool)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let streams_max = script.streams_max;
    let service = service_fn(move |request| answer(request, script.clone(), has_certificate));
    let io = TokioIo::new(stream);
    if line.is_http2() {
        let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        if let Some(max) = streams_max {
            server.max_concurrent_streams(max);
        }
        let _ = server.serve_connection(io, service).await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    }
}

async fn answer(
    request: Request<Incoming>,
    script: Arc<Script>,
    has_certificate: bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let now = script.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
    script.in_flight_most.fetch_max(now, Ordering::SeqCst);
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let (method, uri, headers) = (head.method, head.uri, head.headers);
    let received = Received { method, uri, headers, body, has_certificate };
    script.received.lock().unwrap().push(received.clone());
    let mut answer = script.answers.lock().unwrap().pop_front().unwrap_or(Answer::status(201));
    if answer.echoes {
        answer.repeat(&received);
    }
    script.heard.notify_waiters();
    if answer.silent {
        std::future::pending::<()>().await;
    }
    if let Some(go) = &answer.held {
        go.notified().await;
    }
    script.meet().await;
    // Others get a chance to be in flight, too.
    tokio::task::yield_now().await;
    script.in_flight.fetch_sub(1, Ordering::SeqCst);
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = http::StatusCode::from_u16(answer.status).unwrap();
    for (name, value) in answer.headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    Ok(response)
}

impl Answer {
    fn repeat(&mut self, request: &Received) {
        let Received { method, uri, headers, body, .. } = request;
        let head: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap_or_default()))
            .collect();
        let body = String::from_utf8_lossy(body);
        self.body = format!("{method} {uri}\n{head}\n{body}").into();
        let login = headers.get(http::header::AUTHORIZATION);
        let login = login.and_then(|value| value.to_str().ok()).unwrap_or("none").to_owned();
        self.headers.extend([("x-request-id", login.clone()), ("retry-after", login)]);
    }
}

const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;

/// HTTP/2 by hand, as far as it takes to break it.
async fn misbehave<S>(mut stream: S, step: OnConnect) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.read_exact(&mut [0; 24]).await?;
    write_frame(&mut stream, SETTINGS, 0, 0, &[]).await?;
    loop {
        let (kind, flags, id, _) = read_frame(&mut stream).await?;
        match (kind, step) {
            (SETTINGS, _) if flags & 1 == 0 => {
                write_frame(&mut stream, SETTINGS, 1, 0, &[]).await?;
            }
            (HEADERS, OnConnect::HangUpAfterRequest) => return Ok(()),
            (HEADERS, OnConnect::Goaway(reason)) => {
                // Within microseconds of the request, hyper loses the cause, and the call counts as ambiguous.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let mut payload = vec![0; 4];
                payload.extend(reason.to_be_bytes());
                write_frame(&mut stream, 7, 0, 0, &payload).await?;
            }
            (HEADERS, OnConnect::ResetStream(reason)) => {
                write_frame(&mut stream, 3, 0, id, &reason.to_be_bytes()).await?;
            }
            _ => {}
        }
    }
}

async fn read_frame<S: AsyncRead + Unpin>(
    stream: &mut S,
) -> std::io::Result<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).await?;
    let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Ok((head[3], head[4], id, payload))
}

async fn write_frame<S: AsyncWrite + Unpin>(
    stream: &mut S,
    kind: u8,
    flags: u8,
    id: u32,
    payload: &[u8],
) -> std::io::Result<()> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(id.to_be_bytes());
    frame.extend(payload);
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// A certificate authority made for this run.
pub(crate) struct Authority {
    file: tempfile::NamedTempFile,
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

pub(crate) fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(Authority::new)
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), ca.pem()).unwrap();
        Self { file, chain: vec![leaf.der().clone()], key: key.serialize_der() }
    }

    pub(crate) fn file(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn server_config(&self, alpn: &[u8], asking: bool) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::try_from(self.key.clone()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let mut config = if asking {
            config.with_client_cert_verifier(Arc::new(TakesAny))
        } else {
            config.with_no_client_auth()
        }
        .with_single_cert(self.chain.clone(), key)
        .unwrap();
        config.alpn_protocols.extend((!alpn.is_empty()).then(|| alpn.to_vec()));
        Arc::new(config)
    }
}

/// Wants a certificate and believes every one.
#[derive(Debug)]
struct TakesAny;

impl rustls::server::danger::ClientCertVerifier for TakesAny {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::server::danger::ClientCertVerified, rustls::Error> {
        Ok(rustls::server::danger::ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![
            rustls::SignatureScheme::ECDSA_NISTP256_SHA256,
            rustls::SignatureScheme::RSA_PSS_SHA256,
        ]
    }
}

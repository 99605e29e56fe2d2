//! A small client, separate from our channels: the sandbox is not tested with the code that it tests.
#![allow(dead_code, reason = "shared by tests and a load generator that use different parts of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SystemRandom, fill};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD as B64};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use postrider_sandbox::{Sandbox, SandboxSubscription};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// One connection, of either protocol.
pub(crate) enum Connection {
    H1(http1::SendRequest<Full<Bytes>>),
    H2(http2::SendRequest<Full<Bytes>>),
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text body")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
}

pub(crate) async fn tls(ca_pem: &str, addr: SocketAddr, alpn: &str) -> Connection {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).expect("PEM")).expect("a CA");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = TcpStream::connect(addr).await.expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let name = ServerName::from(addr.ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
    if alpn == "h2" { h2(stream).await } else { h1(stream).await }
}

pub(crate) async fn plain(addr: SocketAddr) -> Connection {
    h1(TcpStream::connect(addr).await.expect("connect")).await
}

pub(crate) async fn prior_knowledge(addr: SocketAddr) -> Connection {
    h2(TcpStream::connect(addr).await.expect("connect")).await
}

async fn h1<I>(io: I) -> Connection
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(io)).await.expect("HTTP/1.1");
    tokio::spawn(connection);
    Connection::H1(sender)
}

async fn h2<I>(io: I) -> Connection
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.expect("HTTP/2");
    tokio::spawn(connection);
    Connection::H2(sender)
}

impl Connection {
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Reply> {
        let response = match self {
            Self::H2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::H1(sender) => {
                sender.ready().await?;
                sender.send_request(in_origin_form(request)).await?
            }
        };
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Reply { status: parts.status, headers: parts.headers, body })
    }
}

/// HTTP/1.1 names the host in a header and only the path in its first line.
fn in_origin_form(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    if let Some(authority) = request.uri().authority().map(ToString::to_string) {
        request.headers_mut().insert("host", authority.parse().expect("a host"));
        let path = request.uri().path_and_query().map_or("/", |p| p.as_str()).to_owned();
        *request.uri_mut() = path.parse().expect("a path");
    }
    request
}

pub(crate) fn request(method: Method, url: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method).uri(url);
    builder.body(Full::new(body.into())).expect("a request")
}

/// A call to the sandbox itself, over a connection of its own.
pub(crate) async fn call(sandbox: &Sandbox, method: Method, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let url = format!("{}{path}", sandbox.http_origin());
    plain(sandbox.http).await.send(request(method, &url, body)).await.expect("an answer")
}

/// An application server's VAPID identity.
pub(crate) struct Sender {
    key: EcdsaKeyPair,
}

impl Sender {
    pub(crate) fn new() -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        Self { key }
    }

    pub(crate) fn public(&self) -> String {
        B64.encode(self.key.public_key())
    }

    pub(crate) fn authorization(&self, claims: &Value) -> String {
        let head = B64.encode(json!({ "typ": "JWT", "alg": "ES256" }).to_string());
        let signed = format!("{head}.{}", B64.encode(claims.to_string()));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).expect("signing");
        format!("vapid t={signed}.{}, k={}", B64.encode(signature), self.public())
    }

    pub(crate) fn good_authorization(&self, origin: &str) -> String {
        self.authorization(&json!({
            "aud": origin, "exp": now_s() + 12 * 3600, "sub": "mailto:ops@example.com",
        }))
    }

    /// A push that any service would take.
    pub(crate) fn push(&self, to: &SandboxSubscription, plain: &[u8]) -> Request<Full<Bytes>> {
        let origin = to.endpoint.split("/push/").next().expect("an origin");
        push_with(&self.good_authorization(origin), to, plain)
    }
}

pub(crate) fn push_with(
    authorization: &str,
    to: &SandboxSubscription,
    plain: &[u8],
) -> Request<Full<Bytes>> {
    let mut push = request(Method::POST, &to.endpoint, encrypt(to, plain));
    for (name, value) in [
        ("ttl", "60"),
        ("urgency", "normal"),
        ("content-encoding", "aes128gcm"),
        ("content-type", "application/octet-stream"),
        ("authorization", authorization),
    ] {
        push.headers_mut().insert(name, value.parse().expect("a header value"));
    }
    push
}

/// RFC 8291 with a fresh key pair and salt.
pub(crate) fn encrypt(to: &SandboxSubscription, plain: &[u8]) -> Vec<u8> {
    let receiver = B64.decode(&to.keys.p256dh).expect("p256dh");
    let auth = B64.decode(&to.keys.auth).expect("auth");
    let own = PrivateKey::generate(&ECDH_P256).expect("a key");
    let own_public = own.compute_public_key().expect("a public key");
    let mut salt = [0u8; 16];
    fill(&mut salt).expect("randomness");
    let peer = UnparsedPublicKey::new(&ECDH_P256, &receiver);
    let shared =
        agreement::agree(
            &own,
            peer,
            (),
            |secret| Ok(Salt::new(HKDF_SHA256, &auth).extract(secret)),
        )
        .expect("agreement");
    let ikm: [u8; 32] = expand(&shared, &[b"WebPush: info\0", &receiver, own_public.as_ref()]);
    let prk = Salt::new(HKDF_SHA256, &salt).extract(&ikm);
    let key: [u8; 16] = expand(&prk, &[b"Content-Encoding: aes128gcm\0"]);
    let nonce: [u8; 12] = expand(&prk, &[b"Content-Encoding: nonce\0"]);
    let mut record = plain.to_vec();
    record.push(2);
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).expect("a key"))
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record)
        .expect("sealing");
    [&salt[..], &4096u32.to_be_bytes(), &[65], own_public.as_ref(), &record].concat()
}

fn expand<const N: usize>(prk: &Prk, info: &[&[u8]]) -> [u8; N] {
    struct Len(usize);
    impl KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut out = [0u8; N];
    prk.expand(info, Len(N)).and_then(|okm| okm.fill(&mut out)).expect("HKDF");
    out
}

/// A webhook in the form of Standard Webhooks.
pub(crate) fn webhook(
    url: &str,
    secret: &str,
    id: &str,
    at_s: i64,
    body: &str,
) -> Request<Full<Bytes>> {
    let secret = secret.strip_prefix("whsec_").expect("whsec_");
    let secret = BASE64_STANDARD.decode(secret).expect("base64");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let tag = hmac::sign(&key, format!("{id}.{at_s}.{body}").as_bytes());
    let signature = format!("v1,{}", BASE64_STANDARD.encode(tag));
    let mut hook = request(Method::POST, url, body.to_owned());
    for (name, value) in [
        ("webhook-id", id),
        ("webhook-timestamp", &at_s.to_string()),
        ("webhook-signature", &signature),
        ("content-type", "application/json"),
    ] {
        hook.headers_mut().insert(name, value.parse().expect("a header value"));
    }
    hook
}

pub(crate) fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

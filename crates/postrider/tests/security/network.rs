//! The way to the server: TLS, addresses that other machines reach, metrics, folders.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_testkit::ADMIN_KEY;
use postrider_testkit::process::{ProcessFixture, free_port};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixture::{Attacker, PATIENCE, server};

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

/// A certificate authority of the test.
struct TestAuthority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl TestAuthority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: rcgen::Issuer::new(params, key) }
    }

    /// A certificate and its key, in PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn client(&self, own: Option<(String, String)>) -> Arc<rustls::ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }
}

/// The status of a call over TLS, and the name that the server's certificate was asked for.
async fn status_over_tls(
    server: &ProcessFixture,
    client: &Arc<rustls::ClientConfig>,
    name: &str,
) -> std::io::Result<u16> {
    let stream = TcpStream::connect(server.server_at).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(client.clone()).connect(name, stream).await?;
    let head = format!(
        "GET /v1/stats HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {ADMIN_KEY}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| std::io::Error::other(format!("no HTTP answer: {text:?}")))
}

async fn until_ok(server: &ProcessFixture, client: &Arc<rustls::ClientConfig>, name: &str) {
    let started = Instant::now();
    loop {
        match status_over_tls(server, client, name).await {
            Ok(200) => return,
            other => assert!(started.elapsed() < PATIENCE, "{name}: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn with_tls(authority: &TestAuthority, more: &str) -> ProcessFixture {
    let mut server = ProcessFixture::new(BINARY, "").unwrap();
    let (certificate, key) = authority.issue("first.example");
    std::fs::write(server.path("server.pem"), certificate).unwrap();
    std::fs::write(server.path("server.key"), key).unwrap();
    std::fs::write(server.path("ca.pem"), authority.certificate.pem()).unwrap();
    let path = |name: &str| server.path(name).display().to_string();
    let config = format!(
        "[server]\ntls_cert = \"{}\"\ntls_key = \"{}\"\n{}",
        path("server.pem"),
        path("server.key"),
        more.replace("CA_FILE", &path("ca.pem"))
    );
    server.write_config(&config).unwrap();
    server.spawn().unwrap();
    server
}

#[tokio::test]
async fn keys_and_messages_cannot_be_read_on_the_way() {
    let authority = TestAuthority::new();
    let server = with_tls(&authority, "");
    let client = authority.client(None);
    until_ok(&server, &client, "first.example").await;
    // Whoever speaks plain HTTP gets nothing.
    let mut plain = TcpStream::connect(server.server_at).await.unwrap();
    plain.write_all(b"GET /v1/stats HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&answer));
    // A new certificate is used without a restart, and a broken one is not.
    std::fs::write(server.path("server.pem"), "broken").unwrap();
    let (certificate, key) = authority.issue("second.example");
    tokio::time::sleep(Duration::from_millis(10)).await;
    until_ok(&server, &client, "first.example").await;
    std::fs::write(server.path("server.key"), key).unwrap();
    std::fs::write(server.path("server.pem"), certificate).unwrap();
    until_ok(&server, &client, "second.example").await;
}

#[tokio::test]
async fn a_caller_without_a_certificate_is_not_served_where_one_is_needed() {
    let authority = TestAuthority::new();
    let server = with_tls(&authority, "tls_client_ca = \"CA_FILE\"\n");
    until_ok(&server, &authority.client(Some(authority.issue("caller"))), "first.example").await;
    let without = status_over_tls(&server, &authority.client(None), "first.example").await;
    assert!(without.is_err(), "{without:?}");
    let stranger = authority.client(Some(TestAuthority::new().issue("caller")));
    assert!(status_over_tls(&server, &stranger, "first.example").await.is_err());
}

/// Runs the binary to its end, which must come soon.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let limited = ["20", BINARY].iter().chain(arguments);
    let output = Command::new("timeout").args(limited).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn plain_http_on_an_address_that_others_reach_needs_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let (code, text) = run(&["serve", "--listen", "0.0.0.0:0", "--data", &data]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("server.listen = 0.0.0.0:0"), "{text}");
    assert!(text.contains("server.allow_plain_http"), "{text}");
    let port = free_port().unwrap().port();
    let mut server = ProcessFixture::new(BINARY, "[server]\nallow_plain_http = true\n").unwrap();
    server.server_at.set_ip([0, 0, 0, 0].into());
    server.server_at.set_port(port);
    server.start().unwrap();
    let log = server.server_log().unwrap();
    assert!(log.contains("without TLS on an address that other machines reach"), "{log}");
}

#[tokio::test]
async fn metrics_need_a_key_or_an_address_of_their_own() {
    let own = free_port().unwrap();
    let server = server(&format!("[server]\nmetrics_listen = \"{own}\"\n"));
    let admin = Attacker::admin(&server);
    let tenant = admin.scoped("admin", "acme").await;
    assert_eq!(admin.with_key("").get("/metrics").await.status, 401);
    assert_eq!(tenant.get("/metrics").await.status, 403);
    assert_eq!(admin.get("/metrics").await.status, 200);
    let monitoring = Attacker { server: own, ..admin.with_key("") };
    let metrics = monitoring.get("/metrics").await;
    assert!(metrics.status == 200 && metrics.body.contains("postrider_"), "{}", metrics.body);
    assert_eq!(Attacker { server: own, ..admin }.get("/v1/stats").await.status, 404);
}

#[test]
fn the_sandbox_listens_for_other_machines_only_if_told() {
    let (code, text) = run(&["sandbox", "--listen", "0.0.0.0:0", "--listen-http", "127.0.0.1:0"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("--allow-remote"), "{text}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn loosen(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn others_cannot_enter_the_data_folder() {
    let mut server = ProcessFixture::new(BINARY, "").unwrap();
    let data = server.path("data");
    std::fs::create_dir(&data).unwrap();
    loosen(&data);
    server.start().unwrap();
    assert_eq!(mode(&data), 0o700);
    drop(server);
    // A folder with something else in it may be meant for others.
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::write(shared.join("notes.txt"), "hello").unwrap();
    loosen(&shared);
    let listen = ["serve", "--listen", "127.0.0.1:0", "--data"];
    let path = shared.display().to_string();
    let (code, text) = run(&[&listen[..], &[&path]].concat());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("chmod 700") && mode(&shared) == 0o755, "{text}");
}

#[test]
fn nobody_can_prepare_the_folder_of_the_demo() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Command::new(BINARY)
        .args(["demo", "--exit", "--messages", "10", "--listen", "127.0.0.1:0"])
        .env("TMPDIR", folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let guessed = format!("postrider-demo-{}", demo.id());
    let started = Instant::now();
    let made = loop {
        if let Some(entry) = std::fs::read_dir(folder.path()).unwrap().next() {
            break entry.unwrap().path();
        }
        assert!(started.elapsed() < PATIENCE, "the demo made no folder");
        std::thread::sleep(Duration::from_millis(5));
    };
    let (name, found) = (made.file_name().unwrap().to_string_lossy().into_owned(), mode(&made));
    demo.kill().unwrap();
    demo.wait().unwrap();
    assert_eq!(found, 0o700);
    assert_ne!(name, guessed, "the name is not known before");
}

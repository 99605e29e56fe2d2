//! Encrypted connections, with the same library as everything else here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aws_lc_rs::digest;
use postrider_core::ports::store::{StoreError, StoreResult};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::options::{PostgresOptions, SslMode};

pub(super) type PgConnection = Connection<Socket, PgTlsStream>;

/// How connections are made.
#[derive(Clone)]
pub(super) struct TlsChoice {
    mode: SslMode,
    config: Arc<ClientConfig>,
}

impl TlsChoice {
    pub(super) fn new(options: &PostgresOptions) -> StoreResult<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| {
            StoreError::Unusable { what: format!("TLS for PostgreSQL: {error}") }
        })?;
        let verifies = options.ssl == SslMode::VerifyFull || options.root_certificates.is_some();
        let config = match verifies {
            true => builder.with_root_certificates(roots(options)?).with_no_client_auth(),
            false => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
                .with_no_client_auth(),
        };
        Ok(Self { mode: options.ssl, config: Arc::new(config) })
    }

    pub(super) async fn connect(
        &self,
        config: &Config,
    ) -> Result<(Client, PgConnection), tokio_postgres::Error> {
        let mut config = config.clone();
        config.ssl_mode(match self.mode {
            SslMode::Disable => tokio_postgres::config::SslMode::Disable,
            SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
            SslMode::Require | SslMode::VerifyFull => tokio_postgres::config::SslMode::Require,
        });
        config.connect(self.clone()).await
    }
}

fn roots(options: &PostgresOptions) -> StoreResult<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(file) = &options.root_certificates else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let refused = |why: String| StoreError::Unusable {
        what: format!("sslrootcert of the store's URL: {file}: {why}"),
    };
    let read = CertificateDer::pem_file_iter(file).map_err(|error| refused(error.to_string()))?;
    for certificate in read {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots.add(certificate).map_err(|error| refused(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(refused("it has no certificate".to_owned())),
        false => Ok(roots),
    }
}

/// Believes whoever answers, as `sslmode=require` says. Only for connections that are not verified.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for TlsChoice {
    type Stream = PgTlsStream;
    type TlsConnect = PgTlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<PgTlsHandshake> {
        Ok(PgTlsHandshake { config: self.config.clone(), host: host.to_owned() })
    }
}

/// A handshake with one server.
pub(super) struct PgTlsHandshake {
    config: Arc<ClientConfig>,
    host: String,
}

impl TlsConnect<Socket> for PgTlsHandshake {
    type Stream = PgTlsStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<PgTlsStream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let connector = tokio_rustls::TlsConnector::from(self.config);
            Ok(PgTlsStream(connector.connect(name, socket).await?))
        })
    }
}

pub(super) struct PgTlsStream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for PgTlsStream {
    /// Binds the password exchange to this connection (RFC 5929). Certificates are hashed with SHA-256 here, which fits
    /// all but those that are signed with longer hashes; for these the exchange is not bound.
    fn channel_binding(&self) -> ChannelBinding {
        let (_, session) = self.0.get_ref();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        match certificate.filter(|certificate| is_signed_with_sha256(certificate)) {
            Some(certificate) => {
                let hash = digest::digest(&digest::SHA256, certificate);
                ChannelBinding::tls_server_end_point(hash.as_ref().to_vec())
            }
            None => ChannelBinding::none(),
        }
    }
}

/// Whether the certificate names sha256WithRSAEncryption or ecdsa-with-SHA256.
fn is_signed_with_sha256(certificate: &[u8]) -> bool {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
    [RSA, ECDSA].iter().any(|oid| certificate.windows(oid.len()).any(|window| window == *oid))
}

impl AsyncRead for PgTlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for PgTlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

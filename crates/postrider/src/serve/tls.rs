//! TLS of the listening socket: certificate and key from files, read anew when the files change, and certificates of
//! callers if they are asked for. A file that cannot be used changes nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use crate::config::sections::ServerSection;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The files of a server's identity.
#[derive(Debug, Clone)]
struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// What the files were when they were read: times and sizes.
type FileStamps = Vec<Option<(SystemTime, u64)>>;

pub(super) struct ServerTls {
    files: TlsFiles,
    current: RwLock<Arc<rustls::ServerConfig>>,
}

impl ServerTls {
    /// `None` if the server is to speak plain HTTP.
    pub(super) fn open(config: &ServerSection) -> anyhow::Result<Option<Arc<Self>>> {
        let (Some(certificate), Some(key)) = (&config.tls_cert, &config.tls_key) else {
            return Ok(None);
        };
        let files = TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: config.tls_client_ca.clone(),
        };
        let current = RwLock::new(Arc::new(files.read()?));
        Ok(Some(Arc::new(Self { files, current })))
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        TlsAcceptor::from(current)
    }

    /// Follows the files until it is dropped.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut known = self.files.stamps();
        let mut every = tokio::time::interval(LOOK_EVERY);
        loop {
            every.tick().await;
            let found = self.files.stamps();
            if found == known {
                continue;
            }
            known = found;
            match self.files.read() {
                Ok(read) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
                    tracing::info!("the server's certificate was read anew");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(error, "the server's new certificate is not used");
                }
            }
        }
    }
}

impl TlsFiles {
    fn read(&self) -> anyhow::Result<rustls::ServerConfig> {
        let certificates = certificates("server.tls_cert", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).with_context(|| {
            format!("server.tls_key: {} has no private key", self.key.display())
        })?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for authority in self::certificates("server.tls_client_ca", file)? {
                    roots.add(authority).with_context(|| unusable("server.tls_client_ca", file))?;
                }
                let callers =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let callers = callers.with_context(|| unusable("server.tls_client_ca", file))?;
                builder.with_client_cert_verifier(callers)
            }
        };
        let mut config = builder
            .with_single_cert(certificates, key)
            .context("server.tls_cert and server.tls_key do not belong together")?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn stamps(&self) -> FileStamps {
        let files = [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()];
        let stamp = |file: &PathBuf| {
            let found = std::fs::metadata(file).ok()?;
            Some((found.modified().ok()?, found.len()))
        };
        files.into_iter().flatten().map(stamp).collect()
    }
}

fn certificates(setting: &str, file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found: Vec<_> = read.with_context(|| unusable(setting, file))?;
    anyhow::ensure!(!found.is_empty(), "{}", unusable(setting, file));
    Ok(found)
}

fn unusable(setting: &str, file: &Path) -> String {
    format!("{setting}: {} has no usable certificates in PEM", file.display())
}
